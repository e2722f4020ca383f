package triage

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// bleve starts its analysis workers when it is imported; they belong to the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func TestReports(t *testing.T) {
	reports, err := Reports()
	require.NoError(t, err)
	require.Len(t, reports, 149)
	require.Equal(t, Report{
		ID: "dapr/dapr-3481", Source: "github issue", Project: "dapr/dapr", Number: 3481, Area: "queue",
		Text: "Default 60 s redelivery surprises 5-minute handlers; no manual ack / renewal.",
	}, reports[0])

	reports[0].Text = "changed"
	again, err := Reports()
	require.NoError(t, err)
	require.NotEqual(t, "changed", again[0].Text, "each caller has a slice of its own")
}

func TestParseReportsRefuses(t *testing.T) {
	for name, test := range map[string]struct{ jsonl, want string }{
		"broken JSON": {"{\"id\":\"a\",\"text\":\"x\"}\n{", "line 2"},
		"no id":       {`{"text":"x"}`, "needs an id and a text"},
		"no text":     {`{"id":"a"}`, "needs an id and a text"},
		"one id twice": {
			"{\"id\":\"a\",\"text\":\"x\"}\n\n{\"id\":\"a\",\"text\":\"y\"}\n", `"a" stands in line 1 and again in line 3`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseReports([]byte(test.jsonl))
			require.ErrorContains(t, err, test.want)
		})
	}
}
