package actors

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// AgentOption is an argument of Agent.With.
type AgentOption interface{ agentOption(*settings) error }

// StepOption is an argument of Step.
type StepOption interface{ stepOption(*stepSettings) error }

// Option is one for agents and for steps alike.
type Option interface {
	AgentOption
	StepOption
}

// settings are an agent's options.
type settings struct {
	budget   Budget
	timeout  time.Duration
	classify func(error) error
	buckets  []string // NeedsQuota
}

// stepSettings are a step's options.
type stepSettings struct {
	retry        *RetryPolicy // nil: failures are the handler's, and its task's budget's, business
	timeout      time.Duration
	unrepeatable bool
	verify       *verifier
	quotas       []Tokens
	classes      []RetryClass // RetryIf
}

// verifier is Verify's function with its type erased.
type verifier struct {
	result reflect.Type
	find   func(ctx context.Context, key string) (stored, bool, error)
}

func (p RetryPolicy) agentOption(s *settings) error {
	s.budget.Retry = p.withDefaults()
	return p.validate()
}

func (p RetryPolicy) stepOption(s *stepSettings) error {
	p2 := p.withDefaults()
	s.retry = &p2
	return p.validate()
}

type retries int

// Retries is a RetryPolicy with n retries and the default delays (on a step: its agent's). Retries(0) means none.
//
// On a step it gives the step a budget of its own: its failures are not charged to the task, delays under a second are
// waited out in place, longer ones give up the activation's place until they are due, and when the budget is spent Step
// answers with a *StepError.
func Retries(n int) Option { return retries(n) }

func (n retries) agentOption(s *settings) error {
	s.budget.Retry.Max = int(n)
	return s.budget.Retry.validate()
}

func (n retries) stepOption(s *stepSettings) error {
	p := DefaultRetry.withDefaults()
	if s.retry != nil {
		p = *s.retry
	}
	p.Max = int(n)
	s.retry = &p
	return p.validate()
}

type timeout time.Duration

// Timeout bounds one attempt of a step: its context ends, and if the function does not return the attempt is abandoned all
// the same; what it returns later is dropped. Such a goroutine cannot be stopped, only counted (stuck_steps).
//
// On an agent it bounds one activation: its context ends with ErrTimeout as the cause, every durable call answers with
// it, and the attempt is charged as a timeout. A handler that does not return within a second more is abandoned and counted
// too: its unit is retried, also on the same node, while it still runs. What it does outside steps is then done twice at a
// time, so it should heed Context.Context.
func Timeout(d time.Duration) Option { return timeout(d) }

func (d timeout) valid() error {
	if d <= 0 {
		return fmt.Errorf("Timeout(%v) must be positive", time.Duration(d))
	}
	return nil
}

func (d timeout) agentOption(s *settings) error {
	s.timeout = time.Duration(d)
	return d.valid()
}

func (d timeout) stepOption(s *stepSettings) error {
	s.timeout = time.Duration(d)
	return d.valid()
}

type agentOption func(*settings) error

func (f agentOption) agentOption(s *settings) error { return f(s) }

type stepOption func(*stepSettings) error

func (f stepOption) stepOption(s *stepSettings) error { return f(s) }

// MaxCrashes fails a task that panicked more than n times. Default 10.
func MaxCrashes(n int) AgentOption {
	return agentOption(func(s *settings) error { s.budget.Crashes = &n; return notNegative("MaxCrashes", n) })
}

// MaxDeaths fails a task that was running more than n times when its process died. Default: no limit, since a death says
// nothing about who caused it; a task that kills its nodes is found by running alone.
func MaxDeaths(n int) AgentOption {
	return agentOption(func(s *settings) error { s.budget.Deaths = &n; return notNegative("MaxDeaths", n) })
}

// MaxTimeouts fails a task that ran out of time more than n times. Default: as many as the RetryPolicy's Max.
func MaxTimeouts(n int) AgentOption {
	return agentOption(func(s *settings) error { s.budget.Timeouts = &n; return notNegative("MaxTimeouts", n) })
}

func notNegative(name string, n int) error {
	if n < 0 {
		return fmt.Errorf("%s(%d) must not be negative", name, n)
	}
	return nil
}

// Classify translates errors of the agent's steps and handlers before they are judged, typically from what a client
// library returns to Retry, RateLimited or Reject (see FromHTTP). What it returns nil for stays as it is.
func Classify(f func(error) error) AgentOption {
	return agentOption(func(s *settings) error {
		if f == nil {
			return errors.New("Classify(nil) has no function")
		}
		s.classify = f
		return nil
	})
}

// Verify makes a step's effect keyed: an intent is written before the function runs, and when its outcome is unknown
// (the process died before the result was kept, the attempt timed out or failed) find is asked with StepContext.Key before
// anything runs again. Found: its value is the step's result. Not found: the effect did not happen and may run.
// find must see every effect that took place, and its value has the step's type. The checkpoint of such a step says "found"
// where that of one that ran says "done".
func Verify[T any](find func(ctx context.Context, key string) (T, bool, error)) StepOption {
	return stepOption(func(s *stepSettings) error {
		if find == nil {
			return errors.New("Verify(nil) has no function")
		}
		s.verify = &verifier{reflect.TypeFor[T](), func(ctx context.Context, key string) (stored, bool, error) {
			v, ok, err := find(ctx, key)
			if err != nil || !ok {
				return stored{}, false, err
			}
			out, err := encode(v)
			return out, true, err
		}}
		return nil
	})
}

// Unrepeatable says that the effect must never run twice and that nobody can be asked whether it ran. An intent is written
// before the function runs. When the outcome is unknown (the process died before the result was kept, the attempt timed
// out, or the function returned an error other than Retry, RateLimited or Reject, which say that nothing happened) the
// step is in doubt: the task waits for a person and is never re-run blindly.
func Unrepeatable() StepOption {
	return stepOption(func(s *stepSettings) error { s.unrepeatable = true; return nil })
}
