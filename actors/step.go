package actors

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
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

	tries   int       // charged tries before this one
	try     int       // tries in this activation, free ones included
	waits   int       // free tries in this activation
	first   time.Time // begin of the first try
	began   time.Time // begin of the last one
	unknown bool      // an earlier try may have had its effect
	intent  bool      // the checkpoint is an intent now
	open    int       // 1 while a try that an earlier activation began is neither settled nor repeated
}

func (e *effect) configure(t reflect.Type, noFunc bool, opts []StepOption) error {
	if noFunc {
		return errors.New("it has no function")
	}
	if err := storable(t); err != nil {
		return err
	}
	base := e.act.job.Agent.set.budget.Retry
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
	if f := e.act.job.OnReplay; f != nil && found && (cp.Status == messages.StepDone || cp.Status == messages.StepSpent) {
		f(e.name)
	}
	switch {
	case err != nil:
		return stored{}, e.act.latchTo(err)
	case found && cp.Status == messages.StepDone:
		return stored{cp.ContentType, cp.Value}, nil
	case found && cp.Status == messages.StepSpent:
		return stored{}, &StepError{Step: e.name, Attempts: cp.Attempts, Err: errors.New(cp.Error), class: spentClass(cp.Value)}
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
	if ms, err := strconv.ParseInt(string(cp.Value), 10, 64); err == nil && ms > 0 {
		e.first = time.UnixMilli(ms)
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

// once looks an unknown outcome up, and runs the effect where it has not happened.
func (e *effect) once() (stored, error) {
	e.try++
	e.began = time.Now()
	ctx, cancel := e.act.ctx, context.CancelFunc(func() {})
	if d := e.opts.timeout; d > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, d, &timeoutError{fmt.Sprintf("step %q", e.name), d})
	}
	defer cancel()
	s := newStepContext(ctx, e.act, e.name, e.tries+1, e.try)
	if e.unknown {
		switch {
		case e.opts.verify != nil:
			out, found, err := e.find(s)
			if err != nil || found {
				return out, err
			}
			e.unknown, e.open = false, 0
			if latched := e.over(); latched != nil {
				return stored{}, latched
			}
		case e.opts.unrepeatable:
			return stored{}, e.doubt("its process died, or lost the lease, while it ran")
		}
	}
	if e.keyed() && !e.intent {
		// A repeated intent is written again only after something else was.
		if err := e.checkpoint(messages.Step{Status: messages.StepIntent, Attempts: e.tries + 1, Value: e.since()}); err != nil {
			return stored{}, err
		}
		e.intent = true
	}
	e.open = 1 // this one: failed counts it, or done
	out, err := e.attempt(s)
	e.report(s, err)
	return out, err
}

func (e *effect) find(s StepContext) (stored, bool, error) {
	out, found, err := e.opts.verify.find(s, s.Key)
	if err != nil {
		return stored{}, false, fmt.Errorf("verify: %w", err)
	}
	return out, found, nil
}

// failed settles an attempt that gave an error: a result after all, a final error, or another attempt.
func (e *effect) failed(err error) (out stored, again bool, final error) {
	err = e.act.classify(err)
	if errors.Is(err, ErrMisuse) {
		return out, false, e.c.misuse("step %q: %v", e.name, err)
	}
	var (
		limit  *limitError
		retry  *retryError
		reject *rejectError
		delay  time.Duration
		free   = errors.As(err, &limit)
		undone = free || errors.As(err, &retry)
	)
	if errors.As(err, &reject) {
		e.count()
		return out, false, e.spent(err)
	}
	if e.opts.unrepeatable && !undone {
		return out, false, e.doubt(err.Error())
	}
	e.unknown = e.opts.verify != nil && !undone
	policy := e.opts.retry
	if policy == nil {
		if e.opts.unrepeatable {
			// It did not happen: without this the intent would put the next activation in doubt.
			if err := e.retrying(err); err != nil {
				return out, false, err
			}
		}
		return out, false, fmt.Errorf("step %q: %w", e.name, err)
	}
	if free {
		e.waits++
		delay = limit.after
		if delay == 0 {
			delay = policy.Delay(e.waits, e.act.jitter())
		}
		if e.waits > maxWaitsInPlace {
			delay = max(delay, shortDelay)
		}
	} else {
		e.count()
		if retry != nil {
			delay = retry.after
		}
		if delay == 0 {
			delay = policy.Delay(e.tries, e.act.jitter())
		}
	}
	if elapsed := time.Since(e.first); policy.spent(int64(e.tries), elapsed) {
		return e.last(err)
	}
	if delay < shortDelay {
		e.act.pause(delay)
		return out, true, nil
	}
	if err := e.retrying(err); err != nil {
		return out, false, err
	}
	return out, false, e.c.park(&parking{after: delay, why: fmt.Sprintf("step %q tries again in %v after: %v", e.name, delay.Round(time.Millisecond), err)})
}

// count charges the step with the try that is over.
func (e *effect) count() { e.tries, e.open = e.tries+1, 0 }

// maxWaitsInPlace keeps a provider that always asks for a moment from holding a place for ever.
const maxWaitsInPlace = 10

// last settles a step whose budget is spent. Where its last try may have had its effect after all, that is looked up first.
func (e *effect) last(err error) (stored, bool, error) {
	if !e.unknown {
		return stored{}, false, e.spent(err)
	}
	ctx, cancel := context.WithTimeout(e.act.ctx, max(e.opts.timeout, verifyWait))
	defer cancel()
	out, found, unsure := e.find(newStepContext(ctx, e.act, e.name, e.tries, e.try))
	switch {
	case unsure != nil && e.over() != nil:
		return out, false, e.over()
	case unsure != nil:
		return out, false, e.doubt(fmt.Sprintf("%v, and its retries are used up after: %v", unsure, err))
	case found:
		out, err := e.done(out)
		return out, false, err
	}
	return out, false, e.spent(err)
}

const verifyWait = time.Minute

// done keeps the result.
func (e *effect) done(out stored) (stored, error) {
	if most := e.act.maxResult(); len(out.data) > most {
		e.count()
		return stored{}, e.spent(tooLarge("the result", len(out.data), most))
	}
	err := e.checkpoint(messages.Step{
		Status: messages.StepDone, Attempts: e.tries + e.open, EndedMS: time.Now().UnixMilli(),
		ContentType: out.contentType, Value: out.data,
	})
	return out, err
}

func (e *effect) spent(err error) error {
	class := classOf(err)
	cp := messages.Step{
		Status: messages.StepSpent, Attempts: e.tries, EndedMS: time.Now().UnixMilli(),
		Value: []byte(class), Error: clip(err.Error()),
	}
	if err := e.checkpoint(cp); err != nil {
		return err
	}
	return &StepError{Step: e.name, Attempts: e.tries, Err: err, class: class}
}

func (e *effect) retrying(err error) error {
	return e.checkpoint(messages.Step{
		Status: messages.StepRetrying, Attempts: e.tries, EndedMS: time.Now().UnixMilli(),
		Value: e.since(), Error: clip(err.Error()),
	})
}

// since is the value of a checkpoint without a result: when the first try began, for MaxElapsed.
func (e *effect) since() []byte { return strconv.AppendInt(nil, e.first.UnixMilli(), 10) }

// doubt parks the unit until a person says what became of the effect.
func (e *effect) doubt(why string) error {
	return e.c.park(&parking{doubt: true, why: "in doubt: step " + e.name + ": " + why})
}

func (e *effect) checkpoint(cp messages.Step) error {
	cp.Name, cp.BeganMS = e.name, e.began.UnixMilli()
	if err := e.act.keep(cp); err != nil {
		return e.act.latchTo(err)
	}
	e.intent = false
	return nil
}

func (e *effect) report(s StepContext, err error) {
	if f := e.act.job.OnStep; f != nil {
		t := e.act.job.Task
		f(StepEvent{
			TaskID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(), Step: e.name, Attempt: s.Attempt,
			Began: e.began, Took: time.Since(e.began), Err: err,
		})
	}
}
