package memstream

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// WaitKey names a wait of a task.
type WaitKey struct{ Unit, Name string }

// field is the wait's field in messages/layout.go, which is also what waits are sorted by.
func (k WaitKey) field() string { return messages.Escape(k.Unit) + ":" + messages.Escape(k.Name) }

// timer is the wait's member of the due set.
func (k WaitKey) timer(task string) string { return "w:" + messages.Escape(task) + ":" + k.field() }

// sortedWaits are the keys of a task's open waits in the order of their fields.
func (t *Task) sortedWaits() []WaitKey {
	keys := make([]WaitKey, 0, len(t.Waits))
	for k := range t.Waits {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b WaitKey) int { return cmp.Compare(a.field(), b.field()) })
	return keys
}

// openWaits opens what a commit waits for, where it is neither open nor over, and looks at each. It reports whether any of
// them is over.
func (w *world) openWaits(t *Task, u *Unit, waits []OpenWait, now int64) (over bool) {
	opened := false
	for _, o := range waits {
		key := WaitKey{u.Name, o.Name}
		if _, done := u.Steps[o.Name]; done {
			over = true
			continue
		}
		if t.Waits[key] != nil {
			continue
		}
		if t.Waits == nil {
			t.Waits = map[WaitKey]*messages.Wait{}
		}
		wait := o.Wait
		wait.SinceMS = now
		t.Waits[key] = &wait
		if o.For >= 0 {
			w.due[key.timer(t.ID)] = now + o.For.Milliseconds()
		}
		opened = true
	}
	if opened {
		t.Ties = true
		w.keepMail(t.ID)
	}
	for _, o := range waits {
		if w.lookAt(t, WaitKey{u.Name, o.Name}, now) {
			over = true
		}
	}
	return over
}

// lookAt ends an open wait if it is over, and reports whether it was.
func (w *world) lookAt(t *Task, key WaitKey, now int64) bool {
	wait := t.Waits[key]
	if wait == nil {
		return false
	}
	at, timed := w.due[key.timer(t.ID)]
	waited, ok := w.over(t, wait, timed && at <= now)
	if ok {
		w.endWait(t, key, wait, waited, now)
	}
	return ok
}

// over says how a wait has ended; ok is false while it goes on. ripe says that its time is over. A slot that another wait's
// end has closed gets no message any more.
func (w *world) over(t *Task, wait *messages.Wait, ripe bool) (waited messages.Waited, ok bool) {
	mail := w.mail[t.ID]
	there, first, shut := map[int]*letterbox{}, -1, 0
	for i, slot := range wait.Slots {
		m := mail.at(slot)
		switch {
		case m == nil:
		case m.late:
			shut++
		default:
			there[i] = m
			if first < 0 || m.arrival < there[first].arrival {
				first = i
			}
		}
	}
	switch {
	case wait.Kind == messages.WaitFirst && first >= 0:
		there = map[int]*letterbox{first: there[first]}
	case wait.Kind == messages.WaitAll && len(there) == len(wait.Slots):
	default:
		hopeless := wait.Kind == messages.WaitAll && shut > 0 || wait.Kind == messages.WaitFirst && shut == len(wait.Slots)
		if !ripe && !hopeless {
			return waited, false
		}
		waited.Timeout = true
	}
	for i, m := range there {
		if waited.Messages == nil {
			waited.Messages = map[int]messages.Mail{}
		}
		waited.Messages[i] = m.Mail
		if !m.read {
			m.read = true
			mail.unread--
		}
	}
	return waited, true
}

// endWait writes the checkpoint of a wait that is over and takes away what stood for it. A time that is over closes the slots
// where the wait says so; not one for which another wait still hopes.
func (w *world) endWait(t *Task, key WaitKey, wait *messages.Wait, waited messages.Waited, now int64) {
	u := t.Units[key.Unit]
	if u.Steps == nil {
		u.Steps = map[string][]byte{}
	}
	u.Steps[key.Name] = messages.EncodeStep(messages.Step{
		Status: messages.StepWaited, Attempts: 1, BeganMS: wait.SinceMS, EndedMS: now, Value: messages.EncodeWaited(waited),
	})
	delete(t.Waits, key)
	delete(w.due, key.timer(t.ID))
	if waited.Timeout && wait.Closes {
		for _, slot := range wait.Slots {
			if !t.hopesFor(slot) {
				w.mailOf(t.ID).shut(slot)
			}
		}
	}
	what := "answered"
	switch {
	case waited.Timeout && wait.Kind == messages.WaitTimer:
		what = "slept"
	case waited.Timeout:
		what = "timed_out"
	}
	t.note(now, what, key.Name[:min(len(key.Name), 300)])
}

func (t *Task) hopesFor(slot messages.Slot) bool {
	for _, wait := range t.Waits {
		if slices.Contains(wait.Slots, slot) {
			return true
		}
	}
	return false
}

// wakeUnit lets a WAITING unit go on: PENDING, and the copy of its entry in the inbox under its wake number. A unit in another
// state sees by itself what has happened when it runs next, and one in doubt is a person's to wake. It reports whether the
// unit goes on; without a copy it has FAILED, as a retry does.
func (w *world) wakeUnit(t *Task, unit string, now int64) bool {
	u := t.unit(unit)
	if u == nil || u.State != messages.State_STATE_WAITING || u.Doubt != "" {
		return false
	}
	c := w.copies[unitKey{t.ID, unit}]
	if c == nil {
		b := streambridge.Burial{
			Reason: messages.Reason_REASON_BODY_GONE, TaskID: t.ID, Unit: unit, Type: u.Type,
			Detail: "what it waited for is there, and the copy of its entry is gone",
		}
		w.bury(now, w.deadTTL, Letter{Reason: b.Reason, Detail: b.Detail, Wake: u.Wake, TaskID: t.ID, Unit: unit, Type: u.Type, Ends: true})
		w.fail(b, now, w.deadTTL)
		return false
	}
	w.toInbox(now, withControl(c.Fields, t.ID, c.Origin, u.Wake))
	u.WokenAt = u.FenceAt
	w.become(t, u, messages.State_STATE_PENDING, now, false)
	return true
}

// untie is called by whatever ends a unit, once its state is final: what stands outside for it goes.
func (w *world) untie(t *Task, u *Unit) {
	if !t.Ties {
		return
	}
	for _, key := range t.sortedWaits() {
		if key.Unit == u.Name {
			delete(t.Waits, key)
			delete(w.due, key.timer(t.ID))
		}
	}
}

// OpenWait is a wait that a commit opens, for so long; negative: without an end.
type OpenWait struct {
	Name string
	For  time.Duration
	Wait messages.Wait
}

// OpenWaits opens what a commit waits for, where it is neither open nor over. It reports whether any of them is over.
func (tx *Tx) OpenWaits(t *Task, u *Unit, waits []OpenWait) (over bool) {
	return tx.w.openWaits(t, u, waits, tx.NowMS)
}

// SortedWaits are the open waits of a unit in the order of their names.
func (t *Task) SortedWaits(unit string) (names []string) {
	for _, key := range t.sortedWaits() {
		if key.Unit == unit {
			names = append(names, key.Name)
		}
	}
	return names
}

// DueWait is when the time of an open wait is over, Unix ms; 0 for one without an end.
func (tx *Tx) DueWait(task string, key WaitKey) int64 { return tx.w.due[key.timer(task)] }

// Untie is called by whatever ends a unit, once its state is final.
func (tx *Tx) Untie(t *Task, u *Unit) { tx.w.untie(t, u) }
