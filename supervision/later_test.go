package supervision_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// A task that was submitted for later runs when its time has come, also when every node was replaced meanwhile, and who
// waits for its result waits for all of it.
func TestATaskForLater(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := func() actors.Agents {
			return actors.Agents{"when": actors.Func(func(c *actors.Context, _ actors.Raw) (int64, error) {
				return time.Now().UnixMilli(), nil
			})}
		}
		rt, stop := start(t, b.config("n1", agents()))
		began := time.Now()
		const delay = 700 * time.Millisecond
		at := began.Add(delay)
		tasks := []*actors.Task{
			submit(t, rt.Client(), actors.NewTask{Type: "when", ID: "delay", Delay: delay}),
			submit(t, rt.Client(), actors.NewTask{Type: "when", ID: "at", At: at}),
			// What a producer's plain XADD can do too.
			submit(t, rt.Client(), actors.NewTask{Type: "when", ID: "due", Fields: []actors.Field{{Name: "due", Value: strconv.FormatInt(at.UnixMilli(), 10)}}}),
		}
		for _, task := range tasks {
			var u actors.UnitRecord
			require.Eventually(t, func() bool {
				r, err := task.Status(t.Context())
				require.NoError(t, err)
				u = r.Units[0]
				return u.State == messages.State_STATE_SCHEDULED
			}, 10*time.Second, time.Millisecond, task.ID)
			require.WithinDuration(t, at, u.Due, 100*time.Millisecond, task.ID)
			short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := actors.Result[int64](short, task)
			cancel()
			require.ErrorIs(t, err, actors.ErrNotEnded)
		}
		stop()
		rt, _ = start(t, b.config("n2", agents()))
		for _, task := range tasks {
			ran := time.UnixMilli(result[int64](t, rt.Client().Task(task.ID)))
			require.False(t, ran.Before(at.Truncate(time.Millisecond)), "%s ran %v early", task.ID, at.Sub(ran))
			r, err := task.Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, int64(1), r.Units[0].Ledger.Attempt())
		}
	})
}

func TestAUniqueTask(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rt, _ := start(t, b.config("n1", actors.Agents{"echo": actors.Func(func(_ *actors.Context, s string) (string, error) { return s, nil })}))
		first := submit(t, rt.Client(), actors.NewTask{Type: "echo", Payload: "first", Unique: "daily", For: time.Hour})
		second := submit(t, rt.Client(), actors.NewTask{Type: "echo", Payload: "second", Unique: "daily", For: time.Hour})
		require.True(t, second.Known)
		require.Equal(t, first.ID, second.ID)
		require.Equal(t, "first", result[string](t, second))
	})
}
