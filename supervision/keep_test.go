package supervision_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
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
