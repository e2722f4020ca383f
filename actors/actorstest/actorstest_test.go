package actorstest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
	"github.com/weir-run/weir/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type request struct{ Text string }

type reply struct{ Text string }

// refund is an agent with a plan by a model and a payment that must not happen twice.
type refund struct {
	paid  map[string]int
	plans int
}

func (a *refund) Handle(c *actors.Context, m request) (reply, error) {
	cents, err := actors.Step(c, "plan", func(s actors.StepContext) (int, error) {
		s.Publish([]byte("thinking"))
		if a.plans++; a.plans < 3 {
			return 0, errors.New("overloaded")
		}
		return len(m.Text), nil
	}, actors.Retries(5))
	if err != nil {
		return reply{}, err
	}
	receipt, err := actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
		a.paid[s.Key]++
		return fmt.Sprintf("r%d", cents), nil
	}, actors.Verify(func(_ context.Context, key string) (string, bool, error) {
		return fmt.Sprintf("r%d", cents), a.paid[key] > 0, nil
	}))
	if err != nil {
		return reply{}, err
	}
	return reply{"refunded " + receipt}, nil
}

func TestCall(t *testing.T) {
	a := &refund{paid: map[string]int{}}
	x := actorstest.New(t)
	began := time.Now()
	r, err := actorstest.Call(x, a.Handle, request{"broken"})
	require.NoError(t, err)
	require.Equal(t, reply{"refunded r6"}, r)
	require.Equal(t, map[string]int{"task-1:pay": 1}, a.paid)
	require.Equal(t, 3, a.plans, "retried, in no time")
	require.Less(t, time.Since(began), 500*time.Millisecond)

	steps := x.Steps()
	require.Len(t, steps, 2)
	require.Equal(t, "plan", steps[0].Name)
	require.Equal(t, 3, steps[0].Attempts)
	require.Equal(t, messages.StepDone, steps[1].Status)
	require.Len(t, x.Published(), 3)
	require.Empty(t, x.Misuses())
}

// The crash between effect and checkpoint.
func TestForget(t *testing.T) {
	a := &refund{paid: map[string]int{}}
	x := actorstest.New(t)
	for range 2 {
		_, err := actorstest.Call(x, a.Handle, request{"broken"})
		require.NoError(t, err)
		x.Forget("pay")
	}
	require.Equal(t, 1, a.paid["task-1:pay"])
	x.Forget("plan") // a plain step just runs again
	_, err := actorstest.Call(x, a.Handle, request{"broken"})
	require.NoError(t, err)
	require.Equal(t, 4, a.plans)
	require.Equal(t, 1, a.paid["task-1:pay"])

	f := &recorder{TB: t}
	actorstest.New(f).Forget("nothing")
	require.Len(t, f.errs, 1)
}

type recorder struct {
	testing.TB
	errs []string
}

func (r *recorder) Errorf(f string, a ...any) { r.errs = append(r.errs, fmt.Sprintf(f, a...)) }

func TestOptions(t *testing.T) {
	x := actorstest.New(t, actorstest.ID("o:1"), actorstest.Unit("u"), actorstest.Fields(actors.Field{Name: "k", Value: "v"}),
		actorstest.With(actors.Classify(func(err error) error { return actors.Reject(err) })))
	gone := errors.New("gone")
	_, err := actorstest.Call(x, func(c *actors.Context, _ actors.None) (string, error) {
		_, err := actors.Step(c, "s", func(s actors.StepContext) (string, error) {
			require.Equal(t, "o%3A1:u:s", s.Key)
			require.Equal(t, "v", c.Field("k"))
			return "", gone
		}, actors.Retries(9))
		return "", err
	}, nil)
	require.ErrorIs(t, err, gone)
	var step *actors.StepError
	require.ErrorAs(t, err, &step)
	require.Equal(t, 1, step.Attempts)
}

// The handler's own error comes back as it is, and the next Call goes on from the checkpoints.
func TestErrorAndAgain(t *testing.T) {
	asked, down := 0, errors.New("database is down")
	h := func(c *actors.Context, m request) (*messages.Entry, error) {
		if _, err := actors.Step(c, "ask", func(actors.StepContext) (actors.None, error) { asked++; return nil, nil }); err != nil {
			return nil, err
		}
		if asked == 1 && down != nil {
			return nil, down
		}
		return nil, nil
	}
	x := actorstest.New(t)
	_, err := actorstest.Call(x, h, request{})
	require.Same(t, down, err)
	down = nil
	got, err := actorstest.Call(x, h, request{})
	require.NoError(t, err)
	require.Nil(t, got)
	require.Equal(t, 1, asked)
}

func TestWaitsForEver(t *testing.T) {
	f := &recorder{TB: t}
	_, err := actorstest.Call(actorstest.New(f), func(c *actors.Context, _ request) (int, error) {
		return actors.Step(c, "s", func(actors.StepContext) (int, error) {
			return 0, actors.RateLimited(time.Hour, errors.New("429"))
		}, actors.Retries(1))
	}, request{})
	require.ErrorIs(t, err, actors.ErrParked)
	require.Len(t, f.errs, 1)
	require.Contains(t, f.errs[0], "still waits after 1000 activations")
}

// Types that cannot be stored are misuse before anything runs.
func TestBadTypes(t *testing.T) {
	f := &recorder{TB: t}
	_, err := actorstest.Call(actorstest.New(f), func(*actors.Context, chan int) (int, error) { return 0, nil }, nil)
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.Len(t, f.errs, 1)
	_, err = actorstest.Call(actorstest.New(f), func(*actors.Context, float64) (int, error) { return 0, nil }, nan())
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.Len(t, f.errs, 2)
}

func nan() float64 { z := 0.0; return z / z }
