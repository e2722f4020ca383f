package agentactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// activation is the work of one assignment, from Begin to Commit, on a goroutine of its own.
type activation struct {
	cfg    *Config
	assign *messages.Assign
	low    *lowRoad
}

// run returns what the bridge does with the entry, or the text of a crash: then nothing was committed and the supervisor
// gives the same assignment to a fresh actor.
func (a activation) run(ctx context.Context) (done *messages.Done, crash string) {
	begun, err := a.begin(ctx)
	if err != nil {
		return a.done(messages.Verdict_VERDICT_DROP), ""
	}
	switch begun.Answer {
	case actors.Run:
	case actors.AlreadyDone, actors.Elsewhere, actors.CancelledBefore:
		return a.done(messages.Verdict_VERDICT_ACK), ""
	case actors.Queued:
		return a.done(messages.Verdict_VERDICT_MOVED), ""
	case actors.Conflict:
		return a.bury(messages.Reason_REASON_ID_CONFLICT, begun.Detail), ""
	case actors.Condemned:
		v := actors.Verdict{Outcome: messages.Outcome_OUTCOME_REJECTED, Reason: begun.Reason, Detail: begun.Detail, Error: begun.Detail}
		return a.commit(ctx, begun, v, time.Now()), ""
	case actors.NotOurs, actors.Later:
		return a.done(messages.Verdict_VERDICT_DROP), ""
	default:
		return a.done(messages.Verdict_VERDICT_DROP), ""
	}

	began := time.Now()
	a.cfg.Hooks.Began(a.assign.GetTask(), begun)
	agent, handler, known := a.cfg.Agents.Find(a.assign.GetTask().GetType())
	if !known { // the bridge moves such entries; a node never buries what another could run
		return a.done(messages.Verdict_VERDICT_DROP), ""
	}
	if v, spent := actors.Spent(begun.Ledger, agent.Budget()); spent {
		if a.assign.GetCrash() != "" {
			v.Error = firstLine(a.assign.GetCrash())
		}
		return a.commit(ctx, begun, v, began), ""
	}
	if a.assign.GetRestartsSpent() {
		return a.commit(ctx, begun, a.afterRestarts(agent, begun), began), ""
	}
	v, crash := a.handle(ctx, agent, handler, begun)
	if crash != "" {
		return nil, crash
	}
	return a.commit(ctx, begun, v, began), ""
}

// begin asks until it is answered. A unit on trial's waiting list waits here: its entry stays in the window.
func (a activation) begin(ctx context.Context) (actors.Begun, error) {
	req := actors.BeginRequest{
		Task: a.assign.GetTask(), Entry: a.assign.GetEntry().Ref(), Deliveries: a.assign.GetEntry().GetDeliveries(),
		Wake: a.assign.GetEntry().GetWake(), Consumer: a.cfg.Consumer, Incarnation: a.cfg.Incarnation,
		Activation: a.assign.GetActivation(), Crash: a.assign.GetCrash(), MaxDeliveries: a.cfg.MaxDeliveries,
	}
	for try := 0; ; try++ {
		begun, err := a.cfg.State.Begin(ctx, req)
		switch {
		case err == nil && begun.Answer != actors.Later:
			return begun, nil
		case err == nil:
			try = -1
			if !pause(ctx, begun.Wait) {
				return begun, context.Cause(ctx)
			}
		case !pause(ctx, backoff(try)):
			return begun, context.Cause(ctx)
		}
	}
}

// handle runs the handler, here or in a plain protoactor actor.
func (a activation) handle(ctx context.Context, agent actors.Agent, handler string, begun actors.Begun) (v actors.Verdict, crash string) {
	if props, low := agent.External(); low {
		v, crash = a.low.run(ctx, props, agent.Timeout(), begun)
		return a.decide(v, agent, begun), crash
	}
	defer func() {
		if r := recover(); r != nil {
			crash = crashText(r)
		}
	}()
	v = actors.Activate(ctx, actors.Job{
		Agent: agent, Handler: handler, Task: a.assign.GetTask(), Begun: begun, Store: a.cfg.State, Desk: a.cfg.State,
		MaxResult: a.cfg.MaxResult, Logger: a.cfg.Logger, OnStep: a.cfg.Hooks.Step, OnStuck: a.cfg.Hooks.Stuck,
	})
	return v, ""
}

