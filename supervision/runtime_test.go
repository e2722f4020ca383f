package supervision_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// backend makes the adapters of one more node on the same server.
type backend struct {
	names actors.Names
	node  func() (supervision.Stream, actors.State)
}

// onBoth runs a test in memory and on a real server.
func onBoth(t *testing.T, test func(t *testing.T, b backend)) {
	t.Run("memory", func(t *testing.T) {
		server := memstream.NewServer()
		test(t, backend{actors.Names{Stream: "s", Group: "g"}, func() (supervision.Stream, actors.State) {
			s := server.Stream()
			return s, memstate.New(s)
		}})
	})
	t.Run("redis", func(t *testing.T) {
		client := redistest.Shared(t).Client()
		test(t, backend{actors.Names{Stream: redistest.Name(t), Group: "g"}, func() (supervision.Stream, actors.State) {
			return redisstream.New(client), redisstate.New(client)
		}})
	})
}

func (b backend) config(consumer string, agents actors.Agents) supervision.Config {
	stream, state := b.node()
	return b.configOf(consumer, stream, state, agents)
}

func (b backend) configOf(consumer string, stream supervision.Stream, state actors.State, agents actors.Agents) supervision.Config {
	names := b.names
	names.Consumer = consumer
	return supervision.Config{
		Stream: stream, State: state, Names: names, Agents: agents,
		Lease: 900 * time.Millisecond, Beat: 200 * time.Millisecond, Tick: 100 * time.Millisecond, Grace: 5 * time.Second,
		Restarts: supervision.Restarts{Base: time.Millisecond, Cap: 5 * time.Millisecond},
		Logger:   hclog.NewNullLogger(),
	}
}

// start runs a node until the test ends and returns it with a function that drains it early.
func start(t *testing.T, cfg supervision.Config) (*supervision.Runtime, func()) {
	t.Helper()
	rt, err := supervision.New(cfg)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(context.Background()) }()
	var once atomic.Bool
	stop := func() {
		if once.Swap(true) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, rt.Drain(ctx))
		require.NoError(t, <-ended)
	}
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return rt.Ready() == nil }, 10*time.Second, 5*time.Millisecond, "%v", rt.Ready())
	return rt, stop
}

func submit(t *testing.T, c *actors.Client, n actors.NewTask) *actors.Task {
	t.Helper()
	task, err := c.Submit(t.Context(), n)
	require.NoError(t, err)
	return task
}

func result[R any](t *testing.T, task *actors.Task) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := actors.Result[R](ctx, task)
	require.NoError(t, err)
	return r
}

type hello struct{ Name string }

func TestATaskRunsEndToEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := actors.Agents{"hello": actors.Func(func(c *actors.Context, m hello) (string, error) {
			return actors.Step(c, "greet", func(s actors.StepContext) (string, error) { return "hi " + m.Name + " " + s.Key, nil })
		})}
		rt, stop := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "hello", ID: "a{b}c", Payload: hello{"Ada"}})
		require.Equal(t, "hi Ada a%7Bb%7Dc:greet", result[string](t, task))
		again := submit(t, rt.Client(), actors.NewTask{Type: "hello", ID: "a{b}c", Payload: hello{"Ada"}})
		require.True(t, again.Known)
		_, err := rt.Client().Submit(t.Context(), actors.NewTask{Type: "hello", ID: "a{b}c", Payload: hello{"Eve"}})
		require.ErrorIs(t, err, actors.ErrConflict)
		stop()
		require.ErrorIs(t, rt.Ready(), supervision.ErrNotRunning)
		require.ErrorIs(t, rt.Run(t.Context()), supervision.ErrStarted)
	})
}

func TestAPanicGoesOnFromTheLastCheckpoint(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var first, second atomic.Int32
		agents := actors.Agents{"a": actors.Func(func(c *actors.Context, _ actors.Raw) (int, error) {
			n, err := actors.Step(c, "first", func(actors.StepContext) (int, error) { return int(first.Add(1)), nil })
			if err != nil {
				return 0, err
			}
			if second.Add(1) <= 2 {
				panic("half way")
			}
			return n, nil
		})}
		rt, _ := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "t"})
		require.Equal(t, 1, result[int](t, task))
		require.Equal(t, int32(1), first.Load(), "the step ran once")
		record, err := task.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), record.Units[0].Ledger.Crashes)
		require.Equal(t, int64(2), rt.Stats().Crashes)
	})
}

