package triage

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
	"github.com/weir-run/weir/examples/triage/chatserver"
)

func testAgent(t *testing.T, opts ...chatserver.Option) (*Agent, *chatserver.Server) {
	t.Helper()
	reports, err := Reports()
	require.NoError(t, err)
	index, err := NewIndex(reports)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, index.Close()) })
	model, server := localModel(t, opts...)
	return &Agent{Model: model, Index: index}, server
}

var report = Report{ID: "x-1", Text: "After a crash every job runs twice: the stale lock is reclaimed while the first worker still runs."}

func TestAgent(t *testing.T) {
	a, _ := testAgent(t)
	x := actorstest.New(t, actorstest.With(actors.Classify(Classify)))
	got, err := actorstest.Call(x, a.Handle, report)
	require.NoError(t, err)
	require.Equal(t, "x-1", got.ID)
	require.Equal(t, "duplicate work", got.Intent)
	require.Len(t, got.Similar, neighbours)
	for _, id := range got.Similar {
		require.Contains(t, got.Reply, id)
	}
	var seen strings.Builder
	for _, c := range x.Published() {
		require.Equal(t, "reply", c.Step)
		seen.Write(c.Data)
	}
	require.Equal(t, got.Reply, seen.String(), "what was published is the reply")
}

// A crash in the middle of a step pays again for that step alone.
func TestAgentAfterACrash(t *testing.T) {
	a, server := testAgent(t)
	armed := true
	a.Probe = func(_ actors.StepContext, step string, _ Report) {
		if step == "reply" && armed {
			armed = false
			panic("the process dies here")
		}
	}
	x := actorstest.New(t)
	require.Panics(t, func() { _, _ = actorstest.Call(x, a.Handle, report) })
	require.Len(t, x.Steps(), 2, "intent and similar were kept")
	require.Equal(t, 2, server.Stats().Calls)

	got, err := actorstest.Call(x, a.Handle, report)
	require.NoError(t, err)
	require.NotEmpty(t, got.Reply)
	require.Equal(t, 3, server.Stats().Calls, "only the reply was asked for again")
}

// A provider that is busy, cuts a connection or fails costs another try, not the task.
func TestAgentWithATroubledProvider(t *testing.T) {
	a, server := testAgent(t, chatserver.WithFailures(func(call int) *chatserver.Failure {
		switch call {
		case 1:
			return &chatserver.Failure{Status: http.StatusTooManyRequests, RetryAfter: 2}
		case 2:
			return &chatserver.Failure{Status: http.StatusServiceUnavailable}
		case 4:
			return &chatserver.Failure{AfterTokens: 3}
		}
		return nil
	}))
	x := actorstest.New(t, actorstest.With(actors.Classify(Classify)))
	_, err := actorstest.Call(x, a.Handle, report)
	require.NoError(t, err)
	require.Equal(t, 5, server.Stats().Calls)
	require.Equal(t, 3, server.Stats().Failed)
}

func TestAgentRefusedByTheProvider(t *testing.T) {
	a, server := testAgent(t, chatserver.WithFailures(func(int) *chatserver.Failure {
		return &chatserver.Failure{Status: http.StatusUnauthorized}
	}))
	x := actorstest.New(t, actorstest.With(actors.Classify(Classify)))
	_, err := actorstest.Call(x, a.Handle, report)
	var step *actors.StepError
	require.ErrorAs(t, err, &step)
	require.Equal(t, "intent", step.Step)
	require.Equal(t, 1, server.Stats().Calls, "a refusal is final")
}

func TestAgentsAreUsable(t *testing.T) {
	a, _ := testAgent(t)
	require.NoError(t, Agents(a.Model, a.Index).Validate())
	require.NoError(t, Agents(a.Model, a.Index, func(actors.StepContext, string, Report) {}).Validate())
}
