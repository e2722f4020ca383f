package actors_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

const (
	completed = messages.Outcome_OUTCOME_COMPLETED
	retry     = messages.Outcome_OUTCOME_RETRY
	refused   = messages.Outcome_OUTCOME_REJECTED
	parked    = messages.Outcome_OUTCOME_PARKED
)

// one is a handler with a single step "s".
func one(f func(actors.StepContext) (string, error), opts ...actors.StepOption) func(*actors.Context, in) (string, error) {
	return func(c *actors.Context, _ in) (string, error) { return actors.Step(c, "s", f, opts...) }
}

func TestStepRunsOnce(t *testing.T) {
	ran := 0
	w := newWorld(one(func(s actors.StepContext) (string, error) {
		ran++
		require.Equal(t, "t-1:s", s.Key)
		require.Equal(t, 1, s.Attempt)
		return "done", nil
	}))
	for range 3 {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, completed, v.Outcome)
		require.JSONEq(t, `"done"`, string(v.Result))
		require.Equal(t, "application/json", v.ContentType)
	}
	require.Equal(t, 1, ran)
	require.Equal(t, []messages.StepStatus{messages.StepDone}, w.store.statuses("s"), "a plain step writes no intent")
	require.Equal(t, 2, w.store.loads, "checkpoints are read once an activation, and not when there are none")
}

// Protobuf, Raw and nothing keep what they are.
func TestStepResults(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (*messages.Entry, error) {
		e, err := actors.Step(c, "proto", func(actors.StepContext) (*messages.Entry, error) { return &messages.Entry{Id: "1-1"}, nil })
		if err != nil {
			return nil, err
		}
		none, err := actors.Step(c, "nil", func(actors.StepContext) (*messages.Entry, error) { return nil, nil })
		if err != nil || none != nil {
			return nil, errors.New("a nil message came back as something else")
		}
		raw, err := actors.Step(c, "raw", func(actors.StepContext) (actors.Raw, error) {
			return actors.Raw{ContentType: "x/y", Bytes: []byte{0, 255}}, nil
		})
		if err != nil || raw.ContentType != "x/y" || string(raw.Bytes) != "\x00\xff" {
			return nil, errors.New("raw bytes came back as something else")
		}
		return e, nil
	})
	for range 2 {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, completed, v.Outcome, v.Error)
		require.Equal(t, "application/protobuf; proto=weir.v1.Entry", v.ContentType)
		e, err := actors.Decode[*messages.Entry](v.ContentType, v.Result)
		require.NoError(t, err)
		require.Equal(t, "1-1", e.GetId())
	}
}

// An error of a step without retries of its own is the task's.
func TestStepErrorIsTheTasks(t *testing.T) {
	ran := 0
	w := newWorld(one(func(actors.StepContext) (string, error) { ran++; return "", errBank }))
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome)
	require.Equal(t, messages.Charge_CHARGE_FAILURE, v.Charge)
	require.ErrorIs(t, v.Err, errBank)
	require.Equal(t, time.Second, v.After)
	require.Equal(t, 1, ran)
	require.Empty(t, w.store.writes)
}

func TestRetriesInPlaceAndParked(t *testing.T) {
	var attempts []int
	var waits []time.Duration
	w := newWorld(one(func(s actors.StepContext) (string, error) {
		attempts = append(attempts, s.Attempt)
		if s.Attempt < 4 {
			return "", errBank
		}
		return "at last", nil
	}, actors.RetryPolicy{Max: 5, Base: 500 * time.Millisecond}))
	w.job.Wait = func(_ context.Context, d time.Duration) { waits = append(waits, d) }

	v := w.activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome)
	require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge, "the step counts for itself")
	require.Equal(t, time.Second, v.After)
	require.ErrorIs(t, v.Err, actors.ErrParked)
	require.Equal(t, []time.Duration{500 * time.Millisecond}, waits)

	v = w.activate(t.Context(), `{}`)
	require.Equal(t, 2*time.Second, v.After)
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, completed, v.Outcome)
	require.Equal(t, []int{1, 2, 3, 4}, attempts)
	require.Equal(t, []messages.StepStatus{messages.StepRetrying, messages.StepRetrying, messages.StepDone}, w.store.statuses("s"))
	require.Equal(t, 4, w.store.step("s").Attempts)
}

