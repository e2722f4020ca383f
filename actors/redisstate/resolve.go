package redisstate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// deadTTL is how long a dead letter is kept where nobody says.
const deadTTL = 30 * 24 * time.Hour

// Resolve settles a step that is in doubt; see actors.StateOps.
func (s *State) Resolve(ctx context.Context, r actors.Resolution) error {
	b, err := s.binding()
	if err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return err
	}
	keep := cmp.Or(r.TTL, deadTTL)
	if keep < 0 {
		keep = forever
	}
	reply, err := s.batch.do(ctx, resolveScript, []string{b.keys.Task(r.ID), b.keys.Stream},
		b.keys.Prefix, messages.Escape(r.Unit), r.Step, r.How.String(), r.ContentType, string(r.Result),
		clip(cmp.Or(r.Reason, "no reason was given")), clip(r.By), number(keep.Milliseconds()))
	if err != nil {
		return fmt.Errorf("task %.80q: %w", r.ID, err)
	}
	answer := replyReader{list: asList(reply)}
	switch what := answer.int(); what {
	case 1:
		return nil
	case 2:
		return &actors.NoDoubtError{ID: r.ID, Unit: r.Unit, Step: r.Step, State: stateFrom(answer.string()), Doubt: answer.string()}
	case 3:
		return fmt.Errorf("task %.80q: %w", r.ID, actors.ErrBodyGone)
	default:
		return fmt.Errorf("task %.80q: %w", r.ID, actors.ErrNoTask)
	}
}
