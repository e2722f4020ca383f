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
	began := time.Now()
	t := newTrial(func() (stored, error) { return e.run(s) }, func(r trialResult) {
		e.act.back(e.name, e.opts.timeout, time.Since(began), r)
	})
	timer := time.NewTimer(e.opts.timeout)
	defer timer.Stop()
	select {
	case r := <-t.out:
		return e.settled(r, s)
	case <-timer.C:
	}
	if !t.abandon() {
		return e.settled(<-t.out, s)
	}
	e.act.stuck(StuckEvent{Step: e.name, Timeout: e.opts.timeout})
	return stored{}, e.late(nil)
}

// trial is work on a goroutine of its own. Whoever changes its state first decides: ended, and its result counts, or
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

// newTrial runs f. Nobody waits for it once it is abandoned: late is called when it comes back after all.
func newTrial(f func() (stored, error), late func(trialResult)) *trial {
	t := &trial{out: make(chan trialResult, 1)}
	go func() {
		r := trialResult{goexit: true} // until the function returns or panics
		defer func() {
			if p := recover(); p != nil {
				r = trialResult{panic: &Panic{Value: p, Stack: debug.Stack()}}
			}
			if t.state.CompareAndSwap(trialRuns, trialEnded) {
				t.out <- r
				return
			}
			late(r)
		}()
		r.out, r.err = f()
		r.goexit = false
	}()
	return t
}

// abandon reports whether nobody will look at the result any more; else it is in out.
func (t *trial) abandon() bool { return t.state.CompareAndSwap(trialRuns, trialAbandoned) }

// carry brings a panic or a Goexit to the caller's goroutine.
func (r trialResult) carry() {
	if r.panic != nil {
		panic(r.panic)
	}
	if r.goexit {
		runtime.Goexit()
	}
}

// settled brings the result, the panic or the Goexit of an attempt to the handler's goroutine.
func (e *effect) settled(r trialResult, s StepContext) (stored, error) {
	r.carry()
	if r.err != nil && s.Err() != nil && e.act.ctx.Err() == nil {
		// It gave up because its time was over, just before it would have been abandoned.
		return stored{}, e.late(r.err)
	}
	return r.out, r.err
}

func (e *effect) late(err error) error {
	return &timeoutError{what: fmt.Sprintf("step %q", e.name), after: e.opts.timeout, err: err}
}
