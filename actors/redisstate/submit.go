package redisstate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// markerTTL is how long Submit stays idempotent by id where the submission does not say: a week.
const markerTTL = 7 * 24 * time.Hour

// Submit adds tasks to the public stream; see actors.StateDesk. A Submission's TTL of 0 means 7 days, a negative one for
// ever. An error on the way leaves some of the tasks added; repeat the whole call, those are known then.
func (s *State) Submit(ctx context.Context, tasks []actors.Submission) ([]actors.Submitted, error) {
	b, err := s.binding()
	if err != nil {
		return nil, err
	}
	answers := make([]actors.Submitted, 0, len(tasks))
	calls := make([]*call, len(tasks))
	for i, t := range tasks {
		calls[i] = submitCall(b, t)
	}
	for len(calls) > 0 {
		n := fitting(calls)
		part := calls[:n]
		calls = calls[n:]
		// One pipeline after the other: the entries keep their order.
		if err := s.batch.inOrder(ctx, part); err != nil {
			return nil, fmt.Errorf("submit %d tasks: %w", n, err)
		}
		for _, c := range part {
			<-c.done
			a, err := submitAnswer(c)
			c.recycle()
			if err != nil {
				return nil, fmt.Errorf("submit %d tasks: %w", n, ended(ctx, err))
			}
			answers = append(answers, a)
		}
	}
	return answers, nil
}

// ended says that a failure is the end of ctx where it is: the connection has the same deadline, and may see it first.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if at, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(at) {
		cause = context.DeadlineExceeded
	}
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

func submitCall(b *binding, t actors.Submission) *call {
	args := make([]string, 0, 6+2*len(t.Fields))
	args = append(args, messages.Escape(t.Unit), t.Work, b.typeOf(t), number(max(0, t.MaxLen)), number(markerMS(t)), when(t))
	for _, f := range t.Fields {
		args = append(args, f.Name, f.Value)
	}
	return newCall(submitScript, []string{b.keys.Stream, b.keys.Submitted(t.ID), b.keys.Gate()}, args)
}

// when is the argument of submit.lua that tells when a task joins the stream, and what its unique key is.
func when(t actors.Submission) string {
	if t.Delay <= 0 && t.At.IsZero() && t.Unique == "" {
		return ""
	}
	at := int64(0)
	if !t.At.IsZero() {
		at = max(0, ceilMS(t.At))
	}
	delay := max(0, t.Delay+time.Millisecond-1).Milliseconds()
	return fmt.Sprintf("%d %d %d %s", delay, at, ttlMS(t.For), messages.Escape(t.Unique))
}

// ceilMS is a time in Unix ms, the next one where it is between two: never early.
func ceilMS(t time.Time) int64 { return t.Add(time.Millisecond - time.Nanosecond).UnixMilli() }

// markerMS is how long the marker of a submission is kept.
func markerMS(t actors.Submission) int64 {
	switch {
	case t.TTL == 0:
		return ttlMS(markerTTL)
	case t.TTL < 0:
		return ttlMS(forever)
	}
	return ttlMS(t.TTL)
}

// typeOf is what the entry of a submission says of its type.
func (b *binding) typeOf(t actors.Submission) string {
	for _, f := range t.Fields {
		if f.Name == b.fields.Type {
			return f.Value
		}
	}
	return ""
}

// submitAnswer tells what the server said to one task (part of its answer) from a server that cannot be reached (an
// error for the whole call).
func submitAnswer(c *call) (actors.Submitted, error) {
	if c.err != nil {
		if isReply(c.err) {
			return actors.Submitted{Err: c.err}, nil
		}
		return actors.Submitted{}, c.err
	}
	r := replyReader{list: asList(c.reply)}
	what, a := r.int(), actors.Submitted{EntryID: r.string(), Due: msTime(r.string())}
	switch what {
	case 1:
	case 2:
		a.Known = true
	case 3:
		a.Err = actors.ErrConflict
	case 4:
		a.Err = actors.ErrBacklogFull
	case 5:
		a.Known = true
		id, unit, _ := strings.Cut(r.string(), ":")
		a.ID, a.Unit = messages.Unescape(id), messages.Unescape(unit)
	case 6:
		reason, after, err := messages.ParseGate(a.EntryID)
		if err != nil {
			return actors.Submitted{}, err
		}
		a.EntryID, a.Err = "", &actors.GateError{Reason: reason, RetryAfter: after}
	default:
		return a, fmt.Errorf("submit.lua answered %d", what)
	}
	return a, r.err
}
