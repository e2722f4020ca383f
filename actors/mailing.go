package actors

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-run/weir/messages"
)

// Mailing is a message on its way to a task.
type Mailing struct {
	// ID is the task id.
	ID string
	// Name is what the task waits for. Names belong to the task: two of its units that wait for one name get one message.
	Name string
	// MessageID tells two messages of one name apart: the same id again is the same message. Without one the first message
	// of the name is the only one that counts.
	MessageID   string
	ContentType string
	Payload     []byte
	// TTL is how long the message is kept for a task that nothing is known of, or that has waited for nothing yet. Default 7
	// days; negative means the same.
	TTL time.Duration
}

// Mailed is what became of a message.
type Mailed struct {
	// Nth is the number of the message among those of its name, from 1: its own, or that of the one which was there before.
	Nth int
	// Known says that this very message was there: by its id, or without one by its content. It is what a repeat after a
	// lost reply finds; the error is ErrAnswered all the same.
	Known bool
}

// WithDefaults returns a copy with its time to live, or ErrInvalid for what cannot be sent.
func (m Mailing) WithDefaults() (Mailing, error) {
	for _, f := range []struct {
		what, value string
		empty       bool
	}{{"task id", m.ID, false}, {"name", m.Name, false}, {"message id", m.MessageID, true}, {"content type", m.ContentType, true}} {
		switch {
		case f.value == "" && !f.empty:
			return m, fmt.Errorf("message: its %s is empty: %w", f.what, ErrInvalid)
		case len(f.value) > messages.MaxTaskID:
			return m, fmt.Errorf("message: its %s has %d bytes, at most %d are allowed: %w", f.what, len(f.value), messages.MaxTaskID, ErrInvalid)
		case !utf8.ValidString(f.value):
			return m, fmt.Errorf("message: its %s is not UTF-8: %w", f.what, ErrInvalid)
		case strings.Contains(f.value, "\n") && f.what == "content type":
			return m, fmt.Errorf("message: its %s has a line feed: %w", f.what, ErrInvalid)
		}
	}
	if m.TTL <= 0 {
		m.TTL = messages.MailTTL
	}
	return m, nil
}

// Answer is what Send answers for a receipt.
func (m Mailing) Answer(r messages.Receipt, nth int) (Mailed, error) {
	var err error
	switch r {
	case messages.Taken:
		return Mailed{Nth: nth}, nil
	case messages.TakenBefore, messages.TooLate:
		err = ErrAnswered
	case messages.TaskEnded:
		err = ErrEnded
	case messages.MailboxFull:
		err = ErrMailboxFull
	case messages.NotPending, messages.NoMailbox: // only entries get these
		err = fmt.Errorf("answer %v", r)
	}
	return Mailed{Nth: nth, Known: r == messages.TakenBefore}, fmt.Errorf("message %.80q to task %.80q: %w", m.Name, m.ID, err)
}
