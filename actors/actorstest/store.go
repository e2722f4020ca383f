package actorstest

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/waits"
	"github.com/weir-run/weir/messages"
)

// store keeps what is known of one task, and which steps wrote an intent.
type store struct {
	waits.Book
	intents map[string]messages.Step
}

func (s *store) put(step messages.Step) error {
	if step.Status == messages.StepIntent {
		if s.intents == nil {
			s.intents = map[string]messages.Step{}
		}
		s.intents[step.Name] = step
	}
	return s.Put(step)
}

// forget takes a step back to its intent, or to nothing.
func (s *store) forget(name string) error {
	step, ok := s.Step(name)
	switch {
	case !ok:
		return fmt.Errorf("forget %q: there is no such step", name)
	case !step.Status.OfStep():
		return fmt.Errorf("forget %q: it is no step: what it waited for is kept when it comes", name)
	}
	if intent, ok := s.intents[name]; ok {
		return s.Put(intent)
	}
	s.Drop(name)
	return nil
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
	s.x.mu.Lock()
	defer s.x.mu.Unlock()
	if cp.Fence.Number != s.x.number {
		return fmt.Errorf("keep step %q: %w", cp.Step.Name, actors.ErrLeaseLost)
	}
	return s.x.kept.put(cp.Step)
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
