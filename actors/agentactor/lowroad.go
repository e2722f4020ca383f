package agentactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// FromProps makes an agent of a plain protoactor actor: the low road. For each activation a fresh actor is spawned and gets
// *messages.Assign with task, fence and deadline as a request; it answers its sender with *messages.Finished (see Finish).
// Around it Weir does Begin and Commit, and only after the commit the entry is acknowledged.
//
// It gets *messages.Cancel when it should stop. An answer with an old fence is ignored. A panic, an end without an answer,
// and silence past the deadline (actors.Timeout, default 15 minutes) are crashes: a fresh actor gets the same Assign. There
// are no checkpoints on this road, and so no waits: what a message or a child brought could not be told to the actor that
// comes next. OUTCOME_PARKED is misuse. RETRY with after_ms holds nothing while it waits, and what a person has to answer can
// be another task.
func FromProps(p *actor.Props) actors.Agent {
	if p == nil {
		return actors.External(nil)
	}
	return actors.External(p)
}

// Finish makes the answer to an Assign: COMPLETED with the result, or RETRY with the error.
func Finish(m *messages.Assign, contentType string, result []byte, err error) *messages.Finished {
	f := &messages.Finished{
		TaskId: m.GetTask().GetTaskId(), Unit: m.GetTask().GetUnit(), Fence: m.GetFence(),
		Outcome: messages.Outcome_OUTCOME_COMPLETED, ContentType: contentType, Result: result,
	}
	if err != nil {
		f.Outcome, f.Error, f.ContentType, f.Result = messages.Outcome_OUTCOME_RETRY, err.Error(), "", nil
	}
	return f
}

const defaultDeadline = 15 * time.Minute

// handOver asks the agent actor to spawn the plain actor: children are made in Receive.
type handOver struct {
	props  *actor.Props
	assign *messages.Assign
}

// lowRoad is the exchange with a plain actor. Its methods with a Context run in the agent actor's Receive.
type lowRoad struct {
	cfg    *Config
	assign *messages.Assign
	ask    func(handOver)
	answer chan *messages.Finished
	gone   chan string

	child  *actor.PID
	fence  uint64
	reason string
}

func newLowRoad(cfg *Config, m *messages.Assign, ask func(handOver)) *lowRoad {
	agent, _, ok := cfg.Agents.Find(m.GetTask().GetType())
	if _, low := agent.External(); !ok || !low {
		return nil
	}
	return &lowRoad{cfg: cfg, assign: m, ask: ask, answer: make(chan *messages.Finished, 1), gone: make(chan string, 1)}
}

// run hands the unit over and waits for the answer, on the activation's goroutine.
func (l *lowRoad) run(ctx context.Context, props any, limit time.Duration, begun actors.Begun) (actors.Verdict, string) {
	p, ok := props.(*actor.Props)
	if !ok {
		return actors.Verdict{
			Outcome: messages.Outcome_OUTCOME_REJECTED, Reason: messages.Reason_REASON_MISUSE,
			Error: fmt.Sprintf("External got %T, which this runtime cannot run", props),
		}, ""
	}
	if limit <= 0 {
		limit = defaultDeadline
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	l.ask(handOver{props: p, assign: &messages.Assign{
		Task: l.assign.GetTask(), Entry: l.assign.GetEntry(), Fence: begun.Fence.Number, Activation: l.assign.GetActivation(),
		Deadline: timestamppb.New(time.Now().Add(limit)), Attempt: begun.Ledger.Attempt(), Crash: l.assign.GetCrash(),
	}})
	select {
	case f := <-l.answer:
		return verdictOf(f, l.cfg.MaxResult), ""
	case why := <-l.gone:
		return actors.Verdict{}, why
	case <-deadline.C:
		return actors.Verdict{}, fmt.Sprintf("no answer within %s", limit)
	case <-ctx.Done():
		// A cancelled actor may still answer; the fence decides whether that counts.
		grace := time.NewTimer(cancelGrace)
		defer grace.Stop()
		select {
		case f := <-l.answer:
			return verdictOf(f, l.cfg.MaxResult), ""
		case <-l.gone:
		case <-grace.C:
		}
		outcome := messages.Outcome_OUTCOME_INTERRUPTED
		if errors.Is(context.Cause(ctx), actors.ErrCancelled) {
			outcome = messages.Outcome_OUTCOME_CANCELLED
		}
		return actors.Verdict{Outcome: outcome, Error: context.Cause(ctx).Error()}, ""
	}
}

// cancelGrace is how long a cancelled plain actor may take to answer.
const cancelGrace = time.Second

func verdictOf(f *messages.Finished, maxResult int) actors.Verdict {
	v := actors.Verdict{
		Outcome: f.GetOutcome(), ContentType: f.GetContentType(), Result: f.GetResult(), Error: f.GetError(),
		After: time.Duration(f.GetAfterMs()) * time.Millisecond,
	}
	switch f.GetOutcome() {
	case messages.Outcome_OUTCOME_COMPLETED:
		if len(v.Result) > maxResult {
			return actors.Verdict{
				Outcome: messages.Outcome_OUTCOME_REJECTED, Reason: messages.Reason_REASON_TOO_LARGE,
				Error: fmt.Sprintf("result of %d bytes, at most %d are allowed", len(v.Result), maxResult),
			}
		}
	case messages.Outcome_OUTCOME_RETRY:
		v.Charge = messages.Charge_CHARGE_FAILURE
	case messages.Outcome_OUTCOME_REJECTED:
		v.Reason, v.Detail = messages.Reason_REASON_REJECTED, f.GetError()
	case messages.Outcome_OUTCOME_INTERRUPTED:
	case messages.Outcome_OUTCOME_PARKED:
		return actors.Verdict{
			Outcome: messages.Outcome_OUTCOME_REJECTED, Reason: messages.Reason_REASON_MISUSE,
			Error: "a plain actor cannot wait, it has no checkpoints: answer OUTCOME_RETRY with after_ms",
		}
	default:
		return actors.Verdict{
			Outcome: messages.Outcome_OUTCOME_REJECTED, Reason: messages.Reason_REASON_MISUSE,
			Error: fmt.Sprintf("a plain actor answered with outcome %s", f.GetOutcome()),
		}
	}
	return v
}

func (l *lowRoad) spawn(c actor.Context, h handOver) {
	l.fence = h.assign.GetFence()
	l.child = c.Spawn(h.props)
	c.Request(l.child, h.assign)
}

func (l *lowRoad) finished(f *messages.Finished) {
	if f.GetFence() != l.fence || f.GetTaskId() != l.assign.GetTask().GetTaskId() || f.GetUnit() != l.assign.GetTask().GetUnit() {
		return // an old one
	}
	select {
	case l.answer <- f:
	default: // it has answered before
	}
}

func (l *lowRoad) terminated(who *actor.PID) {
	if l.child == nil || !l.child.Equal(who) {
		return
	}
	why := l.reason
	if why == "" {
		why = "the actor stopped without an answer"
	}
	select {
	case l.gone <- why:
	default:
	}
}

func (l *lowRoad) cancel(c actor.Context, m *messages.Cancel) {
	if l.child != nil {
		c.Send(l.child, m)
	}
}
