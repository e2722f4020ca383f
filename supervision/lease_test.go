package supervision_test

import (
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// A node that was silent for a lease and is back before the one that took its entry begins owns the task still, by name:
// unless it gives it up, the entry waits for it as long as it lives.
func TestALostEntryDoesNotWaitForItsOldOwner(t *testing.T) {
	client := redistest.Shared(t).Client()
	b := backend{actors.Names{Stream: redistest.Name(t), Group: "g"}, func() (supervision.Stream, actors.State) {
		return redisstream.New(client), redisstate.New(client)
	}}
	var runs atomic.Int32
	begun := make(chan struct{}, 1)
	agents := actors.Agents{"wait": actors.Func(func(c *actors.Context, _ struct{}) (string, error) {
		if runs.Add(1) == 1 {
			begun <- struct{}{}
			<-c.Context().Done()
			return "", c.Context().Err()
		}
		return "done", nil
	})}
	first, _ := start(t, b.config("a", agents))
	task, err := first.Client().Submit(t.Context(), actors.NewTask{Type: "wait", ID: "x", Payload: struct{}{}})
	require.NoError(t, err)
	<-begun
	start(t, b.config("b", agents))
	pending, err := client.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: b.names.Stream, Group: "g", Start: "-", End: "+", Count: 1}).Result()
	require.NoError(t, err)
	require.Len(t, pending, 1)
	// What a reaper does between the end of the silence and the first beat after it.
	require.NoError(t, client.XClaim(t.Context(), &redis.XClaimArgs{
		Stream: b.names.Stream, Group: "g", Consumer: "b", Messages: []string{pending[0].ID},
	}).Err())
	require.Equal(t, "done", result[string](t, task))
	require.EqualValues(t, 2, runs.Load())
}
