package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
	"github.com/weir-run/weir/messages"
)

// What happens to an author who does it wrong: each row of the table in actors/doc.go.

func quiet(t *testing.T) *actorstest.T { return actorstest.New(t, actorstest.TolerateMisuse()) }

var errBank = errors.New("connection reset")

// inDoubt parks: nobody knows whether the mail went out.
func inDoubt(c *actors.Context, name string) (string, error) {
	return actors.Step(c, name, func(actors.StepContext) (string, error) { return "", errBank }, actors.Unrepeatable())
}

// A swallowed ErrParked: the second effect does not run, the result is ignored, the author is told.
func TestSwallowedPark(t *testing.T) {
	x, paid := quiet(t), 0
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (string, error) {
		sent, _ := inDoubt(c, "mail")
		if sent == "" { // a zero value taken for "no"
			_, _ = actors.Step(c, "pay", func(actors.StepContext) (actors.None, error) { paid++; return nil, nil })
			return "declined", nil
		}
		return "granted", nil
	}, in{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Zero(t, paid)
	require.Len(t, x.Misuses(), 2)
	require.Contains(t, x.Misuses()[0], `step "pay" was called after ErrParked`)
	require.Contains(t, x.Misuses()[1], "the handler returned a result although it is parked")
}

// A model loop that feeds every error back to the model.
func TestToolErrorFedToModel(t *testing.T) {
	x, asked := quiet(t), 0
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (string, error) {
		talk := ""
		for i := range 3 {
			_, err := actors.Step(c, fmt.Sprint("model-", i), func(actors.StepContext) (string, error) { asked++; return "use tool", nil })
			if err != nil {
				return "", err
			}
			out, err := inDoubt(c, fmt.Sprint("tool-", i))
			if err != nil {
				out = "error: " + err.Error()
			}
			talk += out
		}
		return talk, nil
	}, in{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Equal(t, 1, asked)
}

// The same with an answer of a person that is still to come, taken for "no", and for a tool's error.
func TestSwallowedWait(t *testing.T) {
	x, paid := quiet(t), 0
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (string, error) {
		ok, _ := actors.Await[*messages.Entry](c, "approve", actors.NoTimeout)
		if ok.GetId() == "" {
			_, _ = actors.Step(c, "mail", func(actors.StepContext) (actors.None, error) { paid++; return nil, nil })
			return "declined", nil
		}
		return "granted", nil
	}, in{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Zero(t, paid)
	require.Len(t, x.Misuses(), 2)
	require.Contains(t, x.Misuses()[0], `step "mail" was called after ErrParked (waits for message "approve")`)

	x, asked := quiet(t), 0
	_, err = actorstest.Call(x, func(c *actors.Context, m in) (string, error) {
		talk := ""
		for i := range 3 {
			_, err := actors.Step(c, fmt.Sprint("model-", i), func(actors.StepContext) (string, error) { asked++; return "use tool", nil })
			if err != nil {
				return "", err
			}
			out, err := actors.Await[string](c, fmt.Sprint("human-", i), actors.NoTimeout)
			if err != nil {
				out = "error: " + err.Error()
			}
			talk += out
		}
		return talk, nil
	}, in{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Equal(t, 1, asked)
}

// A swallowed wait is told of although its time is over in the next activation.
func TestSwallowedWaitThatEnds(t *testing.T) {
	x := quiet(t)
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (string, error) {
		if _, err := actors.Await[string](c, "approve", time.Hour); err != nil {
			return "no", nil //nolint:nilerr // the trap
		}
		return "yes", nil
	}, in{})
	require.NoError(t, err)
	require.Len(t, x.Misuses(), 1)
	require.Contains(t, x.Misuses()[0], "the handler returned a result although it is parked")
}

// A branch that waits for a person does not disturb its siblings, and they do not run again when it is answered.
func TestParallelWaitsForAPerson(t *testing.T) {
	x, ran := quiet(t), 0
	h := func(c *actors.Context, m in) ([]string, error) {
		return actors.Parallel(c, 2, []string{"tool", "human"}, func(c *actors.Context, k string) (string, error) {
			if k == "human" {
				return actors.Await[string](c, "ask", actors.NoTimeout)
			}
			return actors.Step(c, "tool", func(actors.StepContext) (string, error) { ran++; return "ok", nil })
		})
	}
	_, err := actorstest.Call(x, h, in{})
	require.ErrorIs(t, err, actors.ErrParked)
	x.Send("ask", "yes")
	got, err := actorstest.Call(x, h, in{})
	require.NoError(t, err)
	require.Equal(t, []string{"ok", "yes"}, got)
	require.Equal(t, 1, ran)
	require.Empty(t, x.Misuses())
}

// Waits and children that cannot be meant: the unit fails, and the message names them.
func TestBadWaits(t *testing.T) {
	task := actors.NewTask{Type: "a"}
	var other *actors.Child[int]
	_, err := actorstest.Call(quiet(t), func(c *actors.Context, _ in) (int, error) { other = actors.Spawn[int](c, "k", task); return 0, nil }, in{})
	require.NoError(t, err)
	last := func(err error) (int, error) { return 0, err }
	for name, c := range map[string]struct {
		h    func(*actors.Context, in) (int, error)
		says string
	}{
		"timeout 0":          {func(c *actors.Context, _ in) (int, error) { return actors.Await[int](c, "a", 0) }, `await "a": a timeout of 0s`},
		"a negative timeout": {func(c *actors.Context, _ in) (int, error) { return actors.Await[int](c, "a", -1) }, `await "a": a timeout of -1ns`},
		"a name twice": {func(c *actors.Context, _ in) (int, error) {
			return last(errors.Join(actors.Sleep(c, "a", 0), actors.Sleep(c, "a", 0)))
		}, `sleep "a": used twice`},
		"one name, two kinds": {func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "a", task)
			return actors.Await[int](c, "a", time.Hour)
		}, `await "a": used twice`},
		"no name": {func(c *actors.Context, _ in) (int, error) { return actors.Await[int](c, "", time.Hour) }, `await "": a name must not be empty`},
		"a wait in a step": {func(c *actors.Context, _ in) (int, error) {
			return actors.Step(c, "s", func(actors.StepContext) (int, error) { return actors.Await[int](c, "a", time.Hour) })
		}, `await "a" during step "s"`},
		"a spawn in a step": {func(c *actors.Context, _ in) (int, error) {
			return actors.Step(c, "s", func(actors.StepContext) (int, error) { actors.Spawn[int](c, "a", task); return 1, nil })
		}, `spawn "a" during step "s"`},
		"a message of chan": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Await[chan int](c, "a", time.Hour)
			return last(err)
		}, `message "a": misuse: chan int is a chan`},
		"a lossy message": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Await[lossy](c, "a", time.Hour)
			return last(err)
		}, `lossy.n is unexported`},
		"no message":    {func(c *actors.Context, _ in) (int, error) { return last(actors.First(c, "f", time.Hour)) }, `first "f": it has no message`},
		"a nil message": {func(c *actors.Context, _ in) (int, error) { return last(actors.First(c, "f", time.Hour, nil)) }, `first "f": a nil message`},
		"a typed nil": {func(c *actors.Context, _ in) (int, error) {
			return last(actors.All(c, "f", time.Hour, (*actors.Message[int])(nil)))
		}, `all "f": a message that Expect has not made`},
		"a zero message": {func(c *actors.Context, _ in) (int, error) {
			return last(actors.All(c, "f", time.Hour, &actors.Message[int]{}))
		}, `a message that Expect has not made`},
		"message 0": {func(c *actors.Context, _ in) (int, error) {
			return last(actors.All(c, "f", time.Hour, actors.Expect[int]("m").Nth(0)))
		}, `message "m": Nth(0) must be at least 1`},
		"a nameless message": {func(c *actors.Context, _ in) (int, error) {
			return last(actors.All(c, "f", time.Hour, actors.Expect[int]("")))
		}, `message "": a name must not be empty`},
		"one message for two": {func(c *actors.Context, _ in) (int, error) {
			return last(actors.All(c, "f", time.Hour, actors.Expect[int]("m"), actors.Expect[int]("m")))
		}, `message "m" is there twice`},
		"sleep for ever":     {func(c *actors.Context, _ in) (int, error) { return last(actors.Sleep(c, "s", actors.NoTimeout)) }, `sleep "s": it would sleep for ever`},
		"a child of no type": {func(c *actors.Context, _ in) (int, error) { actors.Spawn[int](c, "k", actors.NewTask{}); return 0, nil }, `spawn "k": task "task-1/k": the type ""`},
		"its own child": {func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: "a", ID: "task-1"})
			return 0, nil
		}, `spawn "k": a task cannot be its own child`},
		"one child twice": {func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: "a", ID: "x"})
			actors.Spawn[int](c, "l", actors.NewTask{Type: "a", ID: "x"})
			return 0, nil
		}, `spawn "l": a second task "x"`},
		"an unstorable child": {func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: "a", Payload: make(chan int)})
			return 0, nil
		}, `spawn "k": task "task-1/k": payload`},
		"an unreadable result": {func(c *actors.Context, _ in) (int, error) { actors.Spawn[func()](c, "k", task); return 0, nil }, `spawn "k": result: misuse: func() is a func`},
		"a reserved field": {func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: "a", Fields: []actors.Field{{Name: "type"}}})
			return 0, nil
		}, `field "type" is written by`},
		"need 0": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join(c, "j", time.Hour, []*actors.Child[int]{actors.Spawn[int](c, "k", task)}, actors.Need(0))
			return last(err)
		}, `join "j": Need(0) of 1`},
		"need more": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join[int](c, "j", time.Hour, nil, actors.Need(1))
			return last(err)
		}, `join "j": Need(1) of 0`},
		"a nil option": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join[int](c, "j", time.Hour, nil, nil)
			return last(err)
		}, `join "j": a nil option`},
		"a nil child": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join(c, "j", time.Hour, []*actors.Child[int]{nil})
			return last(err)
		}, `a child that Spawn has not made`},
		"a zero child": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join(c, "j", time.Hour, []*actors.Child[int]{{}})
			return last(err)
		}, `a child that Spawn has not made`},
		"a child kept": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join(c, "j", time.Hour, []*actors.Child[int]{other})
			return last(err)
		}, `child "k" is of another activation`},
		"a child joined twice": {func(c *actors.Context, _ in) (int, error) {
			k := actors.Spawn[int](c, "k", task)
			_, err := actors.Join(c, "j", time.Hour, []*actors.Child[int]{k, k})
			return last(err)
		}, `child "k" is there twice`},
		"a join without time": {func(c *actors.Context, _ in) (int, error) {
			_, err := actors.Join[int](c, "j", 0, nil)
			return last(err)
		}, `join "j": a timeout of 0s`},
		"emit to nowhere":    {func(c *actors.Context, _ in) (int, error) { return last(actors.Emit(c, "", task)) }, `emit to "": the stream has no name`},
		"emit to a bad name": {func(c *actors.Context, _ in) (int, error) { return last(actors.Emit(c, "a{", task)) }, `emit to "a{": Names.Stream`},
		"emit no type":       {func(c *actors.Context, _ in) (int, error) { return last(actors.Emit(c, "s", actors.NewTask{})) }, `emit to "s": task "task-1/s": the type ""`},
		"emit twice": {func(c *actors.Context, _ in) (int, error) {
			return last(errors.Join(actors.Emit(c, "s", task), actors.Emit(c, "s", task)))
		}, `emit to "s": a second task "task-1/s"`},
		"a dropped refusal": {func(c *actors.Context, _ in) (int, error) { _ = actors.Emit(c, "s", actors.NewTask{}); return 1, nil }, `emit to "s"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := actorstest.Call(quiet(t), c.h, in{})
			require.ErrorIs(t, err, actors.ErrMisuse)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A route that this node knows is checked before the child is spawned; one that it does not know may be another node's.
func TestSpawnOfAnUnknownHandler(t *testing.T) {
	for typ, want := range map[string]messages.Outcome{"refund/amend": completed, "refund/nope": refused, "elsewhere/any": completed} {
		w := newWorld(func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: typ})
			return 0, nil
		})
		w.job.Agents = agents()
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, want, v.Outcome, typ)
		if want == refused {
			require.Equal(t, messages.Reason_REASON_MISUSE, v.Reason)
			require.Contains(t, v.Error, `spawn "k": the agent of "refund/nope" has no handler "nope"`)
		}
	}
}

func TestNameTwice(t *testing.T) {
	x := quiet(t)
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (int, error) {
		n := 0
		for range 3 {
			v, _ := actors.Step(c, "same", func(actors.StepContext) (int, error) { return 1, nil })
			n += v
		}
		return n, nil
	}, in{})
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.ErrorContains(t, err, `step "same": used twice in one activation`)
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "\xff", string(make([]byte, 257))} {
		x := quiet(t)
		_, err := actorstest.Call(x, func(c *actors.Context, m in) (int, error) {
			return actors.Step(c, name, func(actors.StepContext) (int, error) { return 1, nil })
		}, in{})
		require.ErrorIs(t, err, actors.ErrMisuse)
	}
}

func TestNestedStep(t *testing.T) {
	x := quiet(t)
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (int, error) {
		return actors.Step(c, "outer", func(actors.StepContext) (int, error) {
			return actors.Step(c, "inner", func(actors.StepContext) (int, error) { return 1, nil })
		}, actors.Retries(0))
	}, in{})
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.ErrorContains(t, err, `step "inner" during step "outer"`)
}

// Even when the author drops the inner error.
func TestNestedStepSwallowed(t *testing.T) {
	x := quiet(t)
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (int, error) {
		return actors.Step(c, "outer", func(actors.StepContext) (int, error) {
			_, _ = actors.Step(c, "inner", func(actors.StepContext) (int, error) { return 1, nil })
			return 2, nil
		})
	}, in{})
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.Empty(t, x.Steps(), "nothing may be kept once the latch is set")
}

// Two goroutines with one Context.
func TestTwoGoroutines(t *testing.T) {
	x := quiet(t)
	_, err := actorstest.Call(x, func(c *actors.Context, m in) (int, error) {
		var wg sync.WaitGroup
		var errs [2]error
		running, met := make(chan struct{}, 2), make(chan struct{})
		for i := range 2 {
			wg.Go(func() {
				_, errs[i] = actors.Step(c, fmt.Sprint("s", i), func(actors.StepContext) (int, error) {
					running <- struct{}{}
					<-met
					return 1, nil
				})
				if errors.Is(errs[i], actors.ErrMisuse) {
					select {
					case <-met:
					default:
						close(met)
					}
				}
			})
		}
		<-running
		wg.Wait()
		return 0, errors.Join(errs[:]...)
	}, in{})
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.ErrorContains(t, err, "Parallel")
}

// A Context that is kept past its handler.
func TestContextOutlivesHandler(t *testing.T) {
	var kept *actors.Context
	_, err := actorstest.Call(quiet(t), func(c *actors.Context, m in) (int, error) { kept = c; return 1, nil }, in{})
	require.NoError(t, err)
	_, err = actors.Step(kept, "late", func(actors.StepContext) (int, error) { return 1, nil })
	require.ErrorIs(t, err, actors.ErrMisuse)
}

// recorder is a test that only notes its failures.
type recorder struct {
	testing.TB
	errs []string
}

func (r *recorder) Errorf(f string, a ...any) { r.errs = append(r.errs, fmt.Sprintf(f, a...)) }

// State that leaves a step by a captured variable: right on the first run, zero on the next.
func TestCapturedVariable(t *testing.T) {
	f := &recorder{TB: t}
	x := actorstest.New(f)
	got, err := actorstest.Call(x, func(c *actors.Context, m in) (int, error) {
		n := 0
		_, err := actors.Step(c, "count", func(actors.StepContext) (actors.None, error) { n = 42; return nil, nil })
		return n, err
	}, in{})
	require.NoError(t, err)
	require.Equal(t, 42, got)
	require.Len(t, f.errs, 1)
	require.Contains(t, f.errs[0], "gave 42, but 0")
}

// A way through the handler that the message and the steps do not decide.
func TestOtherWayOnReplay(t *testing.T) {
	f, calls := &recorder{TB: t}, 0
	_, err := actorstest.Call(actorstest.New(f), func(c *actors.Context, m in) (int, error) {
		calls++
		return actors.Step(c, fmt.Sprint("step-", calls), func(actors.StepContext) (int, error) { return 1, nil })
	}, in{})
	require.NoError(t, err)
	require.Len(t, f.errs, 2)
	require.Contains(t, f.errs[0], `did not call step "step-1"`)
	require.Contains(t, f.errs[1], `called step "step-2"`)
}

// Misuse fails a test that does not expect it.
func TestMisuseFailsTheTest(t *testing.T) {
	f := &recorder{TB: t}
	_, err := actorstest.Call(actorstest.New(f), func(c *actors.Context, m in) (int, error) {
		_, _ = inDoubt(c, "mail")
		return 1, nil
	}, in{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Len(t, f.errs, 1)
	require.Contains(t, f.errs[0], "misuse: the handler returned a result although it is parked")
}

type lossy struct {
	Text string
	n    int
}

// A field that JSON drops is gone on the first run already.
func TestLossyResult(t *testing.T) {
	n, err := actorstest.Call(quiet(t), func(c *actors.Context, m in) (int, error) {
		v, err := actors.Step(c, "x", func(actors.StepContext) (lossy, error) { return lossy{"a", 7}, nil })
		return v.n, err
	}, in{})
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestVerifyOfAnotherType(t *testing.T) {
	_, err := actorstest.Call(quiet(t), func(c *actors.Context, m in) (string, error) {
		return actors.Step(c, "pay", func(actors.StepContext) (string, error) { return "id", nil },
			actors.Verify(func(context.Context, string) (int, bool, error) { return 0, false, nil }))
	}, in{})
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.ErrorContains(t, err, "Verify finds int where the step gives string")
}

func TestBadStepOptions(t *testing.T) {
	for name, opts := range map[string][]actors.StepOption{
		"negative retries": {actors.Retries(-1)},
		"no time":          {actors.Timeout(0)},
		"nil":              {nil},
		"cap below base":   {actors.RetryPolicy{Base: time.Hour, Cap: time.Minute}},
		"both":             {actors.Unrepeatable(), actors.Verify(findNothing)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := actorstest.Call(quiet(t), func(c *actors.Context, m in) (int, error) {
				return actors.Step(c, "x", func(actors.StepContext) (int, error) { return 1, nil }, opts...)
			}, in{})
			require.ErrorIs(t, err, actors.ErrMisuse)
		})
	}
}

func findNothing(context.Context, string) (int, bool, error) { return 0, false, nil }

func TestUnstorable(t *testing.T) {
	for name, a := range map[string]actors.Agent{
		"protobuf by value": actors.Func[messages.Entry, int](nil),
		"chan":              actors.Func(func(c *actors.Context, m chan int) (int, error) { return 0, nil }),
		"interface":         actors.Func(func(c *actors.Context, m in) (error, error) { return nil, nil }),
		"no exported field": actors.Func(func(c *actors.Context, m struct{ x int }) (int, error) { return 0, nil }),
		"one dropped field": actors.Func(func(c *actors.Context, m in) (lossy, error) { return lossy{}, nil }),
		"func inside":       actors.Func(func(c *actors.Context, m struct{ F []func() }) (int, error) { return 0, nil }),
		"protobuf inside": actors.Func(func(c *actors.Context, m struct {
			D map[string]*durationpb.Duration
		},
		) (int, error) {
			return 0, nil
		}),
		"protobuf embedded":     actors.Func(func(c *actors.Context, m *struct{ *messages.Entry }) (int, error) { return 0, nil }),
		"interface inside":      actors.Func(func(c *actors.Context, m struct{ E fmt.Stringer }) (int, error) { return 0, nil }),
		"struct keys":           actors.Func(func(c *actors.Context, m map[in]int) (int, error) { return 0, nil }),
		"no function":           actors.Func[in, int](nil),
		"zero":                  {},
		"no handler":            actors.Of(func() *in { return &in{} }),
		"no producer":           actors.Of(nil, actors.On(func(*in, *actors.Context, in) (int, error) { return 0, nil })),
		"producer of nil":       actors.Of(func() *in { return nil }, actors.On(func(*in, *actors.Context, in) (int, error) { return 0, nil })),
		"producer that panics":  actors.Of(func() *in { panic("no database") }, actors.On(func(*in, *actors.Context, in) (int, error) { return 0, nil })),
		"a slash in a name":     actors.Of(func() *in { return &in{} }, actors.On(func(*in, *actors.Context, in) (int, error) { return 0, nil }).As("a/b")),
		"impossible option":     actors.Func(func(*actors.Context, in) (int, error) { return 0, nil }).With(actors.MaxCrashes(-1)),
		"another one":           actors.Func(func(*actors.Context, in) (int, error) { return 0, nil }).With(actors.RetryPolicy{Max: -1}),
		"nil option":            actors.Func(func(*actors.Context, in) (int, error) { return 0, nil }).With(nil),
		"external without ware": actors.External(nil),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, a.Err(), actors.ErrMisuse)
			require.ErrorIs(t, actors.Agents{"a": a}.Validate(), actors.ErrMisuse)
		})
	}
	require.ErrorContains(t, actors.Func[messages.Entry, int](nil).Err(), "protobuf message by value: use *messages.Entry")
	shared := &in{}
	a := actors.Of(func() *in { return shared }, actors.On(func(*in, *actors.Context, in) (int, error) { return 0, nil }),
		actors.On(func(*in, *actors.Context, *messages.Entry) (int, error) { return 0, nil }))
	require.ErrorContains(t, a.Err(), "new value each time")
	require.ErrorContains(t, a.Err(), "tell them apart with As")
}

func TestStorable(t *testing.T) {
	type node struct {
		Next  *node
		When  time.Time
		Any   map[string]any
		Bytes []byte
		skip  func() `json:"-"`
	}
	_ = node{skip: nil}
	for name, a := range map[string]actors.Agent{
		"recursive":  actors.Func(func(*actors.Context, *node) (node, error) { return node{}, nil }),
		"protobuf":   actors.Func(func(*actors.Context, *messages.Entry) (*messages.Task, error) { return nil, nil }),
		"none":       actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, nil }),
		"raw":        actors.Func(func(*actors.Context, actors.Raw) (actors.Raw, error) { return actors.Raw{}, nil }),
		"slices":     actors.Func(func(*actors.Context, []string) (map[int][]bool, error) { return nil, nil }),
		"empty":      actors.Func(func(*actors.Context, struct{}) (string, error) { return "", nil }),
		"an outside": actors.External(1),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, a.Err())
			require.NoError(t, actors.Agents{"a": a}.Validate())
		})
	}
	require.Error(t, actors.Agents{}.Validate())
	require.Error(t, actors.Agents{"a/b": actors.External(1)}.Validate())
}

// A value that its type does not tell about: an error at that step, before anything waits on it.
func TestUnstorableValue(t *testing.T) {
	_, err := actorstest.Call(quiet(t), func(c *actors.Context, m in) (float64, error) {
		return actors.Step(c, "x", func(actors.StepContext) (float64, error) { return nan(), nil })
	}, in{})
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.ErrorContains(t, err, `step "x"`)
}

func nan() float64 { z := 0.0; return z / z }

// Keys of different tasks, units and steps never meet.
func TestKeys(t *testing.T) {
	require.NotEqual(t, actors.Key("a:b", "", "c"), actors.Key("a", "", "b:c"))
	require.NotEqual(t, actors.Key("a", "b", "c"), actors.Key("a", "", "b:c"))
}

// A host's own slog carries the step, also through derived contexts.
func TestSlog(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(actors.SlogHandler(slog.NewTextHandler(&b, nil))).With("host", "h")
	_, err := actorstest.Call(quiet(t), func(c *actors.Context, m in) (int, error) {
		log.InfoContext(c.Context(), "outside")
		return actors.Step(c, "s", func(s actors.StepContext) (int, error) {
			ctx, cancel := context.WithTimeout(s, time.Minute)
			defer cancel()
			log.InfoContext(ctx, "deep inside")
			got, ok := actors.StepFrom(ctx)
			require.True(t, ok)
			require.Equal(t, "task-1:s", got.Key)
			return 1, nil
		})
	}, in{})
	require.NoError(t, err)
	require.Contains(t, b.String(), "step_key=task-1:s")
	require.Contains(t, b.String(), `msg=outside host=h task_id=task-1`)
	_, ok := actors.StepFrom(t.Context())
	require.False(t, ok)
}

func TestNilErrors(t *testing.T) {
	require.Error(t, actors.Reject(nil))
	require.Error(t, actors.Retry(0, nil))
	require.Error(t, actors.RateLimited(0, nil))
	require.NoError(t, actors.FromHTTP(nil, nil))
	for _, none := range []error{actors.Reject(nil), actors.Retry(0, nil), actors.RateLimited(0, nil)} {
		_, err := actorstest.Call(quiet(t), func(*actors.Context, in) (int, error) { return 1, none }, in{})
		require.ErrorIs(t, err, actors.ErrMisuse)
		_, err = actorstest.Call(quiet(t), func(c *actors.Context, _ in) (int, error) {
			return actors.Step(c, "s", func(actors.StepContext) (int, error) { return 0, none }, actors.Retries(3))
		}, in{})
		require.ErrorIs(t, err, actors.ErrMisuse)
	}
}

// A model's error with Retry-After, wrapped, is still seen.
func TestHTTP(t *testing.T) {
	resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"7"}}}
	err := fmt.Errorf("chat: %w", actors.FromHTTP(resp, errors.New("slow down")))
	require.ErrorContains(t, err, "rate limited for 7s")
	require.ErrorContains(t, actors.FromHTTP(&http.Response{StatusCode: 400}, errors.New("bad args")), "rejected")
	require.ErrorContains(t, actors.FromHTTP(&http.Response{StatusCode: 503}, nil), "retry: HTTP 503 Service Unavailable")
	require.NoError(t, actors.FromHTTP(&http.Response{StatusCode: 200}, nil))
	require.ErrorIs(t, actors.FromHTTP(&http.Response{StatusCode: 302}, errBank), errBank)
	for header, want := range map[string]string{
		"1.5":  "rate limited for 1.5s",
		"-3":   "rate limited: x",
		"NaN":  "rate limited: x",
		"1e99": "rate limited for 24h0m0s",
		"soon": "rate limited: x",
		"":     "rate limited: x",
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): "rate limited: x",
	} {
		got := actors.FromHTTP(&http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {header}}}, errors.New("x"))
		require.ErrorContains(t, got, want, header)
	}
	ms := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After-Ms": {"250"}, "Retry-After": {"1"}}}
	require.ErrorContains(t, actors.FromHTTP(ms, errBank), "rate limited for 250ms")
}
