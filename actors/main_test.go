package actors_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/waits"
	"github.com/weir-run/weir/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is the store of one unit, with a hook before each checkpoint and a clock of its own.
type memory struct {
	actors.StateStore // nil: Begin is the runtime's business
	mu                sync.Mutex
	book              waits.Book
	writes            []messages.Step
	loads             int
	before            func(messages.Step) error
	loadErr           error
}

func (m *memory) Steps(context.Context, string, string) ([]messages.Step, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	return m.book.Steps(), m.loadErr
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
	m.writes = append(m.writes, cp.Step)
	return m.book.Put(cp.Step)
}

// Commit does what concerns waits and children, and answers as a store does.
func (m *memory) Commit(_ context.Context, c actors.Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, over, err := m.book.Commit(c)
	if err == nil && over && c.Outcome == parked {
		return actors.ErrResume
	}
	return err
}

func (m *memory) send(t testing.TB, name, id string, v any) error {
	t.Helper()
	contentType, payload, err := actors.Encode(v)
	require.NoError(t, err)
	return m.book.Send(name, id, messages.Mail{ContentType: contentType, Payload: payload})
}

// preset makes a checkpoint without anything having run.
func (m *memory) preset(s messages.Step) {
	if err := m.book.Put(s); err != nil {
		panic(err)
	}
}

func (m *memory) step(name string) messages.Step {
	s, _ := m.book.Step(name)
	return s
}

func (m *memory) any() bool { return len(m.book.Steps()) > 0 }

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
	job.Begun.Steps = w.store.any()
	job.Begun.Fence = actors.Fence{Number: w.number, Incarnation: "i", Activation: w.number}
	job.Jitter = func() float64 { return 1 }
	if job.Wait == nil {
		job.Wait = func(context.Context, time.Duration) {}
	}
	return actors.Activate(ctx, &job)
}

type in struct{ N int }

// life calls the handler as often as its unit comes back at once, and commits what it comes to.
func (w *world) life(t testing.TB) actors.Verdict {
	t.Helper()
	for range 100 {
		v := w.activate(t.Context(), `{}`)
		err := w.store.Commit(t.Context(), v.Commit(&messages.Task{TaskId: "t-1", Type: "test"}, actors.Fence{Number: w.number}, messages.Ref{}))
		if !errors.Is(err, actors.ErrResume) {
			require.NoError(t, err)
			return v
		}
	}
	t.Fatal("it is called again and again")
	return actors.Verdict{}
}

// pass lets time pass.
func (w *world) pass(t testing.TB, d time.Duration) {
	t.Helper()
	require.NoError(t, w.store.book.Advance(w.store.book.Now.Add(d)))
}
