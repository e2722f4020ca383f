package actors_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a state store in a map, with a hook before each write.
type memory struct {
	actors.StateStore // nil: Begin and Commit are the runtime's business
	mu                sync.Mutex
	steps             map[string]messages.Step
	writes            []messages.Step
	loads             int
	before            func(messages.Step) error
	loadErr           error
}

func (m *memory) Steps(context.Context, string, string) ([]messages.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	var all []messages.Step
	for _, s := range m.steps {
		all = append(all, s)
	}
	return all, m.loadErr
}

func (m *memory) Checkpoint(ctx context.Context, cp actors.Checkpoint) error {
	if m.before != nil {
		if err := m.before(cp.Step); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps == nil {
		m.steps = map[string]messages.Step{}
	}
	m.steps[cp.Step.Name] = cp.Step
	m.writes = append(m.writes, cp.Step)
	return nil
}

// statuses are the statuses written for a step, in order.
func (m *memory) statuses(step string) []messages.StepStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []messages.StepStatus
	for _, w := range m.writes {
		if w.Name == step {
			all = append(all, w.Status)
		}
	}
	return all
}

// world runs activations of one task on one store.
type world struct {
	store  *memory
	agent  actors.Agent
	job    actors.Job // what the test sets beforehand
	number uint64
}

func newWorld[M, R any](h func(*actors.Context, M) (R, error), opts ...actors.AgentOption) *world {
	return &world{store: &memory{}, agent: actors.Func(h).With(opts...)}
}

func (w *world) activate(ctx context.Context, payload string) actors.Verdict {
	w.number++
	job := w.job
	job.Agent, job.Store = w.agent, w.store
	if job.Task == nil {
		job.Task = &messages.Task{TaskId: "t-1", Type: "test", Payload: []byte(payload)}
	}
	job.Begun.Answer = actors.Run
	job.Begun.Steps = len(w.store.steps) > 0
	job.Begun.Fence = actors.Fence{Number: w.number, Incarnation: "i", Activation: w.number}
	job.Jitter = func() float64 { return 1 }
	if job.Wait == nil {
		job.Wait = func(context.Context, time.Duration) {}
	}
	return actors.Activate(ctx, &job)
}

type in struct{ N int }