func TestAnAgentThatAlwaysPanicsBecomesADeadLetter(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := actors.Agents{
			"bad": actors.Func(func(*actors.Context, actors.Raw) (int, error) { panic("always") }).
				With(actors.MaxCrashes(5), actors.RetryPolicy{Max: 10, Base: 10 * time.Millisecond, Cap: 20 * time.Millisecond}),
			"good": actors.Func(func(*actors.Context, actors.Raw) (int, error) { return 1, nil }),
		}
		cfg := b.config("n1", agents)
		rt, _ := start(t, cfg)
		bad := submit(t, rt.Client(), actors.NewTask{Type: "bad", ID: "bad", Payload: actors.Raw{Bytes: []byte("orig\x00inal")}})
		for i := range 20 {
			result[int](t, submit(t, rt.Client(), actors.NewTask{Type: "good", ID: fmt.Sprint("g", i)}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := actors.Result[int](ctx, bad)
		var failed *actors.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "budget_spent", failed.Reason)
		letters, err := cfg.Stream.Letters(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, letters[0].GetReason())
		var payload []byte
		for _, f := range letters[0].GetFields() {
			if string(f.GetName()) == "payload" {
				payload = f.GetValue()
			}
		}
		require.Equal(t, []byte("orig\x00inal"), payload, "the original bytes")
	})
}

func TestARetryComesBackWhenDue(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var runs atomic.Int32
		agents := actors.Agents{"a": actors.Func(func(c *actors.Context, _ actors.Raw) (int, error) {
			if runs.Add(1) <= 3 {
				return 0, actors.Retry(50*time.Millisecond, errors.New("not yet"))
			}
			return c.Info().Attempt, nil
		})}
		rt, _ := start(t, b.config("n1", agents))
		require.Equal(t, 4, result[int](t, submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "t"})))
	})
}

func TestADrainGivesRunningWorkToAnotherNodeAtOnceAndFree(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var starts atomic.Int32
		release := make(chan struct{})
		agents := actors.Agents{"a": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
			starts.Add(1)
			return actors.Step(c, "wait", func(s actors.StepContext) (string, error) {
				select {
				case <-release:
					return "done", nil
				case <-s.Done():
					return "", context.Cause(s)
				}
			})
		})}
		cfg := b.config("n1", agents)
		cfg.Grace = 100 * time.Millisecond
		cfg.Lease, cfg.Beat = time.Hour, 200*time.Millisecond // only the release can move it
		rt1, err := supervision.New(cfg)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- rt1.Run(context.Background()) }()
		task := submit(t, rt1.Client(), actors.NewTask{Type: "a", ID: "t"})
		require.Eventually(t, func() bool { return starts.Load() == 1 }, 10*time.Second, time.Millisecond)
		cfg2 := b.config("n2", agents)
		cfg2.Lease, cfg2.Beat = time.Hour, 200*time.Millisecond
		start(t, cfg2)
		require.NoError(t, rt1.Drain(t.Context()))
		require.NoError(t, <-ended)
		require.Eventually(t, func() bool { return starts.Load() == 2 }, 5*time.Second, time.Millisecond)
		close(release)
		require.Equal(t, "done", result[string](t, task))
		record, err := task.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, actors.Ledger{Interruptions: 1}, record.Units[0].Ledger)
	})
}

// One task, many entries: in order on one node and never two at a time, while others flow.
func TestEntriesOfOneTaskRunOneAtATimeInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var running, most atomic.Int32
		order := make(chan string, 200)
		agents := actors.Agents{"a": actors.Func(func(c *actors.Context, _ actors.Raw) (int, error) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			order <- c.Info().Unit
			return 1, nil
		})}
		cfg := b.config("n1", agents)
		rt, _ := start(t, cfg)
		var tasks []*actors.Task
		for i := range 50 {
			tasks = append(tasks, submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "one", Step: fmt.Sprint(i)}))
		}
		for _, task := range tasks {
			result[int](t, task)
		}
		require.Equal(t, int32(1), most.Load())
		for i := range 50 {
			require.Equal(t, fmt.Sprint(i), <-order)
		}
	})
}

// An effect that must not run twice and that nobody can be asked about: after a crash in its middle the task waits.
func TestAnUnknownEffectIsInDoubtAndNeverRunAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var sent atomic.Int32
		agents := actors.Agents{"mail": actors.Func(func(c *actors.Context, _ actors.Raw) (actors.None, error) {
			return actors.Step(c, "send", func(actors.StepContext) (actors.None, error) {
				sent.Add(1)
				panic("after the mail went out")
			}, actors.Unrepeatable())
		})}
		rt, stop := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "mail", ID: "t"})
		require.Eventually(t, func() bool {
			record, err := task.Status(t.Context())
			return err == nil && record.Units[0].State == messages.State_STATE_WAITING
		}, 10*time.Second, 5*time.Millisecond)
		record, err := task.Status(t.Context())
		require.NoError(t, err)
		require.Contains(t, record.Units[0].Error, "in doubt")
		stop()
		require.Equal(t, int32(1), sent.Load())
	})
}
