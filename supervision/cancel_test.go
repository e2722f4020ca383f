package supervision_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// cancelledForGood expects the task to be CANCELLED for good and nothing of it to be left.
func cancelledForGood(t *testing.T, task *actors.Task) {
	t.Helper()
	record, err := task.Status(t.Context())
	require.NoError(t, err)
	for _, u := range record.Units {
		require.Equal(t, messages.State_STATE_CANCELLED, u.State)
	}
	require.Empty(t, record.Owner)
	require.Positive(t, record.TTL)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	_, err = actors.Result[actors.Raw](ctx, task)
	require.ErrorIs(t, err, actors.ErrCancelled)
	require.ErrorContains(t, err, "changed my mind")
	require.ErrorIs(t, task.Cancel(t.Context(), "again"), actors.ErrEnded)
}

func TestCancelStopsARunningHandler(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		started, ended := make(chan struct{}, 9), make(chan error, 9)
		run := func(c *actors.Context) (string, error) {
			return actors.Step(c, "long", func(s actors.StepContext) (string, error) {
				started <- struct{}{}
				<-s.Done()
				ended <- context.Cause(s)
				return "paid for", nil
			})
		}
		var after atomic.Int32
		agents := actors.Agents{
			"obeys": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) { return run(c) }),
			"stubborn": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
				_, err := run(c)
				_, again := actors.Step(c, "after", func(actors.StepContext) (int, error) { return int(after.Add(1)), nil })
				if !errors.Is(again, actors.ErrCancelled) {
					err = errors.New("a step ran after the cancel")
				}
				return "a result", errors.Join(err, again)
			}),
			"panics": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
				_, _ = run(c)
				panic("on the way out")
			}),
		}
		rt, _ := start(t, b.config("n1", agents))
		other, _ := start(t, b.config("n2", agents)) // it may well run there: the caller cannot know
		for kind := range agents {
			task := submit(t, rt.Client(), actors.NewTask{Type: kind, ID: kind})
			<-started
			asked := time.Now()
			require.NoError(t, rt.Client().Task(kind).Cancel(t.Context(), "changed my mind"))
			cancelledForGood(t, task)
			cause := <-ended
			require.Less(t, time.Since(asked), time.Second, "told by the next tick")
			require.ErrorIs(t, cause, actors.ErrCancelled)
			require.ErrorContains(t, cause, "changed my mind")
		}
		require.Eventually(t, func() bool {
			return rt.Stats().Bridge.InFlight == 0 && other.Stats().Bridge.InFlight == 0
		}, 10*time.Second, 5*time.Millisecond, "%+v, %+v", rt.Stats(), other.Stats())
		for kind := range agents {
			cancelledForGood(t, rt.Client().Task(kind))
		}
		require.Zero(t, after.Load())
		require.Empty(t, started, "nothing ran twice")
	})
}

func TestCancelOfWhatDoesNotRun(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var runs atomic.Int32
		agents := actors.Agents{
			"once": actors.Func(func(*actors.Context, actors.Raw) (int, error) { return int(runs.Add(1)), nil }),
			"fails": actors.Func(func(*actors.Context, actors.Raw) (int, error) {
				runs.Add(1)
				return 0, actors.Retry(300*time.Millisecond, errors.New("not yet"))
			}),
			"crashes": actors.Func(func(*actors.Context, actors.Raw) (int, error) {
				runs.Add(1)
				panic("always")
			}).With(actors.MaxCrashes(1000)),
		}
		cfg := b.config("n1", agents)
		cfg.Restarts.Max = 1000
		rt, stop := start(t, cfg)
		client := rt.Client()
		require.ErrorIs(t, client.Task("nobody").Cancel(t.Context(), ""), actors.ErrNoTask)

		fails := submit(t, client, actors.NewTask{Type: "fails", ID: "fails"})
		require.Eventually(t, func() bool { return rt.Stats().Retried == 1 }, 10*time.Second, time.Millisecond)
		require.NoError(t, fails.Cancel(t.Context(), "changed my mind"))
		crashes := submit(t, client, actors.NewTask{Type: "crashes", ID: "crashes"})
		require.Eventually(t, func() bool { return rt.Stats().Crashes > 2 }, 10*time.Second, time.Millisecond)
		require.NoError(t, crashes.Cancel(t.Context(), "changed my mind"))
		require.Eventually(t, func() bool { return rt.Stats().Bridge.InFlight == 0 }, 10*time.Second, time.Millisecond)
		stop()

		ran := runs.Load()
		_, state := b.node()
		desk, err := actors.NewClient(state, b.names)
		require.NoError(t, err)
		waits := submit(t, desk, actors.NewTask{Type: "once", ID: "waits"})
		require.NoError(t, waits.Cancel(t.Context(), "changed my mind"))
		part := submit(t, desk, actors.NewTask{Type: "once", ID: "parts", Step: "1"})
		submit(t, desk, actors.NewTask{Type: "once", ID: "parts", Step: "2"})
		require.NoError(t, part.Cancel(t.Context(), "changed my mind"))
		second, _ := start(t, b.config("n2", agents))
		require.Equal(t, int(ran)+1, result[int](t, desk.Task("parts").Step("2")))
		require.Eventually(t, func() bool { return second.Stats().Bridge.InFlight == 0 }, 10*time.Second, time.Millisecond)
		time.Sleep(400 * time.Millisecond) // for the retry that must not come
		require.Equal(t, ran+1, runs.Load())
		for _, task := range []*actors.Task{fails, crashes, waits} {
			cancelledForGood(t, desk.Task(task.ID))
		}
	})
}

func TestCancelReachesAPlainActor(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		told := make(chan *messages.Cancel, 1)
		started := make(chan struct{}, 1)
		agents := actors.Agents{"plain": plainProps(func(c actor.Context) {
			switch m := c.Message().(type) {
			case *messages.Assign:
				started <- struct{}{}
			case *messages.Cancel:
				told <- m
			}
		})}
		rt, _ := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "plain", ID: "a"})
		<-started
		require.NoError(t, task.Cancel(t.Context(), "changed my mind"))
		m := <-told
		require.Equal(t, messages.CancelCause_CANCEL_CAUSE_CANCELLED, m.GetCause())
		require.Equal(t, "changed my mind", m.GetReason())
		require.Eventually(t, func() bool { return rt.Stats().Bridge.InFlight == 0 && rt.Stats().Cancelled == 1 }, 10*time.Second, time.Millisecond)
		cancelledForGood(t, task)
	})
}
