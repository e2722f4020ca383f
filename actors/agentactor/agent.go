package agentactor

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Props makes agent actors: each serves one assignment and is then stopped by its supervisor, its parent.
func Props(cfg Config) *actor.Props {
	cfg.shared = &shared{court: newCourt()}
	if cfg.MostHere > 0 {
		cfg.here = make(chan struct{}, cfg.MostHere)
	}
	// An agent actor gets three messages in its life: what counts is what its mailbox costs to make.
	return actor.PropsFromProducer(func() actor.Actor { return &agent{cfg: &cfg} }, actor.WithMailbox(actor.UnboundedLockfree()))
}

// agent serves one assignment.
type agent struct {
	cfg    *Config
	assign *messages.Assign
	cancel context.CancelCauseFunc
	low    *lowRoad // set while a plain protoactor actor is at work
}

// ended is posted by the activation's goroutine when nothing is left to do but to tell the bridge.
type ended struct{ done *messages.Done }

// crashed is posted when the handler panicked or left its goroutine.
type crashed struct{ text string }

// Crash is what an agent actor panics with: the handler's panic, carried to the supervisor.
type Crash struct{ Text string }

// String is the panic's value and stack.
func (c Crash) String() string { return c.Text }

func (a *agent) Receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *messages.Assign:
		a.start(c, m)
	case *messages.Cancel:
		a.stop(c, m)
	case ended:
		a.end()
		c.Request(c.Parent(), m.done)
	case crashed:
		a.end()
		panic(Crash{m.text})
	case handOver:
		a.low.spawn(c, m)
	case *messages.Finished:
		if a.low != nil {
			a.low.finished(m)
		}
	case *actor.Terminated:
		if a.low != nil {
			a.low.terminated(m.GetWho())
		}
	case *actor.Stopping:
		// A panic in a life-cycle message would resurrect the actor; it ends either way.
		defer func() { _ = recover() }()
		a.end()
	}
}

// HandleFailure is the strategy for a plain protoactor actor: remember why and stop it.
func (a *agent) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	if a.low != nil {
		a.low.reason = fmt.Sprint(reason)
	}
	s.StopChildren(child)
}

func (a *agent) start(c actor.Context, m *messages.Assign) {
	if a.assign != nil {
		panic("a second assignment for one agent actor")
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	a.assign, a.cancel = m, cancel
	self, root := c.Self(), c.ActorSystem().Root
	a.low = newLowRoad(a.cfg, m, func(h handOver) { root.Send(self, h) })
	act := &activation{cfg: a.cfg, assign: m, low: a.low}
	act.serve(ctx, func(how any) { root.Send(self, how) })
}

// stop ends the activation's context with a cause. The goroutine still says how it ended.
func (a *agent) stop(c actor.Context, m *messages.Cancel) {
	if a.cancel == nil {
		return
	}
	switch m.GetCause() {
	case messages.CancelCause_CANCEL_CAUSE_LEASE_LOST:
		a.cancel(actors.ErrLeaseLost)
	case messages.CancelCause_CANCEL_CAUSE_DRAINING:
		a.cancel(actors.ErrDraining)
	default:
		cause := actors.ErrCancelled
		if m.GetReason() != "" {
			cause = fmt.Errorf("%w: %s", cause, m.GetReason())
		}
		a.cancel(cause)
	}
	if a.low != nil {
		a.low.cancel(c, m)
	}
}

func (a *agent) end() {
	if a.cancel != nil {
		a.cancel(context.Canceled)
	}
}
