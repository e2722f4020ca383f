package agentactor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// court is a store in which every unit is a suspect: one runs on trial, the others are to ask later.
type court struct {
	actors.State
	asked atomic.Int64

	mu    sync.Mutex
	trial string
}

func (c *court) Begin(_ context.Context, req actors.BeginRequest) (actors.Begun, error) {
	c.asked.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trial != "" {
		return actors.Begun{Answer: actors.Later, Wait: time.Second}, nil
	}
	c.trial = req.Task.GetTaskId()
	return actors.Begun{Answer: actors.Run, Trial: true}, nil
}

func (c *court) Commit(_ context.Context, m actors.Commit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trial != m.TaskID {
		return fmt.Errorf("%s ends the trial of %s", m.TaskID, c.trial)
	}
	c.trial = ""
	return nil
}

func activationOf(ctx context.Context, store actors.State, t *trials, id string) *activation {
	return &activation{
		cfg: &Config{
			State: store, shared: &shared{trials: t}, Hard: ctx,
			Hooks:  Hooks{Began: func(*messages.Task, actors.Begun) {}, Ended: func(*messages.Task, actors.Commit, time.Duration) {}},
			Agents: actors.Agents{"a": actors.Func(func(*actors.Context, actors.Raw) (actors.None, error) { return nil, nil })},
		},
		assign: &messages.Assign{Task: &messages.Task{TaskId: id, Type: "a"}, Entry: &messages.Entry{Id: "1-0"}},
	}
}

// run serves it to its end.
func (a *activation) run(t *testing.T, ctx context.Context) messages.Verdict {
	t.Helper()
	how := make(chan any, 1)
	a.serve(ctx, func(m any) { how <- m })
	last, ok := (<-how).(ended)
	if !ok {
		t.Errorf("%T instead of an end", last)
		return 0
	}
	return last.done.GetVerdict()
}

// A crowd of innocent suspects is through as fast as they run, not one a wait, and asks no more than it must.
func TestSuspectsFollowEachOtherAtOnce(t *testing.T) {
	store, line := &court{}, newTrials()
	const n = 300
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		a := activationOf(t.Context(), store, line, fmt.Sprint("t", i))
		all.Go(func() {
			assert.Equal(t, messages.Verdict_VERDICT_ACK, a.run(t, t.Context()))
		})
	}
	all.Wait()
	require.Less(t, time.Since(began), 20*time.Second, "a wait of one second each would take minutes")
	require.LessOrEqual(t, store.asked.Load(), int64(4*n))
}

// Whoever gives up leaves the line, wherever it stands.
func TestASuspectThatGivesUpHoldsUpNobody(t *testing.T) {
	store, line := &court{trial: "a long one"}, newTrials()
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	for i := range 3 {
		a := activationOf(ctx, store, line, fmt.Sprint("t", i))
		all.Go(func() {
			assert.Equal(t, messages.Verdict_VERDICT_DROP, a.run(t, ctx))
		})
	}
	cancel(actors.ErrDraining)
	all.Wait()
	store.mu.Lock()
	store.trial = ""
	store.mu.Unlock()
	require.Equal(t, messages.Verdict_VERDICT_ACK, activationOf(t.Context(), store, line, "next").run(t, t.Context()))
}
