package agentactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// activation is the work of one assignment, from Begin to Commit.
//
// A hundred thousand of them may sleep in their handlers at once, and what their goroutines cost is the stack that they
// once needed. So big values are kept here and not in the frames below a handler, and in a crowd the handler gets a fresh
// goroutine, which never needed what Begin and decoding do.
type activation struct {
	cfg    *Config
	assign *messages.Assign
	low    *lowRoad

	begun   actors.Begun
	trial   uint64 // its number in the court, when it runs on one
	began   time.Time
	ready   *actors.Ready // nil for a plain protoactor actor
	verdict actors.Verdict
	resumed *resumed // set from the second call of the handler on
	inside  bool     // has a token of shared.here
	limits  []actors.Limited
}

// serve works in goroutines of its own and tells how it ended, once: ended says what the bridge does with the entry;
// after crashed nothing was committed, and the supervisor gives the same assignment to a fresh actor.
func (a *activation) serve(ctx context.Context, tell func(any)) {
	go watched(tell, func() any {
		handedOver := false
		defer func() {
			if !handedOver {
				a.leave()
			}
		}()
		if how := a.open(ctx); how != nil {
			a.acquit()
			return how
		}
		if a.cfg.atWork.Load() < crowd {
			return a.work(ctx)
		}
		handedOver = true
		go watched(tell, func() any {
			defer a.leave()
			return a.work(ctx)
		})
		return nil
	})
}

