package actors

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// SendOption is an argument of Task.Send.
type SendOption func(*Mailing) error

// MessageID tells messages of one name apart: each id is another message, and one that is sent again counts once. Without
// an id the first message of a name is the only one that counts.
func MessageID(id string) SendOption {
	return func(m *Mailing) error {
		m.MessageID = id
		if id == "" {
			return errors.New("MessageID must not be empty")
		}
		return nil
	}
}

// KeepMessage is how long the message is kept for a task that is not known yet, or has waited for nothing yet. Default 7
// days. From its first wait on a task's messages are kept as long as its record.
func KeepMessage(d time.Duration) SendOption {
	return func(m *Mailing) error {
		m.TTL = d
		return positive("KeepMessage", int64(d))
	}
}

// Send gives the task a message that Await, First or All of any of its units waits for, by its name. The payload is as for
// Submit; nil is an empty one, for handlers that take None or Raw. It may come before the task waits, and before there is
// the task.
//
// The message counts when the error is nil, and only then: what had its name (and id) before is an ErrAnswered, and so is a
// message that comes when the time of its Await is over. After an error without an answer send the same again: that the
// first one counted is an ErrRepeated, which is an ErrAnswered too. ErrEnded: the task has ended. ErrInvalid and
// ErrTooLarge: nothing was sent. ErrMailboxFull: the task has not read thousands of others.
func (t *Task) Send(ctx context.Context, name string, payload any, opts ...SendOption) error {
	m := Mailing{ID: t.ID, Name: name}
	for _, o := range opts {
		if err := o(&m); err != nil {
			return fmt.Errorf("send %q to task %q: %w: %w", name, t.ID, ErrInvalid, err)
		}
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("send %.80q to task %q: %w: %w", name, t.ID, ErrInvalid, err)
	}
	if payload != nil {
		body, err := encode(payload)
		if err != nil {
			return fmt.Errorf("send %q to task %q: payload: %w: %w", name, t.ID, ErrInvalid, err)
		}
		m.ContentType, m.Payload = body.contentType, body.data
	}
	if len(m.Payload) > t.c.maxPayload {
		return fmt.Errorf("send %q to task %q: %w", name, t.ID, tooLarge("the payload", len(m.Payload), t.c.maxPayload))
	}
	got, err := t.c.desk.Send(ctx, m)
	switch {
	case err == nil:
		return nil
	case got.Known && errors.Is(err, ErrAnswered):
		return fmt.Errorf("message %q to task %q: %w", name, t.ID, ErrRepeated)
	}
	return err // it names message and task
}
