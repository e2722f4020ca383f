package messages

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// WaitKind is what ends a wait before its time; its values are words that a person reads.
type WaitKind string

const (
	// WaitTimer ends with its time and no sooner.
	WaitTimer WaitKind = "timer"
	// WaitFirst ends with the first message of its slots.
	WaitFirst WaitKind = "first"
	// WaitAll ends when there is a message in every slot.
	WaitAll WaitKind = "all"
	// WaitJoin ends when its children have.
	WaitJoin WaitKind = "join"
)

// Slot is the place of a message to a task: the n-th of its name, from 1. Names belong to the task, not to a unit.
type Slot struct {
	Message string `json:"message"`
	Nth     int    `json:"nth"`
}

// Wait is an open wait of a unit, as it lies beside its task. When its time is over stands in the due set.
type Wait struct {
	Kind WaitKind
	// SinceMS is when it was opened, Unix ms by the server's clock.
	SinceMS int64
	Slots   []Slot
	// Closes says that the end of its time closes the slots: a message that comes later is refused.
	Closes bool
	// Children are the names of the spawns that a WaitJoin waits for: for all of them, or for Need where that is not 0.
	Children  []string
	Need      int
	KeepGoing bool
}

// EncodeWait writes a wait as packed fields, which scripts take apart: since, kind, a slot each as "<escaped name>:<number>",
// closes, a child each as its escaped name, need, keep_going; what is zero is left out.
func EncodeWait(w Wait) string {
	var fields []Pair
	if w.SinceMS != 0 {
		fields = append(fields, Pair{"since", strconv.FormatInt(w.SinceMS, 10)})
	}
	fields = append(fields, Pair{"kind", string(w.Kind)})
	for _, s := range w.Slots {
		fields = append(fields, Pair{"slot", Escape(s.Message) + ":" + strconv.Itoa(s.Nth)})
	}
	if w.Closes {
		fields = append(fields, Pair{"closes", "1"})
	}
	for _, c := range w.Children {
		fields = append(fields, Pair{"child", Escape(c)})
	}
	if w.Need != 0 {
		fields = append(fields, Pair{"need", strconv.Itoa(w.Need)})
	}
	if w.KeepGoing {
		fields = append(fields, Pair{"keep_going", "1"})
	}
	return PackFields(fields)
}

// DecodeWait undoes EncodeWait; what it cannot read is ErrStep.
func DecodeWait(name, packed string) (w Wait, err error) {
	damaged := func(f Pair) error {
		return fmt.Errorf("wait %q: field %.20q is %.40q: %w", name, f.Name, f.Value, ErrStep)
	}
	fields, err := UnpackFields(packed)
	if err != nil {
		return w, fmt.Errorf("wait %q: %w: %w", name, err, ErrStep)
	}
	for _, f := range fields {
		switch f.Name {
		case "since":
			w.SinceMS, err = strconv.ParseInt(f.Value, 10, 64)
		case "kind":
			w.Kind = WaitKind(f.Value)
		case "slot":
			message, nth, _ := strings.Cut(f.Value, ":")
			s := Slot{Message: Unescape(message)}
			s.Nth, err = strconv.Atoi(nth)
			w.Slots = append(w.Slots, s)
		case "closes":
			w.Closes = true
		case "child":
			w.Children = append(w.Children, Unescape(f.Value))
		case "need":
			w.Need, err = strconv.Atoi(f.Value)
		case "keep_going":
			w.KeepGoing = true
		default:
			return w, damaged(f)
		}
		if err != nil {
			return w, damaged(f)
		}
	}
	return w, nil
}

// MailTTL is how long a message is kept for a task that nothing is known of, or that has waited for nothing, where nobody says.
const MailTTL = 7 * 24 * time.Hour

// MaxUnread is how many messages that no wait has taken a task may have.
const MaxUnread = 10_000

// Receipt is what became of a message to a task.
type Receipt int

// What scripts answer.
const (
	// NotPending: the entry that brought it is not pending with us any more; nothing was done.
	NotPending Receipt = iota
	// Taken: it is recorded.
	Taken
	// TakenBefore: the same message was recorded before, under its id, or without one with the same content.
	TakenBefore
	// TooLate: another message of that name was first, or the time of the wait for it was over.
	TooLate
	// TaskEnded: nothing reaches the task any more.
	TaskEnded
	// MailboxFull: there are MaxUnread messages that nobody has read.
	MailboxFull
	// NoMailbox: what stands under the task's keys is no record of ours.
	NoMailbox
)

// String is the receipt as one word for logs and JSON.
func (r Receipt) String() string {
	switch r {
	case NotPending:
		return "not_pending"
	case Taken:
		return "taken"
	case TakenBefore:
		return "taken_before"
	case TooLate:
		return "too_late"
	case TaskEnded:
		return "task_ended"
	case MailboxFull:
		return "mailbox_full"
	case NoMailbox:
		return "no_mailbox"
	}
	return "receipt_" + strconv.Itoa(int(r))
}
