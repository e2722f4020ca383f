package actors

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// Step runs an effect and keeps its result: a later activation of the unit gets the result without running f. The name is
// the step's identity within the unit; used twice in one activation it is ErrMisuse, so loops number their steps.
//
// What Step returns is the result as it was kept, the first time too: what its encoding loses is lost at once. A result
// over the cap (1 MiB by default) is refused once, with an error that wraps ErrTooLarge.
//
// By default f is repeatable: it runs again when the process dies before its result is kept. See Verify and Unrepeatable
// for effects that must not. An error of f is returned to the handler, and is retried with the task; with Retries or a
// RetryPolicy the step has a budget of its own, and fails with a *StepError when it is spent.
//
// ErrParked, ErrCancelled, ErrLeaseLost, ErrDraining and ErrMisuse mean that the activation is over: return them.
// A panic of f is a crash of the task.
func Step[T any](c *Context, name string, f func(StepContext) (T, error), opts ...StepOption) (T, error) {
	var zero T
	if err := c.named("step", name); err != nil {
		return zero, err
	}
	defer c.leave()
	e := effect{c: c, act: c.act, name: name}
	if err := e.configure(reflect.TypeFor[T](), f == nil, opts); err != nil {
		return zero, c.misuse("step %q: %v", name, err)
	}
	e.run = func(s StepContext) (stored, error) {
		v, err := f(s)
		if err != nil {
			return stored{}, err
		}
		return encode(v)
	}
	out, err := e.settle()
	if err != nil {
		return zero, err
	}
	v, err := decode[T](out, false)
	if err != nil {
		return zero, c.act.latchTo(fmt.Errorf("step %q: the kept result does not decode: %w: %w", name, err, messages.ErrStep))
	}
	return v, nil
}

// shortDelay is the longest delay that is waited out in place; what is longer gives up the place.
const shortDelay = time.Second

// effect is a Step under way, with its type erased.
type effect struct {
	c    *Context
	act  *activation
	name string
	opts stepSettings
	run  func(StepContext) (stored, error)

	tries   int          // charged tries before this one
	classes ErrorClasses // of these
	try     int          // tries in this activation, free ones included
	waits   int          // free tries in this activation
	first   time.Time    // begin of the first try
	began   time.Time    // begin of the last one
	unknown bool         // an earlier try may have had its effect
	found   bool         // the result was looked up: this try did not run
	intent  bool         // the checkpoint is an intent now
	refused error        // the provider asked for a pause in this activation
	open    int          // 1 while a try that an earlier activation began is neither settled nor repeated
}

func (e *effect) configure(t reflect.Type, noFunc bool, opts []StepOption) error {
	if noFunc {
		return errors.New("it has no function")
	}
	if err := storable(t); err != nil {
		return err
	}
	base := e.act.job.Agent.set.budget.Retry
	base.MaxElapsed = 0 // that is the task's
	for _, o := range opts {
		if o == nil {
			return errors.New("a nil option")
		}
		if _, ok := o.(retries); ok && e.opts.retry == nil {
			e.opts.retry = &base // Retries(n) keeps its agent's delays
		}
		if err := o.stepOption(&e.opts); err != nil {
			return err
		}
	}
	v := e.opts.verify
	switch {
	case v != nil && v.result != t:
		return fmt.Errorf("Verify finds %v where the step gives %v", v.result, t)
	case v != nil && e.opts.unrepeatable:
		return errors.New("Verify and Unrepeatable exclude each other: what can be looked up is never in doubt")
	}
	return nil
}

// keyed steps write an intent before their effect.
func (e *effect) keyed() bool { return e.opts.verify != nil || e.opts.unrepeatable }

// settle gives the step's result: the kept one, or that of running it as often as its budget allows.
func (e *effect) settle() (stored, error) {
	cp, found, err := e.act.lookup(e.name)
	switch {
	case err != nil:
		return stored{}, e.act.latchTo(err)
	case found && cp.Status.HasResult():
		e.act.replayed(e.name)
		return stored{cp.ContentType, cp.Value}, nil
	case found && cp.Status == messages.StepSpent:
		e.act.replayed(e.name)
		return stored{}, &StepError{Step: e.name, Attempts: cp.Attempts, Err: errors.New(cp.Error), class: spentClass(cp.Value)}
	case found && !cp.Status.OfStep():
		return stored{}, e.act.otherKind("step", cp)
	}
	if err := e.define(); err != nil {
		return stored{}, err
	}
	e.act.live.Store(true)
	e.resume(cp, found)
	for {
		out, err := e.once()
		if latched := e.act.latched(); err == nil && (latched == nil || !errors.Is(latched, ErrMisuse)) {
			return e.done(out)
		}
		if latched := e.over(); latched != nil {
			return stored{}, latched
		}
		if e.c.parked != nil {
			return stored{}, err
		}
		out, again, err := e.failed(err)
		if !again {
			return out, err
		}
		if latched := e.over(); latched != nil {
			return stored{}, latched
		}
	}
}

// resume takes over what an earlier activation left of the step.
func (e *effect) resume(cp messages.Step, found bool) {
	e.first = time.Now()
	if !found {
		return
	}
	e.tries = cp.Attempts
	first, classes, _ := strings.Cut(string(cp.Value), " ")
	if ms, err := strconv.ParseInt(first, 10, 64); err == nil && ms > 0 {
		e.first, e.classes = time.UnixMilli(ms), ErrorClasses(classes)
	}
	switch {
	case cp.Status == messages.StepIntent:
		e.unknown, e.intent = true, true
		e.tries, e.open = max(cp.Attempts-1, 0), 1
	case e.opts.verify != nil:
		e.unknown = true
	}
}

// over is the latch that ends the activation, or nil while it goes on.
func (e *effect) over() error {
	if latched := e.act.latched(); latched != nil {
		return latched
	}
	if cause := e.act.cause(); cause != nil {
		return e.act.latchTo(cause)
	}
	return nil
}
