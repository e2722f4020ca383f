package supervision

import (
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/agentactor"
	"github.com/weir-run/weir/messages"
)

// hooks count what activations do, and tell subscribers where there are any.
func (r *Runtime) hooks() agentactor.Hooks {
	return agentactor.Hooks{
		Began: func(t *messages.Task, b actors.Begun) {
			r.counts.began.Add(1)
			if r.hub.wanted() {
				r.hub.publish(TaskBegan{
					TaskID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(), Attempt: b.Ledger.Attempt(), Trial: b.Trial,
				})
			}
		},
		Ended: func(t *messages.Task, c actors.Commit, ran time.Duration) {
			r.count(c.Outcome)
			if r.hub.wanted() {
				r.hub.publish(TaskEnded{
					TaskID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(), Outcome: c.Outcome,
					Error: c.Error, Reason: c.Reason, Ran: ran,
				})
			}
			if c.Outcome == messages.Outcome_OUTCOME_REJECTED {
				r.log.Warn("task failed", "task_id", t.GetTaskId(), "unit", t.GetUnit(), "type", t.GetType(), "reason", actors.ReasonName(c.Reason))
			}
		},
		Lost:  func(*messages.Task) { r.counts.lost.Add(1) },
		Store: r.store.heard,
		Step: func(e actors.StepEvent) {
			if r.hub.wanted() {
				r.hub.publish(StepRan{e})
			}
		},
		Quiet: func(bucket string, d time.Duration) {
			r.log.Info("a provider asked for a pause: its quota is closed for the whole group", "quota", bucket, "for", d.Round(time.Millisecond))
			r.hub.publish(QuotaQuieted{Bucket: bucket, For: d})
		},
		Stuck: r.stuck,
	}
}

func (r *Runtime) count(o messages.Outcome) {
	switch o {
	case messages.Outcome_OUTCOME_COMPLETED:
		r.counts.completed.Add(1)
	case messages.Outcome_OUTCOME_RETRY:
		r.counts.retried.Add(1)
	case messages.Outcome_OUTCOME_REJECTED:
		r.counts.rejected.Add(1)
	case messages.Outcome_OUTCOME_PARKED:
		r.counts.parked.Add(1)
	case messages.Outcome_OUTCOME_CANCELLED:
		r.counts.cancelled.Add(1)
	case messages.Outcome_OUTCOME_INTERRUPTED:
		r.counts.interrupted.Add(1)
	case messages.Outcome_OUTCOME_UNSPECIFIED:
	}
}

// stuck counts what runs on after its timeout, and tells of it: a goroutine that nobody can stop is for a person to know.
func (r *Runtime) stuck(e actors.StuckEvent) {
	said := []any{"task_id", e.TaskID, "unit", e.Unit, "type", e.Type, "step", e.Step, "timeout", e.Timeout}
	if e.Back {
		r.log.Info("what ran on after its timeout has come back", append(said, "ran", e.Ran, "stuck", r.counts.stuckSteps.Add(-1))...)
	} else {
		r.log.Warn("it runs on after its timeout and was abandoned", append(said, "stuck", r.counts.stuckSteps.Add(1))...)
	}
	if r.hub.wanted() {
		r.hub.publish(StepStuck{e})
	}
}

// StepStuck says that an attempt of a step, or a handler, runs on after its timeout, or has come back at last.
type StepStuck struct{ actors.StuckEvent }

// Name of the event.
func (StepStuck) Name() string { return "step_stuck" }

// StepRan says that an attempt of a step ran; steps answered from a checkpoint make no event.
type StepRan struct{ actors.StepEvent }

// Name of the event.
func (StepRan) Name() string { return "step_ran" }

// newHostLog makes the logger that Context.Log derives from.
func newHostLog(l hclog.Logger) *slog.Logger { return slog.New(handler{to: l.Named("agent")}) }
