package memstream

import (
	"iter"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// SetDoubt says that nobody knows whether the effect of a WAITING unit's step happened; "" ends that.
func (tx *Tx) SetDoubt(t *Task, u *Unit, step string) {
	if step == "" {
		tx.w.noDoubt(t, u)
		return
	}
	u.Doubt, u.Resolved = step, ""
	tx.w.doubts[member(t.ID, u.Name)] = tx.NowMS
}

func (w *world) noDoubt(t *Task, u *Unit) {
	u.Doubt = ""
	delete(w.doubts, member(t.ID, u.Name))
}

// Resolve ends a doubt: the unit goes on, or fails where detail says why. It reports false where it could not go on.
func (tx *Tx) Resolve(t *Task, u *Unit, ttl time.Duration, detail string) bool {
	w := tx.w
	w.noDoubt(t, u)
	if detail == "" {
		before := w.deadTTL
		w.deadTTL = ttl
		awake := w.wakeUnit(t, u.Name, tx.NowMS)
		w.deadTTL = before
		return awake
	}
	l := Letter{
		Ref: messages.Ref{Stream: w.keys.Stream}, Reason: messages.Reason_REASON_IN_DOUBT, Detail: detail, Wake: u.Wake,
		TaskID: t.ID, Unit: u.Name, Type: u.Type, Ends: true,
	}
	if c := w.copies[unitKey{t.ID, u.Name}]; c != nil {
		l.Fields, l.Ref.ID = c.Fields, c.Origin
	}
	w.bury(tx.NowMS, ttl, l)
	w.fail(streambridge.Burial{Reason: l.Reason, Detail: detail, TaskID: t.ID, Unit: u.Name, Type: u.Type}, tx.NowMS, ttl)
	return true
}

// Doubts lists the units in doubt, in no order.
func (tx *Tx) Doubts() iter.Seq[Indexed] {
	return func(yield func(Indexed) bool) {
		for m, ms := range tx.w.doubts {
			task, unit := unitOfMember(m)
			u := tx.w.task(task).unit(unit)
			if u != nil && !yield(Indexed{State: u.State, Type: u.Type, Task: task, Unit: unit, AtMS: ms}) {
				return
			}
		}
	}
}
