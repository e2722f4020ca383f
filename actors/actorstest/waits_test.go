package actorstest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
	"github.com/weir-run/weir/messages"
)

// Times are over in their order, whatever order they are asked for in, and take none.
func TestVirtualTime(t *testing.T) {
	var order []string
	h := func(c *actors.Context, _ request) (string, error) {
		order = nil
		return "", errors.Join(second(actors.Parallel(c, 4, []int{3, 1, 2}, func(c *actors.Context, n int) (string, error) {
			name := fmt.Sprint("after-", n)
			if err := actors.Sleep(c, name, time.Duration(n)*24*time.Hour); err != nil {
				return "", err
			}
			return actors.Step(c, name+"-step", func(actors.StepContext) (string, error) { return name, nil })
		}))...)
	}
	x := actorstest.New(t)
	began := time.Now()
	_, err := actorstest.Call(x, h, request{})
	require.NoError(t, err)
	require.Less(t, time.Since(began), 5*time.Second)
	for _, s := range x.Steps() {
		order = append(order, s.Name)
	}
	require.Equal(t, []string{"after-1", "after-1-step", "after-2", "after-2-step", "after-3", "after-3-step"}, order)
}

func second[T any](_ T, err error) []error { return []error{err} }

// The delay of a step's retry and a wait's time run on one clock.
func TestDelaysAndWaitsShareAClock(t *testing.T) {
	h := func(c *actors.Context, _ request) ([]string, error) {
		return actors.Parallel(c, 2, []string{"step", "wait"}, func(c *actors.Context, k string) (string, error) {
			if k == "wait" {
				_, err := actors.Await[string](c, k, 90*time.Minute)
				if errors.Is(err, actors.ErrTimeout) {
					return "late", nil
				}
				return "in time", err
			}
			return actors.Step(c, k, func(s actors.StepContext) (string, error) {
				if s.Attempt < 3 {
					return "", actors.Retry(time.Hour, errors.New("not yet"))
				}
				return "third", nil
			}, actors.Retries(5))
		})
	}
	got, err := actorstest.Call(actorstest.New(t), h, request{})
	require.NoError(t, err)
	require.Equal(t, []string{"third", "late"}, got)
}

// A wait without a timeout is really waited for; a message that comes then is found by the next call.
func TestWaitsForAnAnswer(t *testing.T) {
	h := func(c *actors.Context, _ request) (string, error) {
		return actors.Await[string](c, "ask", actors.NoTimeout)
	}
	x := actorstest.New(t)
	for range 2 {
		_, err := actorstest.Call(x, h, request{})
		require.ErrorIs(t, err, actors.ErrParked)
	}
	x.Send("ask", "yes")
	got, err := actorstest.Call(x, h, request{})
	require.NoError(t, err)
	require.Equal(t, "yes", got)
	require.Equal(t, messages.StepWaited, x.Steps()[0].Status)
}

