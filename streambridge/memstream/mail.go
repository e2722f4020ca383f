package memstream

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/weir-run/weir/messages"
)

// Mail is what was sent to a task, also to one of which nothing is known yet.
type Mail struct {
	count    map[string]int // by name, how many have come
	slots    map[messages.Slot]*letterbox
	known    map[letterKey]int
	arrivals int
	unread   int
	// untilMS is when it is forgotten, where the task has no ties; else with the task.
	untilMS int64
}

// letterbox is what has come for a slot.
type letterbox struct {
	messages.Mail
	arrival int
	read    bool // a wait has taken it
	late    bool // nothing has come, and nothing will be taken any more
}

type letterKey struct{ name, id string }

// at is what has come for a slot, or nil; also of nil mail.
func (m *Mail) at(s messages.Slot) *letterbox {
	if m == nil {
		return nil
	}
	return m.slots[s]
}

// shut closes a slot that is empty.
func (m *Mail) shut(s messages.Slot) {
	if m.slots[s] == nil {
		m.slots[s] = &letterbox{late: true}
	}
}

// mailOf is the mail of a task, made when it is missing.
func (w *world) mailOf(id string) *Mail {
	m := w.mail[id]
	if m == nil {
		m = &Mail{count: map[string]int{}, slots: map[messages.Slot]*letterbox{}, known: map[letterKey]int{}}
		w.mail[id] = m
	}
	return m
}

// keepMail lets mail live as long as its task does.
func (w *world) keepMail(id string) {
	if m := w.mail[id]; m != nil {
		m.untilMS = 0
	}
}

// expireMail gives mail a time to live; ttl ≤ 0 keeps it.
func (w *world) expireMail(id string, now int64, ttl time.Duration) {
	m := w.mail[id]
	if m == nil {
		return
	}
	if m.untilMS = 0; ttl <= 0 {
		return
	}
	m.untilMS = now + max(ttl.Milliseconds(), 1)
	w.data.expiry.at(m.untilMS, func(now int64) int64 {
		if due(m.untilMS, now) && w.mail[id] == m {
			delete(w.mail, id)
		}
		return 0
	})
}

// over reports whether the task has ended: its record is there, and none of its units is open or waits to be.
func (t *Task) over() bool { return t != nil && t.keep == 0 && t.ended() }

// refuse notes a message to a task that has ended; one line stands for any number of one name.
func (t *Task) refuse(name string, now int64) {
	detail := fmt.Sprintf("message %s: the task has ended", name[:min(len(name), 300)])
	if n := len(t.Log); n > 0 && t.Log[n-1].What == "refused" && t.Log[n-1].Detail == detail {
		return
	}
	t.note(now, "refused", detail)
}

// send gives a task a message: it is recorded once, in the order of its name, and ends the waits that it fills; their units go
// on. Without an id the first of a name is the only one. ttl is how long it is kept for a task that has waited for nothing.
func (w *world) send(id, name, messageID string, body messages.Mail, ttl time.Duration, now int64) (messages.Receipt, int) {
	t := w.task(id)
	next := 1
	if m := w.mail[id]; m != nil {
		next += m.count[name]
	}
	slot := messages.Slot{Message: name, Nth: next}
	var hit []WaitKey
	if t != nil {
		for _, key := range t.sortedWaits() {
			if wait := t.Waits[key]; wait == nil || !slices.Contains(wait.Slots, slot) {
				continue
			}
			if at, timed := w.due[key.timer(id)]; !timed || at > now {
				hit = append(hit, key)
			} else if w.lookAt(t, key, now) { // its time is over, and no tick has seen it yet
				w.wakeUnit(t, key.Unit, now)
			}
		}
	}
	if t.over() {
		t.refuse(name, now)
		return messages.TaskEnded, 0
	}
	mail := w.mailOf(id)
	if messageID != "" {
		if known, ok := mail.known[letterKey{name, messageID}]; ok {
			return messages.TakenBefore, known
		}
	} else if next > 1 {
		first := mail.slots[messages.Slot{Message: name, Nth: 1}]
		if first.ContentType == body.ContentType && bytes.Equal(first.Payload, body.Payload) {
			return messages.TakenBefore, 1
		}
		return messages.TooLate, 1
	}
	if mail.slots[slot] != nil {
		return messages.TooLate, next
	}
	if mail.unread >= messages.MaxUnread {
		return messages.MailboxFull, 0
	}
	mail.arrivals++
	mail.unread++
	mail.count[name] = next
	body.Payload = bytes.Clone(body.Payload)
	mail.slots[slot] = &letterbox{Mail: body, arrival: mail.arrivals}
	if messageID != "" {
		mail.known[letterKey{name, messageID}] = next
	}
	if t != nil && t.Ties {
		w.keepMail(id)
	} else {
		w.expireMail(id, now, max(ttl, time.Duration(mail.untilMS-now)*time.Millisecond))
	}
	for _, key := range hit {
		if w.lookAt(t, key, now) {
			w.wakeUnit(t, key.Unit, now)
		}
	}
	return messages.Taken, next
}

// Send gives a task a message; ttl is how long it is kept for a task that has waited for nothing.
func (tx *Tx) Send(id, name, messageID string, m messages.Mail, ttl time.Duration) (r messages.Receipt, nth int) {
	return tx.w.send(id, name, messageID, m, ttl, tx.NowMS)
}

// Unread is how many messages to a task no wait has taken yet.
func (tx *Tx) Unread(id string) int64 {
	if m := tx.w.mail[id]; m != nil {
		return int64(m.unread)
	}
	return 0
}
