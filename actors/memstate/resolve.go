package memstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// deadTTL is how long a dead letter is kept where nobody says.
const deadTTL = 30 * 24 * time.Hour

// Resolve settles a step that is in doubt; see actors.StateOps.
func (s *State) Resolve(ctx context.Context, r actors.Resolution) error {
	if err := r.Check(); err != nil {
		return err
	}
	r.Reason, r.By = clip(cmp.Or(r.Reason, "no reason was given")), clip(r.By)
	return s.script(ctx, "resolve", func(tx *memstream.Tx) error { return resolve(tx, r) })
}

func resolve(tx *memstream.Tx, r actors.Resolution) error {
	t := tx.Task(r.ID)
	if t == nil || t.Units[r.Unit] == nil {
		return fmt.Errorf("task %.80q: %w", r.ID, actors.ErrNoTask)
	}
	u, word := t.Units[r.Unit], r.How.String()+" "+r.Step
	if u.Doubt != r.Step {
		if u.Doubt == "" && u.Resolved == word {
			return nil
		}
		return &actors.NoDoubtError{ID: r.ID, Unit: r.Unit, Step: r.Step, State: u.State, Doubt: u.Doubt}
	}
	u.Resolved = word
	said := r.Reason
	if r.By != "" {
		said += " (by " + r.By + ")"
	}
	tx.Note(t, "resolved", cut(fmt.Sprintf("%s: %v, %s", r.Step, r.How, said)))
	detail := ""
	switch r.How {
	case actors.ResolveDone:
		found(tx, u, r)
	case actors.ResolveRerun:
		delete(u.Steps, r.Step)
	case actors.ResolveFail:
		detail = "the effect of step " + r.Step + " is in doubt: " + said
	}
	if !tx.Resolve(t, u, cmp.Or(r.TTL, deadTTL), detail) {
		return fmt.Errorf("task %.80q: %w", r.ID, actors.ErrBodyGone)
	}
	return nil
}

// found writes the result that a person gives as the step's.
func found(tx *memstream.Tx, u *memstream.Unit, r actors.Resolution) {
	step, err := messages.DecodeStep(r.Step, u.Steps[r.Step])
	if err != nil { // there is none
		step = messages.Step{Attempts: 1, BeganMS: tx.NowMS}
	}
	step.Status, step.EndedMS, step.Error = messages.StepFound, tx.NowMS, ""
	step.ContentType, step.Value = r.ContentType, slices.Clone(r.Result)
	if u.Steps == nil {
		u.Steps = map[string][]byte{}
	}
	u.Steps[r.Step] = messages.EncodeStep(step)
}
