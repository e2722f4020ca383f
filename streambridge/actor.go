package streambridge

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/weir-run/weir/messages"
)

// core is the bridge actor: it owns the window, feeds it what comes in and performs what it decides. It never blocks:
// whatever talks to the server is a goroutine that takes work from an outbox and posts an event back.
type core struct {
	bridge  *Bridge
	window  *window
	agents  *actor.PID
	stopped chan struct{}
	// drained is closed when a drain has nothing to wait for; nil before the drain.
	drained chan struct{}
	broken  bool
}

// The core's private messages, besides events.
type (
	// tellHeld asks for what is held; reply has room for the answer.
	tellHeld struct{ reply chan<- []holding }
	// beginDrain carries the channel to close when nothing runs any more.
	beginDrain struct{ drained chan struct{} }
)

func (tellHeld) IgnoreDeadLetterLogging()   {}
func (beginDrain) IgnoreDeadLetterLogging() {}

// Receive never blocks.
func (c *core) Receive(ctx actor.Context) {
	defer c.guard(ctx)
	message := ctx.Message()
	if _, last := message.(*actor.Stopped); last {
		close(c.stopped)
		return
	}
	if c.broken {
		return
	}
	switch m := message.(type) {
	case *messages.Done:
		c.step(ctx, finished{m})
	case swept:
		c.step(ctx, m)
		ctx.Respond(taken{more: m.more})
	case event:
		c.step(ctx, m)
	case tellHeld:
		m.reply <- c.window.held()
	case beginDrain:
		c.drained = m.drained
		c.step(ctx, drain{})
	}
}

// step performs the window's effects in their order, then shows the new state: an Assign is on its way before the reader
// learns of the next credit.
func (c *core) step(ctx actor.Context, ev event) {
	b := c.bridge
	for _, e := range c.window.Step(ev) {
		switch e := e.(type) {
		case assign:
			ctx.Request(c.agents, e.Assign)
		case cancel:
			ctx.Request(c.agents, e.Cancel)
		case acknowledge:
			b.acker.box.put(e.ref)
		case bury:
			b.log.Warn("an entry becomes a dead letter", "reason", messages.ReasonName(e.Reason), "task_id", e.TaskID, "type", e.Type,
				"stream", e.Stream, "entry_id", e.ID, "deliveries", e.Deliveries)
			b.burier.box.put(errand{letter: e.Burial, held: Held{Ref: e.Ref}})
		case move:
			b.burier.box.put(errand{agent: e.agent, held: e.held})
		case deliver:
			b.postman.box.put(e.Mail)
		case report:
			b.emit(e.Event)
		case idle:
			close(c.drained)
		case giveUp:
			b.fail(e.err)
		}
	}
	b.board.publish(c.window)
}

// guard keeps a panic in Receive from the default supervisor, which would start a fresh actor with an empty window
// while the old one's work runs on. A window that panicked cannot be trusted: what it holds might wait for ever. So the
// bridge gives up as a crash of this node would, loudly and without taking the host's process along: it takes nothing
// more, its beats end, and a lease later other nodes have what it held. The runtime sees Failed and ends. A panic in a
// message of the life cycle is only counted: there is nothing to lose in it.
func (c *core) guard(ctx actor.Context) {
	p := recover()
	if p == nil {
		return
	}
	c.bridge.panicked(ctx.Message(), p, debug.Stack())
	if _, harmless := ctx.Message().(actor.AutoReceiveMessage); !harmless {
		c.broken = true
	}
}

// panicked is what both actors of the bridge do about a panic in Receive.
func (b *Bridge) panicked(message, p any, stack []byte) {
	b.panics.Add(1)
	// The message is named by its type only: it may hold a payload.
	b.log.Error("panic in an actor of the bridge", "message", fmt.Sprintf("%T", message), "panic", fmt.Sprint(p), "stack", string(stack))
	if _, harmless := message.(actor.AutoReceiveMessage); !harmless {
		b.fail(fmt.Errorf("%w: panic on %T: %v", ErrBroken, message, p))
	}
}

// emit calls the host's hook. What it does wrong is no reason to lose an entry.
func (b *Bridge) emit(ev Event) {
	if b.cfg.Events == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			b.panics.Add(1)
			b.log.Error("the Events hook panicked", "event", ev.Name(), "panic", fmt.Sprint(p))
		}
	}()
	b.cfg.Events(ev)
}

// fail gives up, once. The loops end by themselves; Drain or Stop waits for them.
func (b *Bridge) fail(err error) {
	b.failOnce.Do(func() {
		b.failure.Store(&err)
		close(b.failed)
		b.endLoops(err)
		if errors.Is(err, ErrUsurped) {
			b.log.Error("another process took over the consumer name; nothing that was held is ours any more")
			return
		}
		b.log.Error("the bridge has stopped", "error", err)
		b.emit(Broken{Err: err})
	})
}
