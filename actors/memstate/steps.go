package memstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// Steps loads a unit's checkpoints, in the order of their begin; see actors.StateStore.
func (s *State) Steps(ctx context.Context, taskID, unit string) (steps []messages.Step, err error) {
	err = s.script(ctx, "steps", func(tx *memstream.Tx) error {
		t := tx.Task(taskID)
		if t == nil || t.Units[unit] == nil {
			return nil
		}
		steps, err = decodeSteps(t.Units[unit])
		return err
	})
	return steps, err
}

func decodeSteps(u *memstream.Unit) ([]messages.Step, error) {
	steps := make([]messages.Step, 0, len(u.Steps))
	for _, name := range slices.Sorted(maps.Keys(u.Steps)) {
		step, err := messages.DecodeStep(name, u.Steps[name])
		if err != nil {
			return nil, fmt.Errorf("load the steps of unit %.80q: %w", u.Name, err)
		}
		steps = append(steps, step)
	}
	sortSteps(steps)
	return steps, nil
}

// readableSteps shows a checkpoint that cannot be read as a spent step whose error says so.
func readableSteps(u *memstream.Unit) (steps []messages.Step) {
	for name, encoded := range u.Steps {
		step, err := messages.DecodeStep(name, encoded)
		if err != nil {
			step = messages.Step{Name: name, Status: messages.StepSpent, Error: err.Error()}
		}
		steps = append(steps, step)
	}
	sortSteps(steps)
	return steps
}

// sortSteps puts steps into the order of their begin.
func sortSteps(steps []messages.Step) {
	slices.SortFunc(steps, func(a, b messages.Step) int {
		return cmp.Or(cmp.Compare(a.BeganMS, b.BeganMS), cmp.Compare(a.EndedMS, b.EndedMS), cmp.Compare(a.Name, b.Name))
	})
}

// Checkpoint stores a step; see actors.StateStore.
func (s *State) Checkpoint(ctx context.Context, cp actors.Checkpoint) error {
	return s.script(ctx, "checkpoint", func(tx *memstream.Tx) error {
		_, u, err := fenced(tx, cp.TaskID, cp.Unit, cp.Fence)
		if err != nil {
			return fmt.Errorf("checkpoint step %q: %w", cp.Step.Name, err)
		}
		if u.Steps == nil {
			u.Steps = map[string][]byte{}
		}
		u.Steps[cp.Step.Name] = messages.EncodeStep(cp.Step)
		u.UpdatedMS = tx.NowMS
		return nil
	})
}
