package streambridge

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// This file is how the bridge's parts run: goroutines with an owner and an end, and two actors.

// post sends an event to the bridge actor.
func (b *Bridge) post(ev event) { b.system.Root.Send(b.pid, ev) }

// holdings are the tasks behind what is given back. A window that does not answer any more cannot name them: then others
// find out by themselves that their owner is gone.
func (b *Bridge) holdings(ctx context.Context) []Held {
	held, err := b.held(ctx)
	if err != nil {
		b.log.Warn("the window does not say what it holds", "error", err)
	}
	out := make([]Held, len(held))
	for i, one := range held {
		out[i] = one.Held
	}
	return out
}

// closeStream closes an adapter that has something to close.
func (b *Bridge) closeStream() error {
	c, ok := b.cfg.Stream.(io.Closer)
	if !ok {
		return nil
	}
	if err := c.Close(); err != nil {
		return fmt.Errorf("close the stream: %w", err)
	}
	return nil
}

// held asks the bridge actor what to renew.
func (b *Bridge) held(ctx context.Context) ([]holding, error) {
	reply := make(chan []holding, 1)
	b.system.Root.Send(b.pid, tellHeld{reply})
	select {
	case held := <-reply:
		return held, nil
	case <-b.failed:
		return nil, b.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// member is an actor of the bridge's own.
type member struct {
	pid     *actor.PID
	stopped <-chan struct{} // closed by the actor
	told    sync.Once
}

// spawn starts an actor at the root: its guard keeps panics from any supervisor.
func (b *Bridge) spawn(a actor.Actor, stopped <-chan struct{}) *member {
	var opts []actor.PropsOption
	if b.cfg.Dispatcher != nil {
		opts = append(opts, actor.WithDispatcher(b.cfg.Dispatcher))
	}
	return &member{pid: b.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return a }, opts...)), stopped: stopped}
}

// end tells an actor to stop, once: a second Stop would be a dead letter.
func (b *Bridge) end(m *member) { m.told.Do(func() { b.system.Root.Stop(m.pid) }) }

// await ends an actor and waits for its end; not for ever, should its mailbox not run any more.
func (b *Bridge) await(m *member) {
	b.end(m)
	patience := time.NewTimer(b.cfg.ioTimeout())
	defer patience.Stop()
	select {
	case <-m.stopped:
	case <-patience.C:
		b.log.Error("an actor of the bridge did not stop", "pid", m.pid.GetId())
	}
}

func (b *Bridge) guard(ctx actor.Context) {
	if p := recover(); p != nil {
		b.panicked(ctx.Message(), p, debug.Stack())
	}
}

// loop is a goroutine with an end of its own.
type loop struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// loop starts one. Its panic is the bridge's end, not the process's.
func (b *Bridge) loop(ctx context.Context, run func(context.Context)) *loop {
	ctx, cancel := context.WithCancelCause(ctx)
	l := &loop{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer func() {
			if p := recover(); p != nil {
				b.panics.Add(1)
				b.log.Error("panic in a loop of the bridge", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				b.fail(fmt.Errorf("%w: panic in a loop: %v", ErrBroken, p))
			}
		}()
		run(ctx)
	}()
	return l
}

func (l *loop) wait() { <-l.done }

func (l *loop) stop() {
	l.cancel(context.Canceled)
	l.wait()
}

// endLoops tells all loops to end. It waits for none, so that a loop may call it.
func (b *Bridge) endLoops(cause error) {
	b.mu.Lock() // Start may be at work
	defer b.mu.Unlock()
	for _, l := range []*loop{b.reading, b.acking, b.burying, b.mailing, b.beating} {
		if l != nil {
			l.cancel(cause)
		}
	}
	if b.reaping != nil {
		b.end(b.reaping)
	}
}
