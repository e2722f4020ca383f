package actors_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
	"github.com/weir-run/weir/messages"
)

func TestParallel(t *testing.T) {
	var running, most atomic.Int32
	w := newWorld(func(c *actors.Context, _ in) ([]int, error) {
		return actors.Parallel(c, 3, []int{0, 1, 2, 3, 4, 5, 6, 7}, func(c *actors.Context, i int) (int, error) {
			return actors.Step(c, fmt.Sprint("tool-", i), func(actors.StepContext) (int, error) {
				n := running.Add(1)
				defer running.Add(-1)
				for {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				runtime.Gosched()
				return i * i, nil
			})
		})
	})
	for range 2 {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, completed, v.Outcome, v.Error)
		require.JSONEq(t, `[0,1,4,9,16,25,36,49]`, string(v.Result))
	}
	require.LessOrEqual(t, most.Load(), int32(3))
	require.Len(t, w.store.writes, 8)
	require.Equal(t, 1, w.store.loads)
}

// A branch that parks does not disturb its siblings, and they do not run again.
func TestParallelParks(t *testing.T) {
	ran := 0
	w := newWorld(func(c *actors.Context, _ in) ([]string, error) {
		return actors.Parallel(c, 2, []string{"slow", "later", "tool"}, func(c *actors.Context, k string) (string, error) {
			if k == "tool" {
				return actors.Step(c, "tool", func(actors.StepContext) (string, error) { ran++; return "ok", nil })
			}
			return actors.Step(c, k, func(s actors.StepContext) (string, error) {
				if s.Attempt == 1 {
					return "", actors.Retry(map[string]time.Duration{"slow": time.Minute, "later": time.Hour}[k], errBank)
				}
				return k, nil
			}, actors.Retries(1))
		})
	})
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome)
	require.Equal(t, time.Minute, v.After, "the earliest")
	require.Empty(t, v.Misuses)
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, completed, v.Outcome)
	require.JSONEq(t, `["slow","later","ok"]`, string(v.Result))
	require.Equal(t, 1, ran)
	require.Empty(t, v.Misuses)
}

// One in doubt waits for a person only when no sibling is due by itself.
func TestParallelInDoubt(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) ([]string, error) {
		return actors.Parallel(c, 2, []string{"mail", "model"}, func(c *actors.Context, k string) (string, error) {
			if k == "mail" {
				return inDoubt(c, k)
			}
			return actors.Step(c, k, func(s actors.StepContext) (string, error) {
				if s.Attempt == 1 {
					return "", actors.Retry(time.Minute, errBank)
				}
				return "", nil
			}, actors.Retries(1))
		})
	})
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome)
	require.Equal(t, time.Minute, v.After)
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, parked, v.Outcome)
	require.Contains(t, v.Error, "in doubt: step mail")
}

func TestParallelErrors(t *testing.T) {
	other := errors.New("other")
	for name, c := range map[string]struct {
		errs    []error
		outcome messages.Outcome
		is      []error
	}{
		"one":             {[]error{nil, errBank}, retry, []error{errBank}},
		"two":             {[]error{other, nil, errBank}, retry, []error{errBank, other}},
		"one is final":    {[]error{errBank, actors.Reject(other)}, refused, []error{errBank, other}},
		"none":            {[]error{nil, nil}, completed, nil},
		"no element":      {nil, completed, nil},
		"all are limited": {[]error{actors.RateLimited(0, other)}, retry, []error{other}},
	} {
		t.Run(name, func(t *testing.T) {
			var finished atomic.Int32
			v := newWorld(func(cx *actors.Context, _ in) ([]int, error) {
				return actors.Parallel(cx, 2, c.errs, func(_ *actors.Context, err error) (int, error) { finished.Add(1); return 0, err })
			}).activate(t.Context(), `{}`)
			require.Equal(t, c.outcome, v.Outcome)
			require.EqualValues(t, len(c.errs), finished.Load(), "all branches finish")
			for _, e := range c.errs {
				if e != nil {
					require.ErrorIs(t, v.Err, e)
				}
			}
		})
	}
}

