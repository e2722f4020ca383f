package actors

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
)

// Retry asks for another attempt after at least the given time; 0 leaves the delay to the policy. The attempt is charged
// like any other failure: Retry says when, not how often. Returned by a step's function it also says that the effect did
// not happen, so that even an Unrepeatable step may run again.
//
// It never returns nil: Retry(d, nil) is misuse and fails the task loudly.
func Retry(after time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("%w: Retry(%v, nil) has no cause", ErrMisuse, after)
	}
	return &retryError{after: max(after, 0), err: err}
}

// RateLimited asks for another attempt after the given time, free of charge: the provider asked to wait. 0 leaves the
// delay to the policy. Like Retry it says that the effect did not happen, and like Retry it never returns nil.
func RateLimited(after time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("%w: RateLimited(%v, nil) has no cause", ErrMisuse, after)
	}
	return &limitError{after: max(after, 0), err: err}
}

// Reject ends the task as FAILED without another attempt and keeps its entry as a dead letter. Returned by a step's
// function it ends the step's retries: Step answers with a *StepError.
//
// It never returns nil: Reject(nil) is misuse and fails the task loudly.
func Reject(err error) error {
	if err == nil {
		err = fmt.Errorf("%w: Reject(nil) has no cause", ErrMisuse)
	}
	return &rejectError{err: err}
}

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string {
	if e.after == 0 {
		return "retry: " + e.err.Error()
	}
	return fmt.Sprintf("retry after %v: %v", e.after, e.err)
}
func (e *retryError) Unwrap() error { return e.err }

type limitError struct {
	after time.Duration
	err   error
}

func (e *limitError) Error() string {
	if e.after == 0 {
		return "rate limited: " + e.err.Error()
	}
	return fmt.Sprintf("rate limited for %v: %v", e.after, e.err)
}
func (e *limitError) Unwrap() error { return e.err }

type rejectError struct{ err error }

func (e *rejectError) Error() string { return "rejected: " + e.err.Error() }
func (e *rejectError) Unwrap() error { return e.err }

// timeoutError is an attempt, or an activation, that overran its Timeout. It is its own type because an awaited message
// that does not come is ErrTimeout as well, and must not be charged as a hanging step.
type timeoutError struct {
	what  string
	after time.Duration
	err   error // what the attempt said when its time was over; nil when it was abandoned
}

func (e *timeoutError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("%s timed out after %v: %v", e.what, e.after, e.err)
	}
	return fmt.Sprintf("%s timed out after %v", e.what, e.after)
}
func (e *timeoutError) Is(target error) bool { return target == ErrTimeout }
func (e *timeoutError) Unwrap() error        { return e.err }

// waitError is a wait whose time was over. It is final: its checkpoint gives every attempt the same answer.
type waitError struct {
	kind, name string
	after      time.Duration
}

func (e *waitError) Error() string {
	if e.after == NoTimeout {
		return fmt.Sprintf("%s %q: the time of another wait for its message was over", e.kind, e.name)
	}
	return fmt.Sprintf("%s %q: not within %v", e.kind, e.name, e.after)
}
func (e *waitError) Is(target error) bool { return target == ErrTimeout }

// MessageError is a message, or a child's result, that came and does not decode as what its waiter expects. What came
// stays what it is, so returned by the handler the error fails the task without another attempt (bad_payload); a handler
// that can do with another message deals with it and waits for the next: Expect(name).Nth(2).
type MessageError struct {
	// Wait is the name of the Await, First or All; for a child's result that of its Spawn.
	Wait string
	// Name and Nth say which message of the task it is; empty and 0 for a child's result.
	Name string
	Nth  int
	// Err says what does not fit.
	Err error
}

func (e *MessageError) Error() string {
	if e.Nth == 0 {
		return fmt.Sprintf("result of child %q: %v", e.Wait, e.Err)
	}
	return fmt.Sprintf("%q: message %v: %v", e.Wait, Slot{e.Name, e.Nth}, e.Err)
}
func (e *MessageError) Unwrap() error { return e.Err }

