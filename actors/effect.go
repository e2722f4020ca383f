package actors

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-run/weir/messages"
)

// once looks an unknown outcome up, and runs the effect where it has not happened.
func (e *effect) once() (stored, error) {
	e.try++
	e.began = time.Now()
	if e.unknown {
		if out, found, err := e.resolve(); err != nil || found {
			return out, err
		}
	}
	if err := e.take(); err != nil {
		return stored{}, err
	}
	e.began = time.Now()
	s, cancel := e.context()
	defer cancel()
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

// context is a try's.
func (e *effect) context() (StepContext, context.CancelFunc) {
	ctx, cancel := e.act.ctx, context.CancelFunc(func() {})
	if d := e.opts.timeout; d > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, d, e.late(nil))
	}
	return newStepContext(ctx, e.act, e.name, e.tries+1, e.try), cancel
}

// resolve finds out what became of an earlier try.
func (e *effect) resolve() (out stored, found bool, err error) {
	if e.opts.verify == nil {
		if e.opts.unrepeatable {
			err = e.doubt("its process died, or lost the lease, while it ran")
		}
		return out, false, err
	}
	s, cancel := e.context()
	defer cancel()
	if out, found, err = e.find(s); err != nil || found {
		return out, found, err
	}
	e.unknown, e.open = false, 0
	return out, false, e.over()
}

func (e *effect) find(s StepContext) (stored, bool, error) {
	out, found, err := e.opts.verify.find(s, s.Key)
	if err != nil {
		return stored{}, false, fmt.Errorf("verify: %w", err)
	}
	if found {
		e.found = true
		e.act.replayed(e.name)
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
	policy, tries := e.opts.retry, e.tries-e.inClasses()
	var class *RetryClass
	if !free {
		if class = classFor(e.opts.classes, err); class != nil {
			policy, tries = &class.Policy, int(e.classes.of(class.Class))
		}
	}
	if free && len(e.opts.quotas) > 0 {
		e.waits++
		e.refused = err
		if policy == nil || !policy.late(time.Since(e.first)) {
			return out, true, e.limited(limit.after)
		}
		return e.last(err)
	}
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
		tries++
		if class != nil {
			e.classes = e.classes.with(class.Class, messages.Charge_CHARGE_FAILURE)
		}
		if retry != nil {
			delay = retry.after
		}
		if delay == 0 {
			delay = policy.Delay(tries, e.act.jitter())
		}
	}
	if elapsed := time.Since(e.first); policy.spent(int64(tries), elapsed) {
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
	status := messages.StepDone
	if e.found {
		status = messages.StepFound
	}
	err := e.checkpoint(messages.Step{
		Status: status, Attempts: e.tries + e.open, EndedMS: time.Now().UnixMilli(),
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

// since is the value of a checkpoint without a result: when the first try began, for MaxElapsed, and the tries that belong
// to classes.
func (e *effect) since() []byte {
	b := strconv.AppendInt(nil, e.first.UnixMilli(), 10)
	if e.classes != "" {
		b = append(append(b, ' '), e.classes...)
	}
	return b
}

// inClasses is how many of the tries belong to a class of RetryIf.
func (e *effect) inClasses() int { return int(e.classes.charged(messages.Charge_CHARGE_FAILURE)) }

// doubt parks the unit until a person says what became of the effect.
func (e *effect) doubt(why string) error {
	return e.c.park(&parking{doubt: e.name, why: "in doubt: step " + e.name + ": " + why})
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
