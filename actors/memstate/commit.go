package memstate

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// Commit ends an activation; see actors.StateStore.
func (s *State) Commit(ctx context.Context, c actors.Commit) error {
	if _, ok := outcomeStates[c.Outcome]; !ok {
		return fmt.Errorf("commit: outcome %s has no state", c.Outcome)
	}
	waits, err := openWaits(c.Waits)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	c.Error, c.Detail = clip(c.Error), clip(c.Detail)
	return s.script(ctx, "commit", func(tx *memstream.Tx) error {
		t, u, err := fenced(tx, c.TaskID, c.Unit, c.Fence)
		switch {
		case err == nil:
			k := committer{tx: tx, c: c, waits: waits, task: t, unit: u}
			return k.commit()
		case u != nil && u.FenceAt > 0 && u.FenceAt == c.Fence.Number && u.Run == runOf(c.Fence) && before(u, c.Outcome):
			return nil // its reply was lost
		}
		return fmt.Errorf("commit %s: %w", c.Outcome, err)
	})
}

// openWaits are the waits of a commit as its script opens them.
func openWaits(waits []actors.Wait) (open []memstream.OpenWait, err error) {
	for _, w := range waits {
		stored, err := w.Stored()
		if err != nil {
			return nil, err
		}
		open = append(open, memstream.OpenWait{Name: w.Name, For: w.For, Wait: stored})
	}
	return open, nil
}

// outcomeStates are the states that an outcome leads to.
var outcomeStates = map[messages.Outcome]messages.State{
	messages.Outcome_OUTCOME_COMPLETED:   messages.State_STATE_SUCCEEDED,
	messages.Outcome_OUTCOME_REJECTED:    messages.State_STATE_FAILED,
	messages.Outcome_OUTCOME_RETRY:       messages.State_STATE_RETRYING,
	messages.Outcome_OUTCOME_PARKED:      messages.State_STATE_WAITING,
	messages.Outcome_OUTCOME_CANCELLED:   messages.State_STATE_CANCELLED,
	messages.Outcome_OUTCOME_INTERRUPTED: messages.State_STATE_PENDING,
}

// before reports whether a commit of that outcome left the unit in that state. PENDING instead of WAITING is one that was
// woken since, FAILED instead of WAITING or RETRYING one whose body was gone.
func before(u *memstream.Unit, o messages.Outcome) bool {
	parked := o == messages.Outcome_OUTCOME_PARKED
	return u.State == outcomeStates[o] ||
		parked && u.State == messages.State_STATE_PENDING && u.WokenAt == u.FenceAt ||
		(parked || o == messages.Outcome_OUTCOME_RETRY) &&
			u.State == messages.State_STATE_FAILED && u.Reason == messages.Reason_REASON_BODY_GONE
}

func runOf(f actors.Fence) memstream.Run {
	return memstream.Run{Incarnation: f.Incarnation, Activation: f.Activation}
}

// fenced finds a unit that the fence may write to. The unit goes along with the error where there is one.
func fenced(tx *memstream.Tx, id, unit string, f actors.Fence) (*memstream.Task, *memstream.Unit, error) {
	t := tx.Task(id)
	if t == nil {
		return nil, nil, actors.ErrLeaseLost
	}
	u := t.Units[unit]
	if u == nil || u.State != messages.State_STATE_RUNNING || u.FenceAt != f.Number || u.Run != runOf(f) {
		return t, u, actors.ErrLeaseLost
	}
	return t, u, nil
}

// committer is one run of the script.
type committer struct {
	tx    *memstream.Tx
	c     actors.Commit
	waits []memstream.OpenWait
	task  *memstream.Task
	unit  *memstream.Unit
}

func (k *committer) commit() error {
	to := outcomeStates[k.c.Outcome]
	if to == messages.State_STATE_WAITING || to == messages.State_STATE_RETRYING {
		if k.tx.OpenWaits(k.task, k.unit, k.waits) && to == messages.State_STATE_WAITING {
			return actors.ErrResume
		}
	}
	k.tx.EndTrial(k.task, k.unit)
	if k.c.Outcome == messages.Outcome_OUTCOME_RETRY || k.c.Outcome == messages.Outcome_OUTCOME_REJECTED {
		k.charge()
	}
	if k.c.Error != "" {
		k.unit.Error = k.c.Error
	}
	switch to {
	case messages.State_STATE_SUCCEEDED:
		k.unit.ContentType, k.unit.Result = k.c.ContentType, append([]byte(nil), k.c.Result...)
		k.end(messages.State_STATE_SUCCEEDED)
	case messages.State_STATE_FAILED:
		k.reject(k.c.Reason, cmp.Or(k.c.Detail, k.c.Error))
	case messages.State_STATE_RETRYING:
		k.retry()
	case messages.State_STATE_WAITING:
		k.park()
	case messages.State_STATE_CANCELLED:
		k.tx.Note(k.task, "cancelled", cut(cmp.Or(k.c.Detail, k.c.Error)))
		k.end(messages.State_STATE_CANCELLED)
	case messages.State_STATE_PENDING:
		k.unit.Interruptions++
		k.tx.Note(k.task, "interrupted", cut(k.c.Error))
		k.tx.Become(k.task, k.unit, messages.State_STATE_PENDING, false)
	default: // no outcome leads there
	}
	// A node that was silent for a lease may have lost the task to one that is at another unit of it.
	if k.task.Owner == "" || k.task.Owner == k.c.Fence.Incarnation {
		k.tx.Disown(k.task)
	}
	return nil
}

