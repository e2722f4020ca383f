package memstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// settledTTL is how long a repeated settlement still answers that it is done.
const settledTTL = time.Minute

// Settle ends a dead letter; see streambridge.Settlement. A Retry of a letter whose body is gone and a Complete of a unit
// that is neither FAILED nor SUCCEEDED are errors, and the letter stays. Repeated within a minute it succeeds again.
func (s *Stream) Settle(ctx context.Context, id string, how streambridge.Settlement) error {
	return s.bound(ctx, "settle", func(w *world, now int64) error {
		at, l := w.letter(id)
		if l == nil {
			if w.settled[id] == how && how != 0 {
				return nil
			}
			return fmt.Errorf("settle letter %q: %w", id, streambridge.ErrNoLetter)
		}
		if err := w.end(l, how, now); err != nil {
			return fmt.Errorf("settle letter %q: %w", id, err)
		}
		w.dead.list.remove(at)
		w.settled[id] = how
		w.data.expiry.at(now+settledTTL.Milliseconds(), func(int64) int64 {
			delete(w.settled, id)
			return 0
		})
		return nil
	})
}

func (w *world) end(l *Letter, how streambridge.Settlement, now int64) error {
	t := w.task(l.TaskID)
	u := t.unit(l.Unit)
	if !l.Ends {
		// Of a conflict, a message, or an entry that could not be decoded the record is other work's: such an entry comes back as
		// its producer had added it.
		t, u = nil, nil
	}
	switch how {
	case streambridge.Retry:
		return w.revive(l, t, u, now)
	case streambridge.Complete:
		return w.complete(t, u, now)
	case streambridge.Drop:
		return nil
	}
	return fmt.Errorf("settlement %d is unknown", how)
}

// revive puts a dead letter's entry back into the inbox.
func (w *world) revive(l *Letter, t *Task, u *Unit, now int64) error {
	if len(l.Fields) == 0 {
		return errors.New("its body is gone: there is nothing to run again")
	}
	if len(l.Fields) > messages.MaxFields {
		return fmt.Errorf("it has %d fields, an entry may have at most %d", len(l.Fields), messages.MaxFields)
	}
	var wake uint64
	switch {
	case u == nil:
	case u.State != messages.State_STATE_FAILED:
		return fmt.Errorf("its unit is %s: it has not failed", u.State)
	default:
		w.renewUnit(t, u, now)
		wake = u.Wake
	}
	fields := withControl(l.Fields, l.TaskID, w.origin(l.Ref, l.Fields), wake)
	if l.TaskID == "" {
		fields = fields[1:] // never decoded: nobody knows its id yet
	}
	w.toInbox(now, fields)
	return nil
}

// renewUnit gives a FAILED unit a fresh ledger, and a fence that whoever still runs it does not have. The checkpoints of
// what was done stay.
func (w *world) renewUnit(t *Task, u *Unit, now int64) {
	w.expire(t, now, 0)
	t.Fence++
	u.Wake++
	u.Failures, u.Crashes, u.Timeouts, u.Deaths, u.Blamed, u.Interruptions, u.Waits, u.RanMS = 0, 0, 0, 0, 0, 0, 0, 0
	u.Classes, u.Reason, u.Error, u.Run, u.Doubt, u.WokenAt = "", 0, "", Run{}, "", 0
	u.Resolved = ""
	for name, encoded := range u.Steps {
		step, err := messages.DecodeStep(name, encoded)
		if err == nil && (step.Status == messages.StepRetrying || step.Status == messages.StepSpent) {
			delete(u.Steps, name)
		}
	}
	w.become(t, u, messages.State_STATE_PENDING, now, false)
	t.note(now, "retried", "from the dead letters")
}

// complete marks a FAILED unit SUCCEEDED without running it.
func (w *world) complete(t *Task, u *Unit, now int64) error {
	switch {
	case u == nil || u.State == messages.State_STATE_SUCCEEDED:
		return nil
	case u.State != messages.State_STATE_FAILED:
		return fmt.Errorf("its unit is %s: completing it would contradict that", u.State)
	}
	t.Fence++
	u.Reason, u.Error = 0, ""
	w.become(t, u, messages.State_STATE_SUCCEEDED, now, false)
	w.counts["succeeded"]++
	t.note(now, "completed", "by hand, from the dead letters")
	return nil
}