func crashText(r any) string {
	var p *actors.Panic
	if err, ok := r.(error); ok && errors.As(err, &p) {
		return p.Error()
	}
	return fmt.Sprintf("%v\n\n%s", r, debug.Stack())
}

// afterRestarts is the verdict on a unit whose actors crashed more often than the supervisor restarts them. Begin has
// charged the crash, so the ledger holds it already.
func (a activation) afterRestarts(agent actors.Agent, begun actors.Begun) actors.Verdict {
	b := agent.Budget()
	return actors.Verdict{
		Outcome: messages.Outcome_OUTCOME_RETRY, Charge: messages.Charge_CHARGE_UNSPECIFIED, // charged by Begin
		Error: firstLine(a.assign.GetCrash()), After: b.Retry.Delay(int(min(begun.Ledger.Crashes, 1000)), rand.Float64()),
	}
}

func (a activation) decide(v actors.Verdict, agent actors.Agent, begun actors.Begun) actors.Verdict {
	var age time.Duration
	if !begun.Created.IsZero() {
		age = time.Since(begun.Created)
	}
	return actors.Decide(v, begun.Ledger, agent.Budget(), age, rand.Float64())
}

// commit writes the outcome until the store has it, a fence refuses it, or the node gives up: a paid result is not thrown
// away because the server was away for longer than a lease.
func (a activation) commit(ctx context.Context, begun actors.Begun, v actors.Verdict, began time.Time) *messages.Done {
	switch {
	case errors.Is(context.Cause(ctx), actors.ErrLeaseLost):
		a.cfg.Hooks.Lost(a.assign.GetTask())
		return a.done(messages.Verdict_VERDICT_DROP)
	case v.Outcome == messages.Outcome_OUTCOME_UNSPECIFIED:
		a.cfg.Hooks.Lost(a.assign.GetTask())
		return a.done(messages.Verdict_VERDICT_DROP)
	case v.Outcome == messages.Outcome_OUTCOME_INTERRUPTED:
		return a.interrupt(begun, v)
	}
	c := a.outcome(begun, v)
	for try := 0; ; try++ {
		err := a.cfg.State.Commit(a.cfg.Hard, c)
		switch {
		case err == nil:
			a.cfg.Hooks.Ended(a.assign.GetTask(), c, time.Since(began))
			return a.done(messages.Verdict_VERDICT_ACK)
		case errors.Is(err, actors.ErrLeaseLost):
			a.cfg.Hooks.Lost(a.assign.GetTask())
			return a.done(messages.Verdict_VERDICT_DROP)
		case !pause(a.cfg.Hard, backoff(try)):
			return a.done(messages.Verdict_VERDICT_DROP)
		}
	}
}

// interrupt notes, once, that the unit stopped for the drain, free of charge. The entry is not acknowledged: the drain's
// release gives it back, and notes the same for units whose handlers have not returned by then.
func (a activation) interrupt(begun actors.Begun, v actors.Verdict) *messages.Done {
	c := a.outcome(begun, v)
	if a.cfg.State.Commit(a.cfg.Hard, c) == nil {
		a.cfg.Hooks.Ended(a.assign.GetTask(), c, 0)
	}
	return a.done(messages.Verdict_VERDICT_DROP)
}

func (a activation) outcome(begun actors.Begun, v actors.Verdict) actors.Commit {
	c := v.Commit(a.assign.GetTask(), begun.Fence, a.assign.GetEntry().Ref())
	c.TTL, c.DeadTTL, c.Index = a.cfg.KeepSucceeded, a.cfg.KeepDead, a.cfg.Index
	if v.Outcome == messages.Outcome_OUTCOME_REJECTED {
		c.TTL = a.cfg.KeepFailed
	}
	return c
}

func (a activation) done(v messages.Verdict) *messages.Done {
	return &messages.Done{TaskId: a.assign.GetTask().GetTaskId(), Entry: a.assign.GetEntry(), Verdict: v}
}

func (a activation) bury(reason messages.Reason, detail string) *messages.Done {
	d := a.done(messages.Verdict_VERDICT_BURY)
	d.Reason, d.Detail = reason, detail
	return d
}

// pause waits; false means that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff grows from 50 ms to 2 s, ±50 %.
func backoff(try int) time.Duration {
	d := min(50*time.Millisecond<<min(try, 10), 2*time.Second)
	return d/2 + time.Duration(rand.Int64N(int64(d)))
}

func firstLine(s string) string {
	for i, r := range s {
		if r == '\n' {
			return s[:i]
		}
	}
	return s
}