// charge books the attempt to its class.
func (k *committer) charge() {
	if k.c.Classes != "" {
		k.unit.Classes = string(k.c.Classes)
	}
	switch u := k.unit; k.c.Charge {
	case messages.Charge_CHARGE_FAILURE:
		u.Failures++
	case messages.Charge_CHARGE_CRASH:
		u.Crashes++
	case messages.Charge_CHARGE_TIMEOUT:
		u.Timeouts++
	case messages.Charge_CHARGE_DEATH:
		u.Deaths++
	case messages.Charge_CHARGE_WAIT:
		u.Waits++
	case messages.Charge_CHARGE_UNSPECIFIED, messages.Charge_CHARGE_INTERRUPTION: // counted with its outcome
	}
}

// retry keeps the entry's fields, so that the entry may be acknowledged, and has them come back when it is due.
func (k *committer) retry() {
	u := k.unit
	fields, origin, ok := k.tx.BodyOrCopy(k.c.Entry, k.task.ID, u.Name)
	if !ok {
		u.Error = "to be retried, but its body was trimmed or deleted and there is no copy"
		k.reject(messages.Reason_REASON_BODY_GONE, u.Error)
		return
	}
	u.Wake++
	u.DueMS = k.tx.NowMS + max(k.c.After.Milliseconds(), 0)
	k.tx.Keep(k.c.Entry, k.task.ID, u.Name, memstream.WithControl(fields, k.task.ID, origin, u.Wake), origin)
	k.tx.DueAt(k.task.ID, u.Name, u.DueMS)
	k.tx.Become(k.task, u, messages.State_STATE_RETRYING, false)
	what := "retries"
	if k.c.Charge == messages.Charge_CHARGE_WAIT {
		what = "waits"
	}
	k.tx.Note(k.task, what, cut(k.c.Error))
}

// park lets the unit wait for what ends its wait, or for a person, who can settle it without a body too.
func (k *committer) park() {
	u := k.unit
	fields, origin, ok := k.tx.BodyOrCopy(k.c.Entry, k.task.ID, u.Name)
	if !ok && len(k.waits) > 0 && k.c.Doubt == "" {
		u.Error = "to wait, but its body was trimmed or deleted and there is no copy"
		k.reject(messages.Reason_REASON_BODY_GONE, u.Error)
		return
	}
	u.Wake++
	k.tx.SetDoubt(k.task, u, k.c.Doubt)
	if ok {
		k.tx.Keep(k.c.Entry, k.task.ID, u.Name, memstream.WithControl(fields, k.task.ID, origin, u.Wake), origin)
	}
	k.tx.Become(k.task, u, messages.State_STATE_WAITING, false)
	k.tx.Note(k.task, "parked", cut(k.c.Error))
}

// reject fails the unit and sets its entry aside.
func (k *committer) reject(reason messages.Reason, detail string) {
	u := k.unit
	fields, _, _ := k.tx.BodyOrCopy(k.c.Entry, k.task.ID, u.Name)
	u.Reason = reason
	k.tx.Bury(k.c.DeadTTL, memstream.Letter{
		Ref: k.c.Entry, Reason: reason, Detail: detail, Deliveries: k.tx.Deliveries(k.c.Entry), Wake: u.Wake,
		TaskID: k.task.ID, Unit: u.Name, Type: u.Type, Fields: fields,
		Ends: true,
	})
	k.tx.Note(k.task, "failed", cut(detail))
	k.end(messages.State_STATE_FAILED)
}

// end makes the unit final.
func (k *committer) end(state messages.State) {
	k.tx.Become(k.task, k.unit, state, k.c.Index)
	k.tx.Count(strings.ToLower(strings.TrimPrefix(state.String(), "STATE_")), 1)
	k.tx.Unsave(k.c.Entry, k.task.ID, k.unit.Name)
	k.tx.Untie(k.task, k.unit)
	k.tx.Close(k.task, k.c.TTL)
}

// cut keeps a text of the timeline short.
func cut(s string) string { return s[:min(len(s), 300)] }

// maxError is the longest text of an error that is kept.
const maxError = 16 << 10

// clip cuts text that is for people.
func clip(s string) string {
	if len(s) <= maxError {
		return s
	}
	return s[:maxError] + "…"
}