func TestSpentStepIsFinal(t *testing.T) {
	ran := 0
	w := newWorld(one(func(actors.StepContext) (string, error) { ran++; return "", errBank }, actors.RetryPolicy{Max: 2, Base: time.Millisecond}))
	for range 2 { // the same answer again, without running
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, refused, v.Outcome)
		require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, v.Reason)
		var gone *actors.StepError
		require.ErrorAs(t, v.Err, &gone)
		require.Equal(t, 3, gone.Attempts)
		require.EqualError(t, gone, `step "s" failed after 3 attempts: connection reset`)
		require.Equal(t, 3, ran)
	}
}

func TestStepRejected(t *testing.T) {
	for name, opts := range map[string][]actors.StepOption{"plain": nil, "with retries": {actors.Retries(5)}, "unrepeatable": {actors.Unrepeatable()}} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			w := newWorld(one(func(actors.StepContext) (string, error) { ran++; return "", actors.Reject(errBank) }, opts...))
			for range 2 {
				v := w.activate(t.Context(), `{}`)
				require.Equal(t, refused, v.Outcome)
				require.Equal(t, messages.Reason_REASON_REJECTED, v.Reason)
				require.Equal(t, 1, ran)
			}
		})
	}
}

// A handler that can do without the step goes on, and goes the same way again after a crash.
func TestSpentStepHandled(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		_, err := actors.Step(c, "gpt", func(actors.StepContext) (string, error) { return "", errBank }, actors.Retries(0))
		if gone, ok := errors.AsType[*actors.StepError](err); ok {
			return "fallback: " + gone.Err.Error(), nil
		}
		return "", err
	})
	for range 2 {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, completed, v.Outcome)
		require.JSONEq(t, `"fallback: connection reset"`, string(v.Result))
	}
}

func TestTooLarge(t *testing.T) {
	ran := 0
	w := newWorld(one(func(actors.StepContext) (string, error) { ran++; return strings.Repeat("x", 100), nil }, actors.Retries(9)))
	w.job.MaxResult = 50
	for range 2 {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, refused, v.Outcome)
		require.Equal(t, messages.Reason_REASON_TOO_LARGE, v.Reason)
		require.ErrorIs(t, v.Err, actors.ErrTooLarge)
		require.ErrorContains(t, v.Err, "102 bytes where 50 are allowed")
	}
	require.Equal(t, 1, ran)

	w = newWorld(func(*actors.Context, in) (string, error) { return strings.Repeat("x", 100), nil })
	w.job.MaxResult = 50
	require.Equal(t, messages.Reason_REASON_TOO_LARGE, w.activate(t.Context(), `{}`).Reason)
}

// bank is an effect that a key can be looked up at.
type bank struct {
	paid  map[string]int
	finds int
	blind bool // it cannot be asked
}

func (b *bank) pay(s actors.StepContext) (string, error) { b.paid[s.Key]++; return "r1", nil }

func (b *bank) find(_ context.Context, key string) (string, bool, error) {
	b.finds++
	if b.blind {
		return "", false, errors.New("bank is closed")
	}
	return "r1", b.paid[key] > 0, nil
}

// The crash between effect and checkpoint, and the one before the effect.
func TestVerifyAfterCrash(t *testing.T) {
	for name, c := range map[string]struct {
		happened, finds, paid int
		kept                  messages.StepStatus
	}{"after": {1, 1, 1, messages.StepFound}, "before": {0, 1, 1, messages.StepDone}} {
		t.Run(name, func(t *testing.T) {
			b := &bank{paid: map[string]int{"t-1:s": c.happened}}
			w := newWorld(one(b.pay, actors.Verify(b.find)))
			w.store.preset(messages.Step{Name: "s", Status: messages.StepIntent, Attempts: 1})
			for range 2 { // what was found is a checkpoint like any other: neither looked up nor run again
				v := w.activate(t.Context(), `{}`)
				require.Equal(t, completed, v.Outcome)
				require.JSONEq(t, `"r1"`, string(v.Result))
				require.Equal(t, c.paid, b.paid["t-1:s"])
				require.Equal(t, c.finds, b.finds)
				require.Equal(t, c.kept, w.store.step("s").Status)
			}
		})
	}
}

