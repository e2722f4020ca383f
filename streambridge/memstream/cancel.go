package memstream

import (
	"cmp"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Known is what is known of a unit that has no record.
type Known struct {
	Type, Work string
	CreatedMS  int64
	State      messages.State // 0 for PENDING
}

// CancelUnit ends a unit as CANCELLED, whatever it was doing, and returns the state that it had: PENDING for one without a
// record, which gets one that Begin answers with. One that has ended is left alone; then ended is true. ttl is for the
// record, ≤ 0 for ever.
func (tx *Tx) CancelUnit(id, unit string, ttl time.Duration, why, by string, known Known) (was messages.State, ended bool) {
	return tx.w.cancel(id, unit, tx.NowMS, ttl, why, by, known)
}

func (w *world) cancel(id, unit string, now int64, ttl time.Duration, why, by string, known Known) (was messages.State, ended bool) {
	t := w.makeTask(id)
	u := t.Units[unit]
	if u == nil {
		w.expire(t, now, 0)
		u = &Unit{Name: unit, Type: known.Type, Work: known.Work, CreatedMS: known.CreatedMS}
		if u.CreatedMS == 0 {
			u.CreatedMS = now
		}
		t.Units[unit] = u
	}
	switch was = u.State; {
	case Ended(was):
		return was, true
	case was == 0:
		was = cmp.Or(known.State, messages.State_STATE_PENDING)
	}
	running := was == messages.State_STATE_RUNNING
	free := t.Owner == "" || running && t.Owner == u.Run.Incarnation
	t.Fence++
	w.endTrial(t, u)
	u.Reason, u.Error = 0, why
	detail := why
	if by != "" {
		detail += " (by " + by + ")"
	}
	t.note(now, "cancelled", detail)
	w.become(t, u, messages.State_STATE_CANCELLED, now, false)
	delete(w.due, "r:"+member(id, unit))
	delete(w.copies, unitKey{id, unit})
	w.counts["cancelled"]++
	if running {
		w.tellCancelled(u.Run.Incarnation, streambridge.Cancelled{TaskID: id, Unit: unit, Reason: why})
	}
	if free { // else another unit is at work under the owner
		w.disown(t, now)
	}
	w.untie(t, u)
	w.giveBack(t, u, now)
	w.leaveLine(t, u, now)
	w.close(t, now, ttl)
	return was, false
}

// cancelDue ends what hung on a unit that was cancelled.
func (w *world) cancelDue(rest string, now int64) {
	task, unit := unitOfMember(rest)
	if w.task(task).unit(unit) != nil {
		w.cancel(task, unit, now, w.deadTTL, parentCancelled, "", Known{})
	}
}

// parentCancelled is why a child is cancelled with its parent.
const parentCancelled = "its parent was cancelled"

// maxCancels is how many cancellations are kept for the nodes that run them.
const maxCancels = 1000

// toldCancel is a cancellation on its way to the node that runs the unit.
type toldCancel struct {
	number      int64
	incarnation string
	streambridge.Cancelled
}

// tellCancelled lets the node's next tick know. What it misses there, its beat tells.
func (w *world) tellCancelled(incarnation string, c streambridge.Cancelled) {
	w.cancelled++
	w.cancels = append(w.cancels, toldCancel{w.cancelled, incarnation, c})
	if len(w.cancels) > maxCancels {
		w.cancels = append(w.cancels[:0:0], w.cancels[len(w.cancels)-maxCancels:]...)
	}
}

// hear reads the cancellations since the last tick. A node that has just come runs nothing.
func (s *Stream) hear(w *world, t *streambridge.Tick) {
	if s.heard > w.cancelled { // the server was emptied
		s.heard = 0
	}
	if s.heard >= 0 {
		for _, c := range w.cancels {
			if c.number > s.heard && c.incarnation == s.open.node.Incarnation {
				t.Cancelled = append(t.Cancelled, c.Cancelled)
			}
		}
	}
	s.heard = w.cancelled
}
