package streambridge

import (
	"github.com/weir-run/weir/messages"
)

// window knows every entry that this node holds, from the moment it was handed out until its acknowledgement, burial or
// move is confirmed. It is pure: Step takes what happened and says what to do; no I/O, no clock, no goroutine. It is not
// safe for use by several goroutines at once.
//
// Its promises, which the property tests hold it to:
//
//   - an entry is admitted once, and remembered until it is settled for sure, so that no sweep brings it in again;
//   - an entry that is pending with us is known here, or forgotten here and found by a later sweep: never lost;
//   - one task has at most one assignment without an answer; its entries are assigned in the order of their ids;
//   - what is held never exceeds the limits by more than one read and one claim, and credits return to full.
type window struct {
	maxCount, maxBytes int64
	// reserve is how far claims may overdraw: a window that fresh entries keep full must still take over dead nodes' work.
	reserveCount, reserveBytes int64

	known map[messages.Ref]*slot
	tasks map[string]*queue
	// oldest and newest are the ends of the list of all known slots in the order of their admission: walking a map would
	// make two runs of one seed differ.
	oldest, newest *slot
	bytes          int64
	// settledNow remembers what was settled since the sweep under way began: the sweep may have seen it still pending.
	// nil while no sweep is under way.
	settledNow map[messages.Ref]struct{}

	readCount, readBytes int64 // all that the reader has brought, ever
	draining, idled      bool
	over                 bool // usurped: nothing is ours any more

	stats   Stats
	out     []effect
	touched []*queue // got entries in this step
}

type slotState uint8

const (
	waiting  slotState = iota // for its actor
	assigned                  // an actor is at it
	acking                    // its work is persisted; XACK is not confirmed
	burying                   // on its way to the dead letters
	moving                    // on its way to another agent's stream
	mailing                   // a message on its way to its task
	ghost                     // lost while assigned: unknown to the window, but its actor has not answered
)

// slot is one entry in the window.
type slot struct {
	arrival
	state     slotState
	saved     bool // its fields are copied beside its task
	cancelled bool // its agent was told that the task is cancelled
	detail    *Burial

	older, newer *slot
}

// queue is one task: the entry that an actor is at, and those that wait for it in order.
type queue struct {
	taskID  string
	current *slot
	waiting []*slot
}

func newWindow(count, bytes int64) *window {
	return &window{
		maxCount: count, maxBytes: bytes,
		reserveCount: max(1, count/8), reserveBytes: max(1, bytes/8),
		known: map[messages.Ref]*slot{}, tasks: map[string]*queue{},
	}
}

// Step takes one event and returns what must be done, in order. The slice is valid until the next Step.
func (w *window) Step(ev event) []effect {
	clear(w.out)
	w.out = w.out[:0]
	switch ev := ev.(type) {
	case arrived:
		w.readCount += int64(len(ev.entries))
		w.readBytes += ev.bytes
		w.stats.Read += uint64(len(ev.entries))
		for i := range ev.entries {
			w.admit(&ev.entries[i])
		}
		w.serve()
	case sweeping:
		w.settledNow = map[messages.Ref]struct{}{}
	case swept:
		w.sweep(ev)
	case finished:
		w.finish(ev.Done)
	case settled:
		for _, ref := range ev.refs {
			w.settle(ref)
		}
	case beaten:
		w.beat(ev.Beat)
	case silent:
		w.loseAll(true)
	case drain:
		w.draining = true
	case interrupt:
		for s := w.oldest; s != nil; s = s.newer {
			if s.state == assigned {
				w.tell(s, messages.CancelCause_CANCEL_CAUSE_DRAINING)
			}
		}
	}
	if w.draining && !w.idled && w.stats.Running == 0 {
		w.idled = true
		w.do(idle{})
	}
	return w.out
}

func (w *window) do(e effect) { w.out = append(w.out, e) }

// credits are what may still be taken; negative after an overdraft.
func (w *window) credits() (count, bytes int64) {
	return w.maxCount - int64(len(w.known)), w.maxBytes - w.bytes
}

