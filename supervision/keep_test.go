package supervision_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// A dead letter that is retried goes on from the task's checkpoints, so these must not expire before it does: a step that
// must never run blindly again would.
func TestAFailedTaskIsKeptAsLongAsItsDeadLetter(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var paid atomic.Int32
		agents := actors.Agents{"pay": actors.Func(func(c *actors.Context, _ struct{}) (string, error) {
			if _, err := actors.Step(c, "pay", func(actors.StepContext) (int32, error) { return paid.Add(1), nil }, actors.Unrepeatable()); err != nil {
				return "", err
			}
			return "", actors.Reject(errors.New("the ledger is closed"))
		})}
		cfg := b.config("a", agents)
		cfg.Keep.Failed, cfg.Keep.Dead = time.Hour, 100*time.Hour
		rt, _ := start(t, cfg)
		_, err := actors.Result[string](t.Context(), submit(t, rt.Client(), actors.NewTask{Type: "pay", ID: "x", Payload: struct{}{}}))
		require.Error(t, err)
		rec, err := cfg.State.Task(t.Context(), "x")
		require.NoError(t, err)
		require.Greater(t, rec.TTL, 99*time.Hour)
	})
}

// A submitted id that is remembered longer than the task's record would stand for a task that never begins: the same work
// submitted again would be known and never run.
func TestASubmittedIDIsForgottenWithItsTask(t *testing.T) {
	client := redistest.Shared(t).Client()
	b := backend{actors.Names{Stream: redistest.Name(t), Group: "g"}, func() (supervision.Stream, actors.State) {
		return redisstream.New(client), redisstate.New(client)
	}}
	agents := actors.Agents{"echo": actors.Func(func(*actors.Context, struct{}) (string, error) { return "ok", nil })}
	rt, _ := start(t, b.config("a", agents))
	require.Equal(t, "ok", result[string](t, submit(t, rt.Client(), actors.NewTask{Type: "echo", ID: "x", Payload: struct{}{}})))
	keys, err := messages.NewKeys(b.names.WithDefaults())
	require.NoError(t, err)
	record, err := client.PTTL(t.Context(), keys.Task("x")).Result()
	require.NoError(t, err)
	marker, err := client.PTTL(t.Context(), keys.Submitted("x")).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, marker, record)
}