// A branch that failed for good does not end a sibling that waits; one that a retry can heal does.
func TestParallelParkedAndFailed(t *testing.T) {
	h := func(err error) func(c *actors.Context, _ in) ([]string, error) {
		return func(c *actors.Context, _ in) ([]string, error) {
			return actors.Parallel(c, 2, []string{"mail", "model"}, func(c *actors.Context, k string) (string, error) {
				if k == "mail" {
					return inDoubt(c, k)
				}
				return actors.Step(c, k, func(actors.StepContext) (string, error) { return "", err })
			})
		}
	}
	require.Equal(t, parked, newWorld(h(actors.Reject(errBank))).activate(t.Context(), `{}`).Outcome)
	v := newWorld(h(errBank)).activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome)
	require.Equal(t, messages.Charge_CHARGE_FAILURE, v.Charge)
}

func TestParallelPanics(t *testing.T) {
	var finished atomic.Int32
	w := newWorld(func(c *actors.Context, _ in) ([]int, error) {
		return actors.Parallel(c, 2, []int{0, 1, 2}, func(_ *actors.Context, i int) (int, error) {
			if i == 1 {
				explode()
			}
			finished.Add(1)
			return i, nil
		})
	})
	defer func() {
		p, ok := recover().(*actors.Panic)
		require.True(t, ok)
		require.Equal(t, "boom", p.Value)
		require.Contains(t, string(p.Stack), "actors_test.explode", "the branch's stack")
		require.EqualValues(t, 2, finished.Load())
	}()
	w.activate(t.Context(), `{}`)
}

func explode() { panic("boom") }

func TestParallelGoexit(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) ([]int, error) {
		return actors.Parallel(c, 1, []int{0, 1}, func(*actors.Context, int) (int, error) { runtime.Goexit(); return 0, nil })
	})
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() { w.activate(t.Context(), `{}`); returned = true })
	wg.Wait()
	require.False(t, returned)
}

// A branch that uses the handler's Context instead of its own, and other ways to hold it wrong.
func TestParallelMisuse(t *testing.T) {
	for name, h := range map[string]func(*actors.Context, in) ([]int, error){
		"the outer Context": func(c *actors.Context, _ in) ([]int, error) {
			return actors.Parallel(c, 2, []int{0}, func(*actors.Context, int) (int, error) {
				return actors.Step(c, "s", func(actors.StepContext) (int, error) { return 0, nil })
			})
		},
		"one name in two branches": func(c *actors.Context, _ in) ([]int, error) {
			return actors.Parallel(c, 2, []int{0, 1}, func(c *actors.Context, _ int) (int, error) {
				return actors.Step(c, "s", func(actors.StepContext) (int, error) { return 0, nil })
			})
		},
		"no limit": func(c *actors.Context, _ in) ([]int, error) {
			return actors.Parallel(c, 0, []int{0}, func(*actors.Context, int) (int, error) { return 0, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := quiet(t)
			_, err := actorstest.Call(x, h, in{})
			require.ErrorIs(t, err, actors.ErrMisuse)
			require.NotEmpty(t, x.Misuses())
		})
	}
}

func TestParallelNested(t *testing.T) {
	got, err := actorstest.Call(actorstest.New(t), func(c *actors.Context, _ in) ([][]string, error) {
		return actors.Parallel(c, 2, []string{"a", "b"}, func(c *actors.Context, k string) ([]string, error) {
			return actors.Parallel(c, 2, []string{"1", "2"}, func(c *actors.Context, n string) (string, error) {
				return actors.Step(c, k+n, func(s actors.StepContext) (string, error) { return s.Name, nil })
			})
		})
	}, in{})
	require.NoError(t, err)
	require.Equal(t, [][]string{{"a1", "a2"}, {"b1", "b2"}}, got)
}