// An intent is on record before the effect begins, also before a second try.
func TestIntentPrecedesEffect(t *testing.T) {
	b := &bank{paid: map[string]int{}}
	var w *world
	tries := 0
	w = newWorld(one(func(s actors.StepContext) (string, error) {
		tries++
		require.Equal(t, messages.StepIntent, w.store.step("s").Status)
		if tries < 3 {
			return "", actors.Retry(time.Minute, errBank)
		}
		return b.pay(s)
	}, actors.Verify(b.find), actors.Retries(5)))
	for range 2 {
		require.Equal(t, time.Minute, w.activate(t.Context(), `{}`).After)
	}
	require.Equal(t, completed, w.activate(t.Context(), `{}`).Outcome)
	require.Equal(t, []messages.StepStatus{
		messages.StepIntent, messages.StepRetrying, messages.StepIntent, messages.StepRetrying,
		messages.StepIntent, messages.StepDone,
	}, w.store.statuses("s"))
}

// An error may hide an effect that took place: it is looked up before the next try, and before giving up.
func TestVerifyAfterError(t *testing.T) {
	for name, opt := range map[string]actors.StepOption{"next try": actors.RetryPolicy{Max: 3, Base: time.Millisecond}, "last try": actors.Retries(0)} {
		t.Run(name, func(t *testing.T) {
			b := &bank{paid: map[string]int{}}
			w := newWorld(one(func(s actors.StepContext) (string, error) {
				b.paid[s.Key]++
				return "", errBank
			}, actors.Verify(b.find), opt))
			v := w.activate(t.Context(), `{}`)
			require.Equal(t, completed, v.Outcome, v.Error)
			require.Equal(t, 1, b.paid["t-1:s"])
			require.Equal(t, messages.StepFound, w.store.step("s").Status)
			require.Equal(t, 1, w.store.step("s").Attempts)
		})
	}
}

// Nobody can say whether the last try had its effect: a person has to.
func TestVerifyCannotTell(t *testing.T) {
	b := &bank{paid: map[string]int{}, blind: true}
	w := newWorld(one(func(actors.StepContext) (string, error) { return "", errBank }, actors.Verify(b.find), actors.Retries(0)))
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, parked, v.Outcome)
	require.Contains(t, v.Error, "in doubt: step s")
}

func TestUnrepeatable(t *testing.T) {
	t.Run("crash", func(t *testing.T) {
		ran := 0
		w := newWorld(one(func(actors.StepContext) (string, error) { ran++; return "", nil }, actors.Unrepeatable()))
		w.store.preset(messages.Step{Name: "s", Status: messages.StepIntent, Attempts: 1})
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, parked, v.Outcome)
		require.ErrorIs(t, v.Err, actors.ErrParked)
		require.True(t, strings.HasPrefix(v.Error, "in doubt: step s"), v.Error)
		require.Zero(t, ran)
	})
	t.Run("an error says nothing", func(t *testing.T) {
		ran := 0
		w := newWorld(one(func(actors.StepContext) (string, error) { ran++; return "", errBank }, actors.Unrepeatable(), actors.Retries(3)))
		for range 2 {
			require.Equal(t, parked, w.activate(t.Context(), `{}`).Outcome)
		}
		require.Equal(t, 1, ran)
	})
	t.Run("Retry says that it did not happen", func(t *testing.T) {
		ran := 0
		f := func(actors.StepContext) (string, error) {
			if ran++; ran == 1 {
				return "", actors.Retry(0, errBank)
			}
			return "sent", nil
		}
		w := newWorld(one(f, actors.Unrepeatable()))
		require.Equal(t, retry, w.activate(t.Context(), `{}`).Outcome)
		require.Equal(t, completed, w.activate(t.Context(), `{}`).Outcome)
		require.Equal(t, 2, ran)
	})
}