// advertise says how far the reader may read, in totals since the start, as a receiver advertises its window: the number
// stays right however many reads are on their way.
func (w *window) advertise() (count, bytes int64) {
	if w.draining || w.over {
		return 0, 0
	}
	count, bytes = w.credits()
	return w.readCount + count, w.readBytes + bytes
}

// room is how many entries a claim may bring.
func (w *window) room() int {
	count, bytes := w.credits()
	if w.draining || w.over || bytes+w.reserveBytes <= 0 {
		return 0
	}
	return int(min(max(count+w.reserveCount, 0), 1<<20))
}

// Stats is a copy of the counts.
func (w *window) Stats() Stats {
	s := w.stats
	s.InFlight, s.Bytes = len(w.known), w.bytes
	s.Settling = s.InFlight - s.Waiting - s.Running
	s.Credits, s.CreditBytes = w.credits()
	return s
}

// admit lets an entry in, unless it is known. It reports whether it was let in.
func (w *window) admit(a *arrival) bool {
	if old := w.known[a.Ref]; old != nil {
		old.deliveries = max(old.deliveries, a.deliveries)
		w.stats.Refused++
		return false
	}
	if w.draining || w.over {
		w.stats.Refused++ // it stays pending with us, and Release or its new owner sees to it
		return false
	}
	s := &slot{arrival: *a}
	w.remember(s)
	switch {
	case s.bad != nil:
		s.state = burying
		w.bury(s, s.bad.Reason, s.bad.Detail)
	case s.moveTo != "":
		s.state = moving
		w.do(move{agent: s.moveTo, held: s.holding().Held})
	case s.task.GetMessage() != "":
		s.state = mailing
		w.do(deliver{Mail{
			Ref: s.Ref, TaskID: s.task.GetTaskId(), Name: s.task.GetMessage(), MessageID: s.task.GetEventId(),
			ContentType: s.task.GetContentType(), Payload: s.task.GetPayload(),
		}})
		s.task = nil // the postman has it
	default:
		w.stats.Waiting++
		w.enqueue(s)
	}
	return true
}

// sweep takes what a tick found. Claimed entries are ours already and must be taken; a stray for which there is no room
// is left to the next sweep.
func (w *window) sweep(ev swept) {
	w.stats.Read += uint64(len(ev.drained))
	for i := range ev.drained {
		w.admit(&ev.drained[i])
	}
	for i := range ev.claimed {
		if a := &ev.claimed[i]; w.admit(a) {
			w.stats.Claimed++
			taskID, unit, kind := a.names()
			w.do(report{EntryClaimed{Ref: a.Ref, TaskID: taskID, Unit: unit, Type: kind, Deliveries: a.deliveries}})
		}
	}
	for i := range ev.strays {
		a := &ev.strays[i]
		if w.known[a.Ref] != nil {
			continue
		}
		if _, just := w.settledNow[a.Ref]; just || w.room() == 0 {
			w.stats.Refused++
			continue
		}
		if w.admit(a) {
			w.stats.Adopted++
			taskID, unit, kind := a.names()
			w.do(report{EntryAdopted{Ref: a.Ref, TaskID: taskID, Unit: unit, Type: kind, Deliveries: a.deliveries}})
		}
	}
	w.settledNow = nil
	w.stop(ev.cancelled)
	w.serve()
}

