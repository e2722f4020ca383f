package triage

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func fullIndex(t *testing.T) (*Index, map[string]Report) {
	t.Helper()
	reports, err := Reports()
	require.NoError(t, err)
	ix, err := NewIndex(reports)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ix.Close()) })
	byID := map[string]Report{}
	for _, r := range reports {
		byID[r.ID] = r
	}
	return ix, byID
}

func ids(matches []Match) []string {
	var all []string
	for _, m := range matches {
		all = append(all, m.ID)
	}
	return all
}

func TestSimilarFindsReportsOfTheSameKind(t *testing.T) {
	ix, byID := fullIndex(t)
	for id, want := range map[string]string{
		"mastra-ai/mastra-23648":      "dapr/dapr-3481",           // a slow handler is handed out again while it works
		"dapr/dapr-3481":              "mastra-ai/mastra-23648",   // … and the other way round
		"ag2ai/faststream-2611":       "jaseci-labs/jac-7452",     // NOGROUP loop after a flush
		"celery-3802":                 "celery-4354",              // warm shutdown
		"redis/redis-6576":            "srtab/daiv-981",           // maxmemory
		"hatchet-dev/hatchet-552":     "hatchet-dev/hatchet-1022", // a step beside itself
		"watermill-redisstream-24":    "solana-foundation/pay-461",
		"river-791":                   "sidekiq-3773",
		"symfony-53406":               "redis/redis-5718", // trimmed while pending
		"nats-io/nats-server-4627":    "triggerdotdev/trigger.dev-1689",
		"cschleiden/go-workflows-440": "ag2ai/faststream-2611",
	} {
		t.Run(id, func(t *testing.T) {
			require.Contains(t, byID, id)
			got, err := ix.Similar(t.Context(), byID[id], 3)
			require.NoError(t, err)
			require.Contains(t, ids(got), want)
		})
	}
}

func TestSimilar(t *testing.T) {
	ix, byID := fullIndex(t)
	t.Run("leaves the report itself out, best first, texts filled in", func(t *testing.T) {
		for _, r := range byID {
			got, err := ix.Similar(t.Context(), r, 5)
			require.NoError(t, err)
			require.LessOrEqual(t, len(got), 5)
			require.NotContains(t, ids(got), r.ID)
			require.True(t, slices.IsSortedFunc(got, func(a, b Match) int { return cmp.Compare(b.Score, a.Score) }))
			for _, m := range got {
				require.Equal(t, byID[m.ID].Text, m.Text)
			}
		}
	})
	t.Run("a report that is not in the index finds k others", func(t *testing.T) {
		got, err := ix.Similar(t.Context(), Report{ID: "new", Text: "XAUTOCLAIM hands the entry out again while my handler runs"}, 3)
		require.NoError(t, err)
		require.Len(t, got, 3)
	})
	t.Run("nothing to look for", func(t *testing.T) {
		for _, r := range []Report{{ID: "a"}, {ID: "b", Text: "the of and"}, {ID: "c", Text: "60 5,000"}, {ID: "d", Text: "qwertz zuiop"}} {
			got, err := ix.Similar(t.Context(), r, 3)
			require.NoError(t, err)
			require.Empty(t, got)
		}
		got, err := ix.Similar(t.Context(), byID["celery-3802"], 0)
		require.NoError(t, err)
		require.Empty(t, got)
	})
	t.Run("an ended context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := ix.Similar(ctx, byID["celery-3802"], 3)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A step that runs again after a crash has to cite the same reports, in this process and in the next.
func TestSimilarIsDeterministic(t *testing.T) {
	one, byID := fullIndex(t)
	two, _ := fullIndex(t)
	var wg sync.WaitGroup
	for _, r := range byID {
		wg.Go(func() {
			a, errA := one.Similar(t.Context(), r, 4)
			b, errB := two.Similar(t.Context(), r, 4)
			if errA != nil || errB != nil || !slices.Equal(a, b) {
				t.Errorf("%s: %v (%v), then %v (%v)", r.ID, a, errA, b, errB)
			}
		})
	}
	wg.Wait()
}

func TestNewIndexOfNothing(t *testing.T) {
	ix, err := NewIndex(nil)
	require.NoError(t, err)
	got, err := ix.Similar(t.Context(), Report{ID: "a", Text: "lost work twice"}, 3)
	require.NoError(t, err)
	require.Empty(t, got)
	require.NoError(t, ix.Close())
}
