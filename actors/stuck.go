package actors

import (
	"context"
	"time"
)

// StuckEvent is an attempt of a step, or a handler, that runs on after its Timeout; or that has come back after all. Go
// cannot stop a goroutine: it is abandoned, what it says later is dropped and what it writes is fenced off, but it keeps what
// it holds.
type StuckEvent struct {
	TaskID, Unit, Type string
	// Step is empty for the handler itself.
	Step    string
	Timeout time.Duration
	// Back says that it has returned, after having run for Ran in all.
	Back bool
	Ran  time.Duration
}

// stuck tells the runtime.
func (a *activation) stuck(e StuckEvent) {
	if a.job.OnStuck != nil {
		e.TaskID, e.Unit, e.Type = a.job.Task.GetTaskId(), a.job.Task.GetUnit(), a.job.Task.GetType()
		a.job.OnStuck(e)
	}
}

// back tells that something abandoned has returned. A panic of it harms nobody any more.
func (a *activation) back(step string, timeout, ran time.Duration, r trialResult) {
	a.stuck(StuckEvent{Step: step, Timeout: timeout, Back: true, Ran: ran})
	if log := a.job.Logger; r.panic != nil && log != nil {
		log.Warn("what was abandoned after its timeout panicked", "task_id", a.job.Task.GetTaskId(), "step", step, "panic", r.panic.Error())
	}
}

// lateGrace is how long a handler whose time is over may take to return before it is abandoned.
const lateGrace = time.Second

// bounded calls the handler under its agent's Timeout, on a goroutine of its own, and does not wait for it much longer.
//
//go:noinline
func (r *Ready) bounded(limit time.Duration) Verdict {
	a, began := r.act, time.Now()
	ctx, cancel := context.WithTimeoutCause(a.ctx, limit, &timeoutError{what: "activation", after: limit})
	defer cancel()
	a.ctx = ctx
	c := &Context{act: a}
	t := newTrial(func() (stored, error) { return r.call(c) }, func(done trialResult) {
		a.back("", limit, time.Since(began), done)
	})
	settle := func(done trialResult) Verdict {
		defer a.end()
		done.carry()
		return a.settle(c, done.out, done.err)
	}
	select {
	case done := <-t.out:
		return settle(done)
	case <-ctx.Done():
	}
	// Its time is over, or it was told to stop for another reason, such as a lost lease: then it has the rest of its time.
	grace := time.NewTimer(time.Until(began.Add(limit)) + lateGrace)
	defer grace.Stop()
	select {
	case done := <-t.out:
		return settle(done)
	case <-grace.C:
	}
	if !t.abandon() {
		return settle(<-t.out)
	}
	a.stuck(StuckEvent{Timeout: limit})
	cause := a.latchTo(a.cause())
	a.end()
	return a.settle(&Context{act: a}, stored{}, cause) // not its own: that one is still in use
}