// finish takes an agent's answer.
func (w *window) finish(d *messages.Done) {
	s, q := w.answered(d)
	if s == nil {
		w.stats.Ignored++
		return
	}
	q.current = nil
	if s.state == ghost {
		w.stats.Ghosts-- // what it says is about an entry that was given up
		if d.GetVerdict() == messages.Verdict_VERDICT_MOVED {
			w.noteSettled(s)
		}
		w.next(q)
		return
	}
	w.stats.Running--
	switch d.GetVerdict() {
	case messages.Verdict_VERDICT_ACK:
		s.state, s.task = acking, nil // the payload is not needed any more
		w.do(acknowledge{s.Ref})
	case messages.Verdict_VERDICT_MOVED:
		w.stats.Moved++
		w.forget(s)
	case messages.Verdict_VERDICT_BURY:
		s.state = burying
		w.bury(s, d.GetReason(), d.GetDetail())
	case messages.Verdict_VERDICT_DROP, messages.Verdict_VERDICT_UNSPECIFIED:
		// It stays pending. If it is still ours, a sweep finds it when it has been idle for longer than a beat.
		w.stats.Dropped++
		w.forgetPending(s)
	default:
		w.stats.Dropped++
		w.forgetPending(s)
	}
	w.next(q)
}

// answered finds the assignment that an answer is for, or nil.
func (w *window) answered(d *messages.Done) (*slot, *queue) {
	ref, taskID := d.GetEntry().Ref(), d.GetTaskId()
	if s := w.known[ref]; s != nil && s.state == assigned {
		taskID = s.task.TaskId
	}
	q := w.tasks[taskID]
	if q == nil || q.current == nil || q.current.Ref != ref {
		return nil, nil
	}
	return q.current, q
}

// settle forgets an entry that was acknowledged, buried, moved or delivered to its task for sure.
func (w *window) settle(ref messages.Ref) {
	s := w.known[ref]
	if s == nil {
		return
	}
	switch s.state {
	case acking:
		w.stats.Acked++
	case burying:
		w.stats.Buried++
		b := s.detail
		w.do(report{EntryBuried{
			Ref: b.Ref, TaskID: b.TaskID, Unit: b.Unit, Type: b.Type, Reason: b.Reason, Detail: b.Detail, Deliveries: b.Deliveries,
		}})
	case moving:
		w.stats.Moved++
		w.do(report{EntryMoved{Ref: s.Ref, TaskID: s.task.TaskId, Type: s.task.Type}})
	case mailing:
		w.stats.Messages++
	case waiting, assigned, ghost:
		panic("streambridge: an entry was settled that nobody gave away")
	}
	w.forget(s)
}

// forget drops an entry that is not pending with us any more.
func (w *window) forget(s *slot) {
	w.noteSettled(s)
	w.forgetPending(s)
}

func (w *window) noteSettled(s *slot) {
	if w.settledNow != nil {
		w.settledNow[s.Ref] = struct{}{}
	}
}

// forgetPending drops an entry that a sweep may bring back.
func (w *window) forgetPending(s *slot) {
	delete(w.known, s.Ref)
	w.bytes -= s.size
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		w.oldest = s.newer
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		w.newest = s.older
	}
	s.older, s.newer = nil, nil
}

func (w *window) remember(s *slot) {
	w.known[s.Ref] = s
	w.bytes += s.size
	if s.older = w.newest; s.older != nil {
		s.older.newer = s
	} else {
		w.oldest = s
	}
	w.newest = s
}

// bury asks for a dead letter. An entry whose agent condemned it ends its unit as FAILED, too. One that was never decoded
// does not: the record under its id may be another entry's, at work this moment; and an id conflict is another's for sure.
func (w *window) bury(s *slot, reason messages.Reason, detail string) {
	s.detail = &Burial{
		Ref: s.Ref, Reason: reason, Detail: detail, Deliveries: s.deliveries, Wake: s.wake,
		// Another's work has the record, or there is none that could be written.
		Fail: s.bad == nil && reason != messages.Reason_REASON_ID_CONFLICT && reason != messages.Reason_REASON_BAD_STATE,
	}
	s.detail.TaskID, s.detail.Unit, s.detail.Type = s.names()
	w.do(bury{s.detail})
}

// names are the entry's task, unit and type, as far as it could be decoded.
func (a *arrival) names() (taskID, unit, kind string) {
	if a.bad != nil {
		return a.bad.TaskID, a.bad.Unit, a.bad.Type
	}
	return a.task.GetTaskId(), a.task.GetUnit(), a.task.GetType()
}