// A step in doubt is waited for, whatever else there is to wait for.
func TestWaitsForAPerson(t *testing.T) {
	h := func(c *actors.Context, _ request) ([]string, error) {
		return actors.Parallel(c, 2, []string{"mail", "ask"}, func(c *actors.Context, k string) (string, error) {
			if k == "ask" {
				return actors.Await[string](c, k, time.Hour)
			}
			return actors.Step(c, k, func(actors.StepContext) (string, error) { return "", errors.New("reset") }, actors.Unrepeatable())
		})
	}
	_, err := actorstest.Call(actorstest.New(t), h, request{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.ErrorContains(t, err, "in doubt: step mail")
	_, err = actorstest.Call(actorstest.New(t, actorstest.Message("ask", "yes")), h, request{})
	require.ErrorIs(t, err, actors.ErrParked)
}

func TestLateMessage(t *testing.T) {
	f := &recorder{TB: t}
	x := actorstest.New(f)
	_, err := actorstest.Call(x, func(c *actors.Context, _ request) (string, error) { return actors.Await[string](c, "ask", time.Hour) }, request{})
	require.ErrorIs(t, err, actors.ErrTimeout)
	require.Empty(t, f.errs)
	x.Send("ask", "late")
	require.Len(t, f.errs, 1)
	require.Contains(t, f.errs[0], "answered already")
}

// What is given under a name that nothing asks for is a mistyped name.
func TestLeftovers(t *testing.T) {
	f := &recorder{TB: t}
	x := actorstest.New(f, actorstest.Message("aprove", "yes"), actorstest.Message("approve", "yes"), actorstest.Result("part", 1), actorstest.Failure("k", "down"))
	_, err := actorstest.Call(x, func(c *actors.Context, _ request) (string, error) {
		k := actors.Spawn[int](c, "k", actors.NewTask{Type: "a"})
		if _, err := actors.Join(c, "j", time.Hour, []*actors.Child[int]{k}, actors.KeepGoing()); err != nil {
			return "", err
		}
		return actors.Await[string](c, "approve", time.Hour)
	}, request{})
	require.NoError(t, err)
	require.Equal(t, []string{
		`message "aprove": no handler waited for one of that name, only for ["approve"]`,
		`result of child "part": no handler spawned one of that name, only ["k"]`,
	}, f.errs)
}

func TestUnstorableGifts(t *testing.T) {
	f := &recorder{TB: t}
	actorstest.New(f, actorstest.Message("m", make(chan int)), actorstest.Result("k", nan()))
	require.Len(t, f.errs, 2)
	require.Contains(t, f.errs[0], `message "m": misuse`)
	require.Contains(t, f.errs[1], `the result of child "k": misuse`)
}

// A wait, a child or an emit that does not follow from the message and the steps.
func TestWaitsOnReplay(t *testing.T) {
	calls := 0
	for name, c := range map[string]struct {
		h    func(*actors.Context, request) (string, error)
		says []string
	}{
		"a wait": {func(c *actors.Context, _ request) (string, error) {
			calls++
			return "", actors.Sleep(c, fmt.Sprint("s-", calls/3), time.Hour)
		}, []string{`did not call wait "s-0"`, `called wait "s-1"`, "from its checkpoints it failed: sleeps"}},
		"a spawn": {func(c *actors.Context, _ request) (string, error) {
			calls++
			actors.Spawn[int](c, fmt.Sprint("k-", calls), actors.NewTask{Type: "a"})
			return "", nil
		}, []string{`did not call spawn "k-1"`, `called spawn "k-2"`}},
		"an emit": {func(c *actors.Context, _ request) (string, error) {
			calls++
			return "", actors.Emit(c, "next", actors.NewTask{Type: "a", Payload: calls})
		}, []string{"the handler emitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			f := &recorder{TB: t}
			_, err := actorstest.Call(actorstest.New(f), c.h, request{})
			require.NoError(t, err)
			require.NotEmpty(t, f.errs)
			for i, e := range f.errs {
				require.Contains(t, e, c.says[i])
			}
		})
	}
}

// Forget is for steps: what a wait waited for cannot be lost.
func TestForgetAWait(t *testing.T) {
	f := &recorder{TB: t}
	x := actorstest.New(f, actorstest.Message("ask", "yes"))
	_, err := actorstest.Call(x, func(c *actors.Context, _ request) (string, error) { return actors.Await[string](c, "ask", time.Hour) }, request{})
	require.NoError(t, err)
	x.Forget("ask")
	require.Len(t, f.errs, 1)
	require.Contains(t, f.errs[0], "it is no step")
}

// A child that is not given an end is open: a join without a timeout waits for it.
func TestOpenChildren(t *testing.T) {
	h := func(timeout time.Duration) func(c *actors.Context, _ request) (int, error) {
		return func(c *actors.Context, _ request) (int, error) {
			kids := []*actors.Child[int]{
				actors.Spawn[int](c, "a", actors.NewTask{Type: "t"}), actors.Spawn[int](c, "b", actors.NewTask{Type: "t"}),
			}
			got, err := actors.Join(c, "j", timeout, kids)
			if errors.Is(err, actors.ErrTimeout) {
				return len(got), nil
			}
			return -1, err
		}
	}
	x := actorstest.New(t, actorstest.Result("a", 1))
	_, err := actorstest.Call(x, h(actors.NoTimeout), request{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Len(t, x.Spawned, 2)
	n, err := actorstest.Call(actorstest.New(t, actorstest.Result("a", 1)), h(time.Hour), request{})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = actorstest.Call(actorstest.New(t, actorstest.Failure("b", "out of paper")), h(time.Hour), request{})
	var failed *actors.ChildError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "out of paper", failed.Task.Detail)
	require.Equal(t, messages.State_STATE_FAILED, failed.Task.State)
}