// enter waits for a place among those that run on this node. It comes before the store gives slots, so that nobody has those
// and waits here.
func (a *activation) enter(ctx context.Context) error {
	if a.cfg.here == nil {
		return nil
	}
	select {
	case a.cfg.here <- struct{}{}:
		a.inside = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *activation) leave() {
	if a.inside {
		a.inside = false
		<-a.cfg.here
	}
}

// crowd is how many handlers have a stack as it comes; it costs a twentieth of a small task to get a fresh one.
const crowd = 2000

// watched tells what f returns, if anything, also when f never returns. The goroutine outlives neither the handler nor
// the commit; one that a handler never returns from is the handler's, and what it does next is refused by the fence.
func watched(tell func(any), f func() any) {
	how := any(crashed{"the handler ended its goroutine (runtime.Goexit)"})
	defer func() {
		if how != nil {
			tell(how)
		}
	}()
	how = f()
}

// work runs the handler and commits; again, when what the handler waits for is there already.
func (a *activation) work(ctx context.Context) any {
	a.cfg.atWork.Add(1)
	defer a.cfg.atWork.Add(-1)
	defer a.acquit()
	for {
		if crash := a.handle(ctx); crash != "" {
			return crashed{crash}
		}
		done, resume := a.commit(ctx)
		if !resume {
			return ended{done}
		}
		if crash := a.resume(ctx); crash != "" {
			return crashed{crash}
		}
		if a.ready == nil { // its message does not decode any more
			return ended{a.finish(ctx)}
		}
	}
}

// open takes the fence and decodes the message. It returns nil when the handler is to run.
func (a *activation) open(ctx context.Context) any {
	if crash := a.limit(); crash != "" {
		return crashed{crash}
	}
	if done := a.take(ctx); done != nil {
		return ended{done}
	}
	if crash := a.prepare(ctx); crash != "" {
		return crashed{crash}
	}
	if a.ready == nil && a.verdict.Outcome != messages.Outcome_OUTCOME_UNSPECIFIED {
		return ended{a.finish(ctx)}
	}
	return nil
}

// limit finds out what the unit runs under. When the restarts are spent nothing runs any more: what is to be written needs
// no slot.
func (a *activation) limit() (crash string) {
	t := a.assign.GetTask()
	agent, _, _ := a.cfg.Agents.Find(t.GetType())
	if a.assign.GetRestartsSpent() || a.cfg.MostRunning <= 0 && !agent.Limited() {
		return ""
	}
	defer func() {
		if r := recover(); r != nil {
			crash = crashText(r)
		}
	}()
	name, _, _ := strings.Cut(t.GetType(), "/")
	a.limits = agent.Limits(name, t, a.cfg.Names.Fields)
	if a.cfg.MostRunning > 0 {
		a.limits = append(a.limits, actors.Limited{Name: messages.GroupLimit(), Most: a.cfg.MostRunning})
	}
	return ""
}

// take takes the fence. It returns nil when it is ours and the handler is to run, else what the bridge does with the entry.
func (a *activation) take(ctx context.Context) *messages.Done {
	err := a.enter(ctx)
	if err == nil {
		err = a.begin(ctx)
	}
	if err != nil {
		if errors.Is(err, actors.ErrCancelled) {
			return a.done(messages.Verdict_VERDICT_ACK) // its state is final, whatever Begin would have said
		}
		return a.done(messages.Verdict_VERDICT_DROP)
	}
	switch a.begun.Answer {
	case actors.Run:
	case actors.AlreadyDone, actors.Elsewhere, actors.CancelledBefore:
		return a.done(messages.Verdict_VERDICT_ACK)
	case actors.Queued:
		return a.done(messages.Verdict_VERDICT_MOVED)
	case actors.Conflict:
		return a.bury(messages.Reason_REASON_ID_CONFLICT, cmp.Or(a.begun.Detail, "the id belongs to other work: another type or payload"))
	case actors.Condemned:
		a.began = time.Now()
		a.verdict = actors.Verdict{
			Outcome: messages.Outcome_OUTCOME_REJECTED, Reason: a.begun.Reason, Detail: a.begun.Detail, Error: a.begun.Detail,
		}
		return a.finish(ctx)
	case actors.Unreadable:
		return a.bury(messages.Reason_REASON_BAD_STATE, a.begun.Detail)
	case actors.NotOurs, actors.Later:
		return a.done(messages.Verdict_VERDICT_DROP)
	default:
		return a.done(messages.Verdict_VERDICT_DROP)
	}

	a.began = time.Now()
	a.cfg.Hooks.Began(a.assign.GetTask(), a.begun)
	agent, _, known := a.cfg.Agents.Find(a.assign.GetTask().GetType())
	if !known { // the bridge moves such entries; a node never buries what another could run
		return a.done(messages.Verdict_VERDICT_DROP)
	}
	if v, spent := actors.Spent(a.begun.Ledger, agent.Budget()); spent {
		if a.assign.GetCrash() != "" {
			v.Error = firstLine(a.assign.GetCrash())
		}
		a.verdict = v
		return a.finish(ctx)
	}
	if a.assign.GetRestartsSpent() {
		a.verdict = a.afterRestarts(agent)
		return a.finish(ctx)
	}
	return nil
}

// begin asks until it is answered. A suspect waits here for its trial: its entry stays in the window.
func (a *activation) begin(ctx context.Context) (err error) {
	for try := 0; ; try++ {
		if !a.cfg.court.pass(ctx) {
			return context.Cause(ctx)
		}
		if a.begun, err = a.ask(ctx, false); err == nil {
			break
		}
		if !pause(ctx, backoff(try)) {
			return context.Cause(ctx)
		}
	}
	if a.begun.Answer == actors.Later {
		a.begun, a.trial, err = a.cfg.court.try(ctx, a.begun, func(trial bool) (actors.Begun, error) { return a.ask(ctx, trial) })
	}
	return err
}

// acquit ends the unit's trial, if it was on one: with its activation, however that ended.
func (a *activation) acquit() {
	if a.begun.Trial {
		a.cfg.court.release(a.trial)
	}
}

// ask is one Begin.
func (a *activation) ask(ctx context.Context, trial bool) (actors.Begun, error) {
	begun, err := a.cfg.State.Begin(ctx, actors.BeginRequest{
		Task: a.assign.GetTask(), Entry: a.assign.GetEntry().Ref(), Deliveries: a.assign.GetEntry().GetDeliveries(),
		Wake: a.assign.GetEntry().GetWake(), Consumer: a.cfg.Consumer, Incarnation: a.cfg.Incarnation,
		Activation: a.assign.GetActivation(), Crash: a.assign.GetCrash(), MaxDeliveries: a.cfg.MaxDeliveries, Trial: trial,
		Due: a.assign.GetTask().Due(a.cfg.Names.Fields), Limits: a.limits,
	})
	if ctx.Err() == nil {
		a.heard(err)
	}
	return begun, err
}

// heard tells the runtime how the store fares.
func (a *activation) heard(err error) {
	if f := a.cfg.Hooks.Store; f != nil {
		f(err)
	}
}

// prepare decodes the message: then ready is set, or the verdict. A plain actor decodes by itself.
func (a *activation) prepare(ctx context.Context) (crash string) {
	agent, handler, _ := a.cfg.Agents.Find(a.assign.GetTask().GetType())
	if _, low := agent.External(); low {
		return ""
	}
	defer func() {
		if r := recover(); r != nil {
			crash = crashText(r)
		}
	}()
	job := &actors.Job{
		Agent: agent, Handler: handler, Task: a.assign.GetTask(), Names: &a.cfg.Names, Begun: a.begun, Store: a.cfg.State, Desk: a.cfg.State,
		Agents: a.cfg.Agents, MaxResult: a.cfg.MaxResult, MaxPayload: a.cfg.MaxPayload, Remember: a.cfg.KeepSucceeded,
		Logger: a.cfg.Logger, OnStep: a.cfg.Hooks.Step, OnStuck: a.cfg.Hooks.Stuck,
		Rates: a.cfg.Rates, Quotas: a.cfg.State, OnQuiet: a.cfg.Hooks.Quiet,
	}
	if a.resumed != nil {
		job.OnReplay = a.resumed.replayed
	}
	a.ready, a.verdict = actors.Prepare(ctx, job)
	return ""
}

// handle runs the handler, here or in a plain protoactor actor.
func (a *activation) handle(ctx context.Context) (crash string) {
	if a.ready == nil {
		return a.lowRoad(ctx)
	}
	defer func() {
		if r := recover(); r != nil {
			crash = crashText(r)
		}
	}()
	a.verdict = a.ready.Run()
	return ""
}

//go:noinline
func (a *activation) lowRoad(ctx context.Context) (crash string) {
	agent, _, _ := a.cfg.Agents.Find(a.assign.GetTask().GetType())
	props, _ := agent.External()
	v, crash := a.low.run(ctx, props, agent.Timeout(), a.begun)
	a.verdict = a.decide(v, agent)
	return crash
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
func (a *activation) afterRestarts(agent actors.Agent) actors.Verdict {
	b := agent.Budget()
	return actors.Verdict{
		Outcome: messages.Outcome_OUTCOME_RETRY, Charge: messages.Charge_CHARGE_UNSPECIFIED, // charged by Begin
		Error: firstLine(a.assign.GetCrash()), After: b.Retry.Delay(int(min(a.begun.Ledger.Crashes, 1000)), rand.Float64()),
	}
}

func (a *activation) decide(v actors.Verdict, agent actors.Agent) actors.Verdict {
	var age time.Duration
	if !a.begun.Created.IsZero() {
		age = time.Since(a.begun.Created)
	}
	return actors.Decide(v, a.begun.Ledger, agent.Budget(), age, rand.Float64())
}

// commit writes the outcome until the store has it, a fence refuses it, or the node gives up: a paid result is not thrown
// away because the server was away for longer than a lease. resume says that the unit does not wait: it is still ours, and
// the handler is to be called again.
//
//go:noinline
func (a *activation) commit(ctx context.Context) (done *messages.Done, resume bool) {
	switch {
	case errors.Is(context.Cause(ctx), actors.ErrLeaseLost):
		return a.giveUp(), false
	case a.verdict.Outcome == messages.Outcome_OUTCOME_UNSPECIFIED:
		a.cfg.Hooks.Lost(a.assign.GetTask())
		return a.done(messages.Verdict_VERDICT_DROP), false
	case a.verdict.Outcome == messages.Outcome_OUTCOME_INTERRUPTED:
		return a.interrupt(), false
	}
	c := a.outcome()
	for try := 0; ; try++ {
		err := a.cfg.State.Commit(a.cfg.Hard, c) //nolint:contextcheck // outlives the activation's context on purpose
		over := errors.Is(err, actors.ErrResume)
		switch {
		case over:
			a.heard(nil)
		case a.cfg.Hard.Err() == nil && !errors.Is(err, actors.ErrLeaseLost):
			a.heard(err)
		}
		switch {
		case err == nil:
			a.cfg.Hooks.Ended(a.assign.GetTask(), c, time.Since(a.began))
			return a.done(messages.Verdict_VERDICT_ACK), false
		case over:
			return nil, true
		case errors.Is(err, actors.ErrLeaseLost):
			a.cfg.Hooks.Lost(a.assign.GetTask())
			return a.done(messages.Verdict_VERDICT_DROP), false
		case !pause(a.cfg.Hard, backoff(try)): //nolint:contextcheck // as above
			return a.done(messages.Verdict_VERDICT_DROP), false
		}
	}
}

// finish commits a verdict that waits for nothing.
func (a *activation) finish(ctx context.Context) *messages.Done {
	done, _ := a.commit(ctx)
	return done
}

// interrupt notes, once, that the unit stopped for the drain, free of charge. The entry is not acknowledged: the drain's
// release gives it back, and notes the same for units whose handlers have not returned by then.
func (a *activation) interrupt() *messages.Done {
	c := a.outcome()
	if a.cfg.State.Commit(a.cfg.Hard, c) == nil {
		a.cfg.Hooks.Ended(a.assign.GetTask(), c, 0)
	}
	return a.done(messages.Verdict_VERDICT_DROP)
}

// giveUp ends the ownership of a task whose entry another node has. If that one has begun, the fence refuses this and
// nothing is lost; if it has not, it would wait for an owner that lives and is not at work, as long as it lives.
func (a *activation) giveUp() *messages.Done {
	a.cfg.Hooks.Lost(a.assign.GetTask())
	a.verdict = actors.Verdict{Outcome: messages.Outcome_OUTCOME_INTERRUPTED, Error: actors.ErrLeaseLost.Error()}
	c := a.outcome()
	for try := 0; ; try++ {
		err := a.cfg.State.Commit(a.cfg.Hard, c)
		if err == nil || errors.Is(err, actors.ErrLeaseLost) || !pause(a.cfg.Hard, backoff(try)) {
			return a.done(messages.Verdict_VERDICT_DROP)
		}
	}
}

func (a *activation) outcome() actors.Commit {
	c := a.verdict.Commit(a.assign.GetTask(), a.begun.Fence, a.assign.GetEntry().Ref())
	c.TTL, c.DeadTTL, c.Index = a.cfg.KeepSucceeded, a.cfg.KeepDead, a.cfg.Index
	switch a.verdict.Outcome {
	case messages.Outcome_OUTCOME_REJECTED:
		// Its dead letter may be retried, and goes on from the checkpoints: an effect without them would run blindly again.
		c.TTL = max(a.cfg.KeepFailed, a.cfg.KeepDead)
	case messages.Outcome_OUTCOME_CANCELLED:
		c.TTL = a.cfg.KeepFailed
	default: // ended well, or not ended
	}
	return c
}

func (a *activation) done(v messages.Verdict) *messages.Done {
	return &messages.Done{TaskId: a.assign.GetTask().GetTaskId(), Entry: a.assign.GetEntry(), Verdict: v}
}

func (a *activation) bury(reason messages.Reason, detail string) *messages.Done {
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