// A 429 costs no attempt, waits a moment in place and longer elsewhere.
func TestRateLimitedStep(t *testing.T) {
	ran := 0
	w := newWorld(one(func(s actors.StepContext) (string, error) {
		require.Equal(t, 1, s.Attempt)
		if ran++; ran < 4 {
			return "", actors.RateLimited([]time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond, time.Minute}[ran], errBank)
		}
		return "ok", nil
	}, actors.Retries(0)))
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome)
	require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge)
	require.Equal(t, time.Minute, v.After)
	require.Equal(t, 3, ran)
	require.Equal(t, completed, w.activate(t.Context(), `{}`).Outcome)
}

// Without retries of its own the 429 is the handler's: it may ask another provider.
func TestRateLimitedHandler(t *testing.T) {
	w := newWorld(one(func(actors.StepContext) (string, error) { return "", actors.RateLimited(7*time.Second, errBank) }))
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge)
	require.Equal(t, 7*time.Second, v.After)
}

func TestClassify(t *testing.T) {
	classify := actors.Classify(func(err error) error {
		if errors.Is(err, errBank) {
			return actors.Reject(err)
		}
		return nil // not mine
	})
	require.Equal(t, refused, newWorld(one(func(actors.StepContext) (string, error) { return "", errBank }, actors.Retries(3)), classify).activate(t.Context(), `{}`).Outcome)
	require.Equal(t, refused, newWorld(func(*actors.Context, in) (int, error) { return 0, errBank }, classify).activate(t.Context(), `{}`).Outcome)
	require.Equal(t, retry, newWorld(func(*actors.Context, in) (int, error) { return 0, errors.New("other") }, classify).activate(t.Context(), `{}`).Outcome)
}

// An attempt that ignores its context is abandoned, counted, and what it says later is dropped.
func TestTimeoutAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, stuck := make(chan struct{}), atomic.Int32{}
		w := newWorld(one(func(s actors.StepContext) (string, error) {
			if s.Attempt == 1 {
				<-release
				return "late", nil
			}
			return "second", nil
		}, actors.Timeout(time.Minute), actors.RetryPolicy{Max: 1, Base: time.Millisecond}))
		w.job.OnStuck = func(e actors.StuckEvent) {
			require.Equal(t, "s", e.Step)
			require.Equal(t, "t-1", e.TaskID)
			if e.Back {
				stuck.Add(-1)
			} else {
				stuck.Add(1)
			}
		}
		start := time.Now()
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, completed, v.Outcome)
		require.JSONEq(t, `"second"`, string(v.Result))
		require.EqualValues(t, 1, stuck.Load())
		close(release)
		synctest.Wait()
		require.Zero(t, stuck.Load())
		require.JSONEq(t, `"second"`, string(w.store.step("s").Value))
	})
}

// An attempt that heeds its context is a timeout all the same, charged as one.
func TestTimeoutHeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(one(func(s actors.StepContext) (string, error) {
			<-s.Done()
			return "", s.Err()
		}, actors.Timeout(time.Minute)))
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, retry, v.Outcome)
		require.Equal(t, messages.Charge_CHARGE_TIMEOUT, v.Charge)
		require.ErrorIs(t, v.Err, actors.ErrTimeout)
	})
}

// The agent's Timeout ends the activation's context, and durable calls say so.
func TestActivationTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(func(c *actors.Context, _ in) (string, error) {
			<-c.Context().Done()
			_, _ = actors.Step(c, "s", func(actors.StepContext) (string, error) { return "", errors.New("ran") })
			return "ignored", nil
		}, actors.Timeout(time.Minute))
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, retry, v.Outcome)
		require.Equal(t, messages.Charge_CHARGE_TIMEOUT, v.Charge)
		require.Empty(t, w.store.writes)
	})
}