// ChildError is a child that ended without a result. It is final when the handler returns it: the child has ended.
type ChildError struct {
	// Name is that of its Spawn.
	Name string
	// Task says how it ended.
	Task *TaskError
}

func (e *ChildError) Error() string { return fmt.Sprintf("child %q: %v", e.Name, e.Task) }

// As finds the *TaskError. The error does not unwrap to it: a cancelled child is no ErrCancelled of its parent.
func (e *ChildError) As(target any) bool {
	t, ok := target.(**TaskError)
	if ok {
		*t = e.Task
	}
	return ok
}

// StepError is a step that will not be tried again: its own retries are used up, its function said Reject, or its result
// was too large. Returned by the handler it fails the task without another attempt, so that the retries of a step and
// of its task never multiply; a handler that can do without the step deals with it and goes on. It is kept like a result:
// the next activation gets the same answer without running the step.
type StepError struct {
	Step     string
	Attempts int
	// Err is the last failure. After a crash only its text is left, and that it was ErrTooLarge or ErrTimeout.
	Err error

	class spentClass
}

func (e *StepError) Error() string {
	times := "attempts"
	if e.Attempts == 1 {
		times = "attempt"
	}
	return fmt.Sprintf("step %q failed after %d %s: %v", e.Step, e.Attempts, times, e.Err)
}
func (e *StepError) Unwrap() error { return e.Err }

// Is keeps what kind of failure it was across activations.
func (e *StepError) Is(target error) bool {
	return e.class == spentTooLarge && target == ErrTooLarge || e.class == spentTimeout && target == ErrTimeout
}

// spentClass is the value of a spent step's checkpoint.
type spentClass string

const (
	spentRetries  spentClass = "retries"
	spentRejected spentClass = "rejected"
	spentTooLarge spentClass = "too_large"
	spentTimeout  spentClass = "timeout"
)

func (c spentClass) reason() messages.Reason {
	switch c {
	case spentRejected:
		return messages.Reason_REASON_REJECTED
	case spentTooLarge:
		return messages.Reason_REASON_TOO_LARGE
	default:
		return messages.Reason_REASON_BUDGET_SPENT
	}
}

// classOf says why a step with this last error is not tried again.
func classOf(err error) spentClass {
	var rejected *rejectError
	var late *timeoutError
	switch {
	case errors.As(err, &rejected):
		return spentRejected
	case errors.Is(err, ErrTooLarge):
		return spentTooLarge
	case errors.As(err, &late):
		return spentTimeout
	default:
		return spentRetries
	}
}

// TaskError is a task that ended without a result.
type TaskError struct {
	ID, Unit string
	// State is STATE_FAILED or STATE_CANCELLED.
	State messages.State
	// Reason is one word of the dead letter's reason, such as "rejected" or "budget_spent".
	Reason string
	// Detail is the sentence for a person.
	Detail string
}

func (e *TaskError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("task %q ended %s: %s", e.ID, StateName(e.State), e.Detail)
	}
	return fmt.Sprintf("task %q ended %s (%s): %s", e.ID, StateName(e.State), e.Reason, e.Detail)
}

// Is makes a cancelled task comparable with ErrCancelled.
func (e *TaskError) Is(target error) bool {
	return e.State == messages.State_STATE_CANCELLED && target == ErrCancelled
}

// EndedError is ErrEnded with what became of the task.
type EndedError struct {
	ID, Unit string
	// State is final. Of a task with several units it is CANCELLED where one of them is, else FAILED where one is.
	State messages.State
}

func (e *EndedError) Error() string {
	if e.Unit != "" {
		return fmt.Sprintf("unit %q of task %q: %v: %s", e.Unit, e.ID, ErrEnded, StateName(e.State))
	}
	return fmt.Sprintf("task %q: %v: %s", e.ID, ErrEnded, StateName(e.State))
}
func (e *EndedError) Unwrap() error { return ErrEnded }

// Panic is what a handler's goroutine panics with when one of the goroutines that Weir started for it did: a branch of
// Parallel, or a step with a Timeout. Stack is that goroutine's.
type Panic struct {
	Value any
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("%v\n\n%s", p.Value, p.Stack) }

// Unwrap returns the value where the panic was an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}
