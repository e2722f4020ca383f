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

// bench is a store in which units of type "suspect" run on trial, one at a time, and the others at once.
type bench struct {
	actors.State
	asked atomic.Int64

	mu    sync.Mutex
	trial string
	// fresh counts the others that began while a trial was on.
	fresh int
}

func (b *bench) Begin(_ context.Context, req actors.BeginRequest) (actors.Begun, error) {
	b.asked.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case req.Task.GetType() != "suspect":
		if b.trial != "" {
			b.fresh++
		}
		return actors.Begun{Answer: actors.Run}, nil
	case b.trial != "":
		return actors.Begun{Answer: actors.Later, Wait: time.Second}, nil
	case !req.Trial:
		return actors.Begun{Answer: actors.Later}, nil
	}
	b.trial = req.Task.GetTaskId()
	return actors.Begun{Answer: actors.Run, Trial: true}, nil
}

func (b *bench) Commit(_ context.Context, m actors.Commit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial == m.TaskID {
		b.trial = ""
	}
	return nil
}

func (b *bench) freshOnTrial() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fresh
}

// node runs activations on one store and one court.
type node struct {
	cfg *Config
	ids atomic.Int64
}

func newNode(t *testing.T, store actors.State, c *court) *node {
	t.Helper()
	none := func(*actors.Context, actors.Raw) (actors.None, error) { return nil, nil }
	return &node{cfg: &Config{
		State: store, shared: &shared{court: c}, Hard: t.Context(),
		Hooks:  Hooks{Began: func(*messages.Task, actors.Begun) {}, Ended: func(*messages.Task, actors.Commit, time.Duration) {}},
		Agents: actors.Agents{"suspect": actors.Func(none), "fresh": actors.Func(none)},
	}}
}

func (n *node) activation(kind string) *activation {
	id := fmt.Sprint(kind, "-", n.ids.Add(1))
	return &activation{cfg: n.cfg, assign: &messages.Assign{Task: &messages.Task{TaskId: id, Type: kind}, Entry: &messages.Entry{Id: "1-0"}}}
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
	store := &bench{}
	n := newNode(t, store, newCourt())
	const crowd = 300
	var all sync.WaitGroup
	began := time.Now()
	for range crowd {
		a := n.activation("suspect")
		all.Go(func() { assert.Equal(t, messages.Verdict_VERDICT_ACK, a.run(t, t.Context())) })
	}
	all.Wait()
	require.Less(t, time.Since(began), 20*time.Second, "a wait of one second each would take minutes")
	require.LessOrEqual(t, store.asked.Load(), int64(4*crowd))
}

// While a trial has the node for itself nothing else begins there; but what begins there is not held up for long.
func TestNothingElseBeginsBesideATrial(t *testing.T) {
	store := &bench{}
	n := newNode(t, store, newCourt())
	var all sync.WaitGroup
	for range 100 {
		a := n.activation("suspect")
		all.Go(func() { a.run(t, t.Context()) })
	}
	stop := make(chan struct{})
	began := make(chan time.Duration, 10_000)
	var stream sync.WaitGroup
	stream.Go(func() {
		clock := time.NewTicker(2 * time.Millisecond)
		defer clock.Stop()
		for {
			select {
			case <-stop:
				return
			case <-clock.C:
			}
			a, at := n.activation("fresh"), time.Now()
			all.Go(func() {
				a.run(t, t.Context())
				began <- time.Since(at)
			})
		}
	})
	time.Sleep(time.Second)
	close(stop)
	stream.Wait()
	all.Wait()
	close(began)
	require.Zero(t, store.freshOnTrial())
	for d := range began {
		require.Less(t, d, 5*time.Second)
	}
}

// A trial that lasts opens the gate after a while, and a court that has lost its way opens it, too.
func TestALongTrialHoldsUpNobody(t *testing.T) {
	c := newCourt()
	c.settle, c.alone = time.Millisecond, 50*time.Millisecond
	ask := func(bool) (actors.Begun, error) { return actors.Begun{Answer: actors.Run, Trial: true}, nil }
	_, trial, err := c.try(t.Context(), actors.Begun{}, ask)
	require.NoError(t, err)
	began := time.Now()
	require.True(t, c.pass(t.Context()))
	require.GreaterOrEqual(t, time.Since(began), 40*time.Millisecond)
	require.Less(t, time.Since(began), 5*time.Second)
	c.release(trial)
	require.True(t, c.pass(t.Context()))
}

// Whoever gives up leaves the line, wherever it stands.
func TestASuspectThatGivesUpHoldsUpNobody(t *testing.T) {
	store := &bench{trial: "a long one"}
	n := newNode(t, store, newCourt())
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	for range 3 {
		a := n.activation("suspect")
		all.Go(func() { assert.Equal(t, messages.Verdict_VERDICT_DROP, a.run(t, ctx)) })
	}
	cancel(actors.ErrDraining)
	all.Wait()
	store.mu.Lock()
	store.trial = ""
	store.mu.Unlock()
	require.Equal(t, messages.Verdict_VERDICT_ACK, n.activation("suspect").run(t, t.Context()))
	require.Equal(t, messages.Verdict_VERDICT_ACK, n.activation("fresh").run(t, t.Context()))
}
