package actors

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// Task is a handle on a task, from Submit or Client.Task.
type Task struct {
	ID string
	// Unit is the part of the task that the entry's own step named; empty for the whole task.
	Unit string
	// EntryID is the stream's id of the entry; empty from Client.Task, and while the task waits for its time.
	EntryID string
	// Known says that the id was submitted before with the same work, or that the task has taken the unique key which another
	// was submitted with: nothing was added.
	Known bool
	// Due is when the task joins the stream, by the server's clock; the zero time for one that is there.
	Due time.Time

	c *Client
}

// Step is a handle on a part of the task; see NewTask.Step.
func (t *Task) Step(name string) *Task { return &Task{ID: t.ID, Unit: name, c: t.c} }

// Status reads all that is known of the task. ErrNoTask when nothing is: never submitted, not yet begun by anyone when a
// producer wrote the entry itself, or forgotten since it ended.
func (t *Task) Status(ctx context.Context) (*TaskRecord, error) {
	r, err := t.c.desk.Task(ctx, t.ID)
	if err != nil {
		return nil, fmt.Errorf("status of task %q: %w", t.ID, err)
	}
	return r, nil
}

// Cancel ends the task, with all of its units, at once and for good, whatever it is doing: it is CANCELLED, what waits never
// begins, and a handler that runs gets ErrCancelled, with the reason, as the cause of its context within a second. A handle
// from Step ends that part alone. What the handler had done before is not undone.
//
// *EndedError (which is ErrEnded) says that it had ended already, and how; after an error without an answer call it again.
// ErrNoTask as for Status: a producer's own XADD is known once it was begun.
func (t *Task) Cancel(ctx context.Context, reason string) error {
	_, err := t.c.desk.Cancel(ctx, Cancellation{ID: t.ID, Unit: t.Unit, Reason: reason, By: t.c.names.Consumer})
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}

const (
	pollFirst = 5 * time.Millisecond
	pollMost  = 250 * time.Millisecond
	// pollPatience is how long a server that does not answer is asked again.
	pollPatience = 30 * time.Second
)

// Result waits for the task's end, however long it takes, and decodes its result; Raw takes any. When ctx ends first
// the error is ErrNotEnded. A task that ended without a result is a *TaskError. ErrNoTask as for Status. A server that
// does not answer is asked again for 30 s.
func Result[R any](ctx context.Context, t *Task) (R, error) {
	var zero R
	u, err := t.ended(ctx)
	if err != nil {
		return zero, fmt.Errorf("result of task %q: %w", t.ID, err)
	}
	if u.State != messages.State_STATE_SUCCEEDED {
		detail := u.Error
		if detail == "" {
			detail = "no detail was kept"
		}
		return zero, &TaskError{ID: t.ID, Unit: t.Unit, State: u.State, Reason: ReasonName(u.Reason), Detail: detail}
	}
	r, err := decode[R](stored{u.ContentType, u.Result}, false)
	if err != nil {
		return zero, fmt.Errorf("result of task %q: %w", t.ID, err)
	}
	return r, nil
}

func final(s messages.State) bool {
	return s == messages.State_STATE_SUCCEEDED || s == messages.State_STATE_FAILED || s == messages.State_STATE_CANCELLED
}

// ended polls until the unit has ended.
func (t *Task) ended(ctx context.Context) (*UnitRecord, error) {
	pause := pollFirst
	var deaf time.Time // since when the server has not answered
	for {
		u, err := t.c.desk.Unit(ctx, t.ID, t.Unit)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", ErrNotEnded, context.Cause(ctx))
		case errors.Is(err, ErrNoTask):
			return nil, err
		case err == nil && final(u.State):
			return u, nil
		case err == nil:
			deaf = time.Time{}
		case deaf.IsZero():
			deaf = time.Now()
		case time.Since(deaf) > pollPatience:
			return nil, err
		}
		wait(ctx, pause)
		pause = min(pause*5/4, pollMost)
	}
}

// followBlock is how long one read of the published pieces waits.
const followBlock = 2 * time.Second

// Follow yields what the task's steps publish, from after the given Chunk.Offset ("" for the beginning of what is kept:
// an hour, 10,000 pieces), until the task ends. A Chunk.Attempt higher than the one before means that the text of
// that step starts again. It ends with an error when ctx does, when the server cannot be read or when there is no such
// task. Published pieces are for watching; the result is what Result returns.
func (t *Task) Follow(ctx context.Context, after string) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		over := false
		for {
			block := followBlock
			if over {
				block = time.Millisecond // 0 would mean for ever to a Redis
			}
			chunks, err := t.c.desk.Follow(ctx, t.ID, after, block)
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(Chunk{}, fmt.Errorf("follow task %q: %w", t.ID, err))
				return
			}
			for _, ch := range chunks {
				if ch.End || !yield(ch, nil) {
					return
				}
				after = ch.Offset
			}
			if len(chunks) > 0 {
				continue
			}
			if over {
				return
			}
			// Nothing for a while: a task that ended says nothing any more.
			u, err := t.c.desk.Unit(ctx, t.ID, t.Unit)
			if err != nil {
				yield(Chunk{}, fmt.Errorf("follow task %q: %w", t.ID, err))
				return
			}
			over = final(u.State)
		}
	}
}

// StateName is the state in one word, such as "SUCCEEDED".
func StateName(s messages.State) string { return strings.TrimPrefix(s.String(), "STATE_") }

// ReasonName is a dead letter's reason as one word, such as "budget_spent"; empty for none.
func ReasonName(r messages.Reason) string { return messages.ReasonName(r) }
