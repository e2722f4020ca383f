package actors

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// attempt runs the effect once. Without a Timeout it runs on the caller's goroutine, so that a panic crashes the handler as
// it is.
func (e *effect) attempt(s StepContext) (stored, error) {
	if e.opts.timeout <= 0 {
		return e.run(s)
	}
	t := &trial{out: make(chan trialResult, 1)}
	go e.try1(t, s)
	timer := time.NewTimer(e.opts.timeout)
	defer timer.Stop()
	select {
	case r := <-t.out:
		return e.settled(r, s)
	case <-timer.C:
	}
	if !t.state.CompareAndSwap(trialRuns, trialAbandoned) {
		return e.settled(<-t.out, s)
	}
	e.act.stuck(+1)
	return stored{}, e.late(nil)
}

// trial is an attempt on a goroutine of its own. Whoever changes its state first decides: ended, and its result counts, or
// abandoned, and nobody will look at it.
type trial struct {
	state atomic.Int32
	out   chan trialResult
}

const (
	trialRuns int32 = iota
	trialEnded
	trialAbandoned
)

type trialResult struct {
	out    stored
	err    error
	panic  *Panic
	goexit bool
}

// try1 is the attempt's goroutine. Nobody waits for it once it is abandoned: it is counted as stuck until it returns.
func (e *effect) try1(t *trial, s StepContext) {
	r := trialResult{goexit: true} // until the function returns or panics
	defer func() {
		if p := recover(); p != nil {
			r = trialResult{panic: &Panic{Value: p, Stack: debug.Stack()}}
		}
		if t.state.CompareAndSwap(trialRuns, trialEnded) {
			t.out <- r
			return
		}
		e.act.stuck(-1)
		if log := e.act.job.Logger; r.panic != nil && log != nil {
			log.Warn("an abandoned step panicked", "step", s.Name, "step_key", s.Key, "panic", r.panic.Error())
		}
	}()
	r.out, r.err = e.run(s)
	r.goexit = false
}

// settled brings the result, the panic or the Goexit of an attempt to the handler's goroutine.
func (e *effect) settled(r trialResult, s StepContext) (stored, error) {
	switch {
	case r.panic != nil:
		panic(r.panic)
	case r.goexit:
		runtime.Goexit()
	case r.err != nil && s.Err() != nil && e.act.ctx.Err() == nil:
		// It gave up because its time was over, just before it would have been abandoned.
		return stored{}, e.late(r.err)
	}
	return r.out, r.err
}

func (e *effect) late(err error) error {
	return &timeoutError{what: fmt.Sprintf("step %q", e.name), after: e.opts.timeout, err: err}
}

func (a *activation) stuck(delta int) {
	if a.job.OnStuck != nil {
		a.job.OnStuck(delta)
	}
}