// A handler that ignores its context is abandoned a moment after its time, counted, and refused whatever it does next.
func TestActivationTimeoutAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var after []error
		var told []actors.StuckEvent
		w := newWorld(func(c *actors.Context, _ in) (string, error) {
			<-release
			for _, name := range []string{"a", "b"} {
				_, err := actors.Step(c, name, func(actors.StepContext) (string, error) { return "ran", nil })
				after = append(after, err)
			}
			after = append(after, actors.Sleep(c, "z", time.Hour))
			panic("at the end of it all")
		}, actors.Timeout(time.Minute), actors.RetryPolicy{Max: 1, Base: time.Second})
		w.job.OnStuck = func(e actors.StuckEvent) { told = append(told, e) }
		start := time.Now()
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, time.Minute+time.Second, time.Since(start))
		require.Equal(t, retry, v.Outcome)
		require.Equal(t, messages.Charge_CHARGE_TIMEOUT, v.Charge)
		require.Equal(t, time.Second, v.After)
		require.ErrorIs(t, v.Err, actors.ErrTimeout)
		require.Equal(t, []actors.StuckEvent{{TaskID: "t-1", Type: "test", Timeout: time.Minute}}, told)
		time.Sleep(time.Hour)
		close(release)
		synctest.Wait()
		require.Len(t, after, 3)
		for _, err := range after {
			require.ErrorIs(t, err, actors.ErrTimeout)
		}
		require.Empty(t, w.store.writes)
		require.Len(t, told, 2)
		require.True(t, told[1].Back)
		require.Equal(t, time.Hour+time.Minute+time.Second, told[1].Ran)
	})
}

// One that is told to stop for another reason before its time has the rest of it to return.
func TestActivationTimeoutAndALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(func(*actors.Context, in) (string, error) {
			time.Sleep(time.Hour)
			return "late", nil
		}, actors.Timeout(time.Minute))
		ctx, lose := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { lose(actors.ErrLeaseLost) })
		start := time.Now()
		v := w.activate(ctx, `{}`)
		require.Equal(t, time.Minute+time.Second, time.Since(start))
		require.ErrorIs(t, v.Err, actors.ErrLeaseLost)
		require.Zero(t, v.Outcome)
		time.Sleep(time.Hour) // it comes back
	})
}

func TestPanicsCross(t *testing.T) {
	for name, opts := range map[string][]actors.StepOption{"same goroutine": nil, "with a timeout": {actors.Timeout(time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(one(func(actors.StepContext) (string, error) { panic(errBank) }, opts...))
			defer func() {
				p := recover()
				require.NotNil(t, p)
				err, _ := p.(error)
				require.ErrorIs(t, err, errBank)
				require.Empty(t, w.store.writes)
			}()
			w.activate(t.Context(), `{}`)
		})
	}
}

// A handler under a Timeout has a goroutine of its own: its panic, and its Goexit, end the caller's as they would without.
func TestPanicOfABoundedHandler(t *testing.T) {
	w := newWorld(func(*actors.Context, in) (int, error) { panic(errBank) }, actors.Timeout(time.Minute))
	require.PanicsWithError(t, (&actors.Panic{Value: errBank}).Error(), func() {
		defer func() {
			p, ok := recover().(*actors.Panic)
			require.True(t, ok)
			require.ErrorIs(t, p, errBank)
			require.Contains(t, string(p.Stack), "TestPanicOfABoundedHandler", "where it panicked")
			panic(&actors.Panic{Value: p.Value})
		}()
		w.activate(t.Context(), `{}`)
	})
	ended := make(chan bool)
	w = newWorld(func(*actors.Context, in) (int, error) { runtime.Goexit(); return 0, nil }, actors.Timeout(time.Minute))
	go func() {
		defer close(ended)
		w.activate(t.Context(), `{}`)
		ended <- true
	}()
	_, returned := <-ended
	require.False(t, returned)
}

func TestGoexitCrosses(t *testing.T) {
	for name, opts := range map[string][]actors.StepOption{"same goroutine": nil, "with a timeout": {actors.Timeout(time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(one(func(actors.StepContext) (string, error) { runtime.Goexit(); return "", nil }, opts...))
			returned := false
			var wg sync.WaitGroup
			wg.Go(func() {
				w.activate(t.Context(), `{}`)
				returned = true
			})
			wg.Wait()
			require.False(t, returned)
		})
	}
}

