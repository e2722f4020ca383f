package supervision_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/supervision"
)

// A step, and a handler, that ignore their contexts are abandoned when their time is over: the task goes on at once, what
// they do later is refused, and until they return they are counted where people look.
func TestStuckWorkIsAbandonedAndShown(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		release := make(chan struct{})
		var free sync.Once
		t.Cleanup(func() { free.Do(func() { close(release) }) })
		var late atomic.Int32
		stuckOnce := func(calls *atomic.Int32) {
			if calls.Add(1) == 1 {
				<-release // deaf: it heeds no context
				late.Add(1)
			}
		}
		var steps, handlers atomic.Int32
		agents := actors.Agents{
			"step": actors.Func(func(c *actors.Context, _ actors.Raw) (int, error) {
				return actors.Step(c, "call", func(s actors.StepContext) (int, error) {
					stuckOnce(&steps)
					return s.Attempt, nil
				}, actors.Timeout(100*time.Millisecond), actors.RetryPolicy{Max: 1, Base: time.Millisecond})
			}),
			"handler": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
				stuckOnce(&handlers)
				return actors.Step(c, "call", func(actors.StepContext) (string, error) { return "second", nil })
			}).With(actors.Timeout(100*time.Millisecond), actors.RetryPolicy{Max: 1, Base: time.Millisecond}),
		}
		stream, state := b.node()
		rt, _ := start(t, b.configOf("n1", stream, state, agents))
		var told, back atomic.Int32
		stop := rt.Subscribe(func(e supervision.Event) {
			if s, ok := e.(supervision.StepStuck); ok && s.Back {
				back.Add(1)
			} else if ok {
				told.Add(1)
			}
		})
		defer stop()
		one := submit(t, rt.Client(), actors.NewTask{Type: "step", ID: "one"})
		two := submit(t, rt.Client(), actors.NewTask{Type: "handler", ID: "two"})
		require.Equal(t, 2, result[int](t, one))
		require.Equal(t, "second", result[string](t, two))
		r, err := two.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, actors.Ledger{Timeouts: 1}, r.Units[0].Ledger)
		require.EqualValues(t, 2, rt.Stats().StuckSteps)
		require.EqualValues(t, 2, told.Load())
		shown := func() int64 {
			st, err := stream.Status(t.Context())
			require.NoError(t, err)
			require.Len(t, st.Consumers, 1)
			return st.Consumers[0].Stuck
		}
		require.Eventually(t, func() bool { return shown() == 2 }, 10*time.Second, 10*time.Millisecond)

		free.Do(func() { close(release) })
		require.Eventually(t, func() bool { return rt.Stats().StuckSteps == 0 && back.Load() == 2 }, 10*time.Second, time.Millisecond)
		require.EqualValues(t, 2, late.Load())
		require.Eventually(t, func() bool { return shown() == 0 }, 10*time.Second, 10*time.Millisecond)
		require.Equal(t, 2, result[int](t, one), "what came late has changed nothing")
		require.Equal(t, "second", result[string](t, two))
	})
}

var errBusy = errors.New("busy")

// The failures of a class are counted across activations and nodes.
func TestRetriesByClassEndToEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var calls atomic.Int32
		agents := func() actors.Agents {
			return actors.Agents{"a": actors.Func(func(*actors.Context, actors.Raw) (int32, error) {
				if n := calls.Add(1); n <= 4 {
					return 0, errBusy
				}
				return calls.Load(), errors.New("another one")
			}).With(actors.Retries(0), actors.RetryIf("busy", func(err error) bool { return errors.Is(err, errBusy) },
				actors.RetryPolicy{Max: 4, Base: time.Millisecond}))}
		}
		rt, stop := start(t, b.config("n1", agents()))
		task := submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "t"})
		require.Eventually(t, func() bool { return calls.Load() >= 2 }, 10*time.Second, time.Millisecond)
		stop()
		rt, _ = start(t, b.config("n2", agents()))
		_, err := actors.Result[int32](t.Context(), rt.Client().Task(task.ID))
		var failed *actors.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "budget_spent", failed.Reason)
		require.Contains(t, failed.Detail, "another one")
		r, err := task.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, actors.Ledger{Failures: 5, Interruptions: r.Units[0].Ledger.Interruptions, Classes: "busy=4"}, r.Units[0].Ledger)
	})
}
