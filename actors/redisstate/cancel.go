package redisstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Cancel ends a task, or one unit of it, before its time; see actors.StateDesk.
func (s *State) Cancel(ctx context.Context, c actors.Cancellation) ([]actors.CancelledUnit, error) {
	b, err := s.binding()
	if err != nil {
		return nil, err
	}
	one := "0"
	if c.Unit != "" {
		one = "1"
	}
	reply, err := s.batch.do(ctx, cancelScript, []string{b.keys.Task(c.ID), b.keys.Submitted(c.ID)},
		b.keys.Prefix, one, messages.Escape(c.Unit), number(ttlMS(cmp.Or(c.TTL, cancelledTTL))),
		clip(cmp.Or(c.Reason, "no reason was given")), clip(c.By), b.fields.Step, b.fields.Type, c.Type)
	if err != nil {
		return nil, fmt.Errorf("task %.80q: %w", c.ID, err)
	}
	r := replyReader{list: asList(reply)}
	switch len(r.list) {
	case 0:
		return nil, fmt.Errorf("task %.80q: %w", c.ID, actors.ErrNoTask)
	case 1:
		return nil, &actors.EndedError{ID: c.ID, Unit: c.Unit, State: stateFrom(r.string())}
	}
	var ended []actors.CancelledUnit
	for len(r.list) > 0 {
		ended = append(ended, actors.CancelledUnit{Unit: messages.Unescape(r.string()), Was: stateFrom(r.string())})
	}
	slices.SortFunc(ended, func(a, b actors.CancelledUnit) int { return cmp.Compare(a.Unit, b.Unit) })
	return ended, r.err
}

// cancelledTTL is how long the record of a task that was cancelled from outside is kept where nobody says: as long as that
// of a failed one, because it must meet an entry that has not been delivered yet.
const cancelledTTL = markerTTL