// A checkpoint is insisted on while the server is away.
func TestCheckpointInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := 5
		w := newWorld(one(func(actors.StepContext) (string, error) { return "paid", nil }))
		w.store.before = func(messages.Step) error {
			if fails--; fails >= 0 {
				return errBank
			}
			return nil
		}
		require.Equal(t, completed, w.activate(t.Context(), `{}`).Outcome)
	})
}

func TestLeaseLostAtCheckpoint(t *testing.T) {
	ran := 0
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		_, _ = actors.Step(c, "a", func(actors.StepContext) (string, error) { ran++; return "", nil })
		return actors.Step(c, "b", func(actors.StepContext) (string, error) { ran++; return "", nil })
	})
	w.store.before = func(messages.Step) error { return actors.ErrLeaseLost }
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_UNSPECIFIED, v.Outcome)
	require.ErrorIs(t, v.Err, actors.ErrLeaseLost)
	require.Equal(t, 1, ran)
}

// Each way an activation is ended from outside: the cause comes back from the next durable call and decides the verdict.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		cause   error
		outcome messages.Outcome
	}{
		{actors.ErrLeaseLost, messages.Outcome_OUTCOME_UNSPECIFIED},
		{actors.ErrDraining, messages.Outcome_OUTCOME_INTERRUPTED},
		{actors.ErrCancelled, messages.Outcome_OUTCOME_CANCELLED},
		{errors.New("the program ends"), messages.Outcome_OUTCOME_INTERRUPTED},
	} {
		t.Run(c.cause.Error(), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w := newWorld(func(c *actors.Context, _ in) (string, error) {
				_, err := actors.Step(c, "a", func(s actors.StepContext) (string, error) {
					cancel(actors.ErrDraining) // overwritten below where the test's cause came first
					<-s.Done()
					return "", s.Err()
				})
				return "", err
			})
			cancel(c.cause)
			v := w.activate(ctx, `{}`)
			require.Equal(t, c.outcome, v.Outcome)
			require.ErrorIs(t, v.Err, c.cause)
		})
	}
}

// A result that is ready when the grace period ends is kept: the step's, and the handler's.
func TestDrainKeepsWhatWasPaidFor(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	f := func(actors.StepContext) (string, error) { cancel(actors.ErrDraining); return "paid", nil }
	w := newWorld(one(f))
	w.store = &memory{}
	v := w.activate(ctx, `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_INTERRUPTED, v.Outcome)
	require.Equal(t, messages.StepDone, w.store.step("s").Status)

	ctx, cancel = context.WithCancelCause(t.Context())
	w = newWorld(func(*actors.Context, in) (string, error) { cancel(actors.ErrDraining); return "done", nil })
	require.Equal(t, completed, w.activate(ctx, `{}`).Outcome)
}

func TestDamagedCheckpoint(t *testing.T) {
	w := newWorld(one(func(actors.StepContext) (string, error) { return "", nil }))
	w.store.preset(messages.Step{Name: "s", Status: messages.StepDone})
	w.store.loadErr = messages.ErrStep
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, refused, v.Outcome)
	require.Equal(t, messages.Reason_REASON_BAD_STATE, v.Reason)

	// One that another version of the code wrote with another type.
	w = newWorld(one(func(actors.StepContext) (string, error) { return "", nil }))
	w.store.preset(messages.Step{Name: "s", Status: messages.StepDone, ContentType: "application/json", Value: []byte("{}")})
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Reason_REASON_BAD_STATE, v.Reason)
}

func TestOnStep(t *testing.T) {
	var events []actors.StepEvent
	w := newWorld(one(func(s actors.StepContext) (string, error) {
		if s.Attempt == 1 {
			return "", errBank
		}
		return "", nil
	}, actors.RetryPolicy{Max: 1, Base: time.Millisecond}))
	w.job.OnStep = func(e actors.StepEvent) { events = append(events, e) }
	w.activate(t.Context(), `{}`)
	w.activate(t.Context(), `{}`)
	require.Len(t, events, 2)
	require.ErrorIs(t, events[0].Err, errBank)
	require.NoError(t, events[1].Err)
	require.Equal(t, "s", events[1].Step)
}
