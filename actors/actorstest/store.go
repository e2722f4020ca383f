package actorstest

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// store keeps the checkpoints of one task, and which steps wrote an intent.
type store struct {
	order   []string
	steps   map[string]messages.Step
	intents map[string]messages.Step
}

func newStore() store {
	return store{steps: map[string]messages.Step{}, intents: map[string]messages.Step{}}
}

func (s *store) put(step messages.Step) {
	if !slices.Contains(s.order, step.Name) {
		s.order = append(s.order, step.Name)
	}
	s.steps[step.Name] = step
	if step.Status == messages.StepIntent {
		s.intents[step.Name] = step
	}
}

func (s *store) forget(name string) bool {
	if _, ok := s.steps[name]; !ok {
		return false
	}
	if intent, ok := s.intents[name]; ok {
		s.steps[name] = intent
	} else {
		delete(s.steps, name)
	}
	return true
}

func (s *store) list() []messages.Step {
	var all []messages.Step
	for _, name := range s.order {
		if step, ok := s.steps[name]; ok {
			all = append(all, step)
		}
	}
	return all
}

// stateStore is the store as an activation sees it. The embedded interface is nil: nothing else is called.
type stateStore struct {
	actors.StateStore
	x *T
}

func (s *stateStore) Steps(context.Context, string, string) ([]messages.Step, error) {
	return s.x.Steps(), nil
}

// Checkpoint keeps what a Redis would give back: the encoded bytes, decoded again.
func (s *stateStore) Checkpoint(_ context.Context, cp actors.Checkpoint) error {
	step, err := messages.DecodeStep(cp.Step.Name, messages.EncodeStep(cp.Step))
	if err != nil {
		return fmt.Errorf("keep step %q: %w", cp.Step.Name, err)
	}
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if cp.Fence.Number != s.x.number {
		return fmt.Errorf("keep step %q: %w", cp.Step.Name, actors.ErrLeaseLost)
	}
	s.x.kept.put(step)
	return nil
}

// desk takes what steps publish.
type desk struct {
	actors.StateDesk
	x *T
}

func (d *desk) Publish(_ context.Context, _ string, c actors.Chunk) error {
	d.x.mu.Lock()
	defer d.x.mu.Unlock()
	c.Offset = fmt.Sprint(len(d.x.published) + 1)
	c.Data = slices.Clone(c.Data)
	d.x.published = append(d.x.published, c)
	return nil
}
