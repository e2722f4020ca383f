package streambridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/memstream"
)

// These tests run whole bridges with their default times on a stream in memory, in virtual time: a lease costs nothing.

const public = "agent:tasks"

// cluster is a stream and its nodes inside one bubble.
type cluster struct {
	*testing.T
	server *memstream.Server

	mu    sync.Mutex
	runs  map[string]int       // assignments by task id
	ended map[string]int       // answers VERDICT_ACK by task id
	times map[string]time.Time // of the last assignment
}

// node is one process of the cluster with an agents actor that works for a time and answers ACK.
type node struct {
	*cluster
	name   string
	stream *memstream.Stream
	bridge *streambridge.Bridge
	system *actor.ActorSystem
	agents *actor.PID
	work   time.Duration

	events  map[string]int
	cancels map[messages.CancelCause]int
	running map[messages.Ref]*time.Timer
	stopped bool
}

func bubble(t *testing.T, run func(*testing.T, *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			T: t, server: memstream.NewServer(), runs: map[string]int{}, ended: map[string]int{}, times: map[string]time.Time{},
		}
		t.Cleanup(func() { time.Sleep(time.Second) }) // protoactor's own goroutines end
		run(t, c)
	})
}

func (c *cluster) add(n int, kind string) {
	for i := range n {
		c.server.Add(public, messages.Pair{Name: "task_id", Value: fmt.Sprintf("%s-%d", kind, i)}, messages.Pair{Name: "type", Value: kind},
			messages.Pair{Name: "payload", Value: "{}"})
	}
}

// node starts a node; work is how long its agent takes, change may alter its configuration.
func (c *cluster) node(name string, work time.Duration, change func(*streambridge.Config)) *node {
	n := &node{
		cluster: c, name: name, stream: c.server.Stream(), work: work, events: map[string]int{},
		cancels: map[messages.CancelCause]int{}, running: map[messages.Ref]*time.Timer{},
	}
	n.system = actor.NewActorSystem(
		actor.WithDeadLetterThrottleInterval(10*time.Millisecond),
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
	)
	n.agents = n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return n }))
	cfg := streambridge.Config{
		Stream: n.stream, Node: messages.Node{Incarnation: "incarnation-" + name, Consumer: name, Types: []string{"noop"}},
		Events: func(e streambridge.Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			n.events[e.Name()]++
		},
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	n.bridge, err = streambridge.New(cfg)
	require.NoError(c, err)
	require.NoError(c, n.bridge.Start(c.Context(), n.system, n.agents))
	c.Cleanup(n.stop)
	return n
}

// stop ends a node as a crash does.
func (n *node) stop() {
	if n.stopped {
		return
	}
	n.stopped = true
	n.bridge.Stop()
	n.system.Root.Stop(n.agents)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.running {
		t.Stop()
	}
}

func (n *node) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *messages.Assign:
		n.mu.Lock()
		n.runs[m.Task.TaskId]++
		n.times[m.Task.TaskId] = time.Now()
		root, bridge := n.system.Root, ctx.Sender()
		ref, done := m.Entry.Ref(), &messages.Done{TaskId: m.Task.TaskId, Entry: m.Entry, Verdict: messages.Verdict_VERDICT_ACK}
		n.running[ref] = time.AfterFunc(n.work, func() {
			n.mu.Lock()
			delete(n.running, ref)
			n.ended[done.TaskId]++
			n.mu.Unlock()
			root.Send(bridge, done)
		})
		n.mu.Unlock()
	case *messages.Cancel:
		n.mu.Lock()
		n.cancels[m.Cause]++
		t := n.running[m.Entry.Ref()]
		delete(n.running, m.Entry.Ref())
		n.mu.Unlock()
		if t != nil && t.Stop() {
			ctx.Respond(&messages.Done{TaskId: m.TaskId, Entry: m.Entry, Verdict: messages.Verdict_VERDICT_DROP})
		}
	}
}

func (n *node) event(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.events[name]
}

func (n *node) told(cause messages.CancelCause) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cancels[cause]
}

// begun and done count the tasks that were assigned, and answered with ACK.
func (c *cluster) begun() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

func (c *cluster) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ended)
}

func (c *cluster) status() streambridge.Status {
	s := c.server.Stream()
	require.NoError(c, s.Open(context.Background(), messages.Names{}.WithDefaults(), messages.Node{Incarnation: "desk", Consumer: "desk"}))
	defer s.Close()
	st, err := s.Status(context.Background())
	require.NoError(c, err)
	return st
}

// settled waits in virtual time until nothing is pending or waiting, and says how long it took.
func (c *cluster) settled(within time.Duration, nodes ...*node) time.Duration {
	c.Helper()
	begun := time.Now()
	for {
		synctest.Wait()
		st := c.status()
		left := st.Pending + max(st.Lag, 0)
		for _, n := range nodes {
			left += int64(n.bridge.Stats().InFlight)
		}
		if left == 0 {
			return time.Since(begun)
		}
		if time.Since(begun) > within {
			c.Fatalf("not settled within %v: %+v", within, st)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *cluster) eachOnce(n int) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Len(c, c.ended, n)
	for id, k := range c.runs {
		if k != 1 {
			c.Errorf("task %s was assigned %d times", id, k)
		}
	}
}

func TestThreeNodesShareTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(3000, "noop")
		var nodes []*node
		for i := range 3 {
			nodes = append(nodes, c.node(fmt.Sprint("n", i), 50*time.Millisecond, nil))
		}
		c.settled(time.Minute, nodes...)
		c.eachOnce(3000)
		for _, n := range nodes {
			s := n.bridge.Stats()
			assert.EqualValues(t, streambridge.DefaultInFlight, s.Credits)
			assert.EqualValues(t, streambridge.DefaultInFlightBytes, s.CreditBytes)
			require.NoError(t, n.bridge.Health().Ready(time.Now()))
		}
		time.Sleep(3 * time.Second)
		assert.Zero(t, c.status().Length, "what everybody acknowledged is trimmed")
	})
}

func TestTheWorkOfADeadNodeRunsElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(100, "noop")
		a := c.node("a", time.Hour, nil)
		synctest.Wait()
		require.Equal(t, 100, a.bridge.Stats().Running)
		b := c.node("b", time.Second, nil)
		time.Sleep(12 * time.Second)
		a.stop()
		died := time.Now()
		for b.bridge.Stats().Claimed < 100 {
			time.Sleep(50 * time.Millisecond)
			require.Less(t, time.Since(died), streambridge.DefaultLease+2*time.Second)
		}
		c.settled(time.Minute, b)
		assert.Equal(t, 100, b.event("entry_claimed"))
		assert.Equal(t, 100, c.done())
	})
}

func TestADrainHandsOverAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(100, "noop")
		a := c.node("a", time.Hour, nil)
		synctest.Wait()
		require.Equal(t, 100, a.bridge.Stats().Running)
		b := c.node("b", time.Second, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, a.bridge.Drain(ctx), streambridge.ErrUnfinished)
		gone := time.Now()
		synctest.Wait()
		assert.Equal(t, 100, a.told(messages.CancelCause_CANCEL_CAUSE_DRAINING))
		for b.bridge.Stats().Claimed < 100 {
			time.Sleep(50 * time.Millisecond)
			require.Less(t, time.Since(gone), 2*time.Second)
		}
		c.settled(time.Minute, b)
		assert.Equal(t, 100, c.done())
	})
}

func TestADrainFinishesWhatIsQuick(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a", 2*time.Second, func(cfg *streambridge.Config) { cfg.InFlight = 50 })
		c.add(200, "noop")
		time.Sleep(time.Second)
		require.NoError(t, a.bridge.Drain(t.Context()))
		assert.Equal(t, c.begun(), c.done(), "what was begun ended, and nothing else was begun")
		assert.Less(t, c.begun(), 60)
		b := c.node("b", time.Millisecond, nil)
		c.settled(3*time.Second, b)
		c.eachOnce(200)
	})
}

func TestAnIsolatedNodeGivesUpAndStealsNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(50, "noop")
		a := c.node("a", 10*time.Minute, nil)
		synctest.Wait()
		b := c.node("b", time.Minute, nil)
		time.Sleep(time.Second)
		a.stream.SetDown(errors.New("cable cut"))
		time.Sleep(30 * time.Second)
		assert.Equal(t, 50, a.told(messages.CancelCause_CANCEL_CAUSE_LEASE_LOST))
		require.Error(t, a.bridge.Health().Ready(time.Now()))
		assert.Equal(t, 50, b.bridge.Stats().Running)
		a.stream.SetDown(nil)
		time.Sleep(20 * time.Second)
		require.NoError(t, a.bridge.Health().Ready(time.Now()))
		assert.Zero(t, a.bridge.Stats().InFlight)
		c.settled(2*time.Minute, a, b)
		assert.Zero(t, b.bridge.Stats().Lost)
		assert.Equal(t, 50, c.done())
		assert.Equal(t, 50, a.event("lease_lost"))
		assert.Equal(t, 1, a.event("beat_failing"))
		assert.Equal(t, 1, a.event("beat_recovered"))
	})
}

func TestALongOutageLosesNothingAndNobodyClaims(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a", 3*time.Second, nil)
		b := c.node("b", 3*time.Second, nil)
		c.add(100, "noop")
		time.Sleep(time.Second)
		c.server.SetDown(errors.New("connection refused"))
		time.Sleep(5 * time.Minute)
		c.server.SetDown(nil)
		back := time.Now()
		time.Sleep(2 * time.Second)
		require.NoError(t, a.bridge.Health().Ready(time.Now()), "works again within two seconds")
		c.settled(time.Minute, a, b)
		assert.Less(t, time.Since(back), 20*time.Second)
		assert.Equal(t, 100, c.done())
		assert.Zero(t, a.event("entry_claimed")+b.event("entry_claimed"))
	})
}

func TestPoisonIsSetAsideAndItsNeighborsRun(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(10, "noop")
		c.server.Add(public, messages.Pair{Name: "\xff", Value: "\x00\x01"})
		a := c.node("a", 0, nil)
		c.settled(10*time.Second, a)
		c.eachOnce(10)
		letters, err := a.stream.Letters(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		assert.Equal(t, messages.Reason_REASON_UNDECODABLE, letters[0].Reason)
		assert.Equal(t, []byte("\x00\x01"), letters[0].Fields[0].Value)
		assert.Equal(t, 1, a.event("entry_buried"))
	})
}

func TestEntriesWaitForANodeOfTheirAgent(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(20, "refund")
		c.add(20, "noop")
		a := c.node("a", 0, nil)
		time.Sleep(5 * time.Second)
		assert.Equal(t, 20, a.event("entry_moved"))
		assert.Equal(t, 1, a.event("type_unserved"))
		assert.Equal(t, 20, c.done())
		b := c.node("b", 0, func(cfg *streambridge.Config) { cfg.Node.Types = []string{"refund"} })
		time.Sleep(5 * time.Second)
		assert.Equal(t, 1, a.event("type_served"))
		c.settled(10*time.Second, a, b)
		assert.Equal(t, 40, c.done())
		assert.EqualValues(t, 0, c.status().Dead)
	})
}

func TestAGroupThatVanishesIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a", 30*time.Second, nil)
		c.add(20, "noop")
		time.Sleep(time.Second)
		c.server.FlushAll()
		time.Sleep(10 * time.Second)
		assert.Equal(t, 1, a.event("group_lost"), "one loud event")
		assert.Equal(t, 20, a.event("lease_lost"), "what was held is gone")
		c.add(10, "noop")
		c.settled(time.Minute, a)
		require.NoError(t, a.bridge.Health().Ready(time.Now()))
		assert.EqualValues(t, 10, a.bridge.Stats().Acked)
	})
}

func TestAnotherProcessOfTheSameNameIsRefusedOrTakesOver(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("same", time.Minute, nil)
		c.add(5, "noop")
		synctest.Wait()
		second, err := streambridge.New(streambridge.Config{
			Stream: c.server.Stream(), Node: messages.Node{Incarnation: "second", Consumer: "same", Types: []string{"noop"}},
		})
		require.NoError(t, err)
		require.ErrorIs(t, second.Start(t.Context(), a.system, a.agents), streambridge.ErrConsumerTaken)
		// Its connection is gone and it does not know: the newcomer takes over, and the old one stops.
		c.server.KillNode("incarnation-same")
		b := c.node("same", time.Second, func(cfg *streambridge.Config) { cfg.Node.Incarnation = "third" })
		<-a.bridge.Failed()
		require.ErrorIs(t, a.bridge.Err(), streambridge.ErrUsurped)
		require.NoError(t, a.bridge.Drain(t.Context()))
		c.settled(time.Minute, b)
		assert.Equal(t, 5, c.done())
		require.NoError(t, b.bridge.Err())
	})
}

// lossy loses every third reply: what was asked for has been done, and the caller is told that it failed.
type lossy struct {
	*memstream.Stream
	mu sync.Mutex
	n  int
}

func (l *lossy) lose() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n++; l.n%3 == 0 {
		return errors.New("the reply was lost")
	}
	return nil
}

func (l *lossy) Read(ctx context.Context, count int, block time.Duration) ([]streambridge.Entry, error) {
	entries, err := l.Stream.Read(ctx, count, block)
	if err == nil && len(entries) > 0 {
		err = l.lose()
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (l *lossy) Ack(ctx context.Context, refs []messages.Ref) error {
	return errors.Join(l.Stream.Ack(ctx, refs), l.lose())
}

func (l *lossy) Beat(ctx context.Context, held []streambridge.Held) (streambridge.Beat, error) {
	answer, err := l.Stream.Beat(ctx, held)
	return answer, errors.Join(err, l.lose())
}

func (l *lossy) Bury(ctx context.Context, dead []streambridge.Burial) error {
	return errors.Join(l.Stream.Bury(ctx, dead), l.lose())
}

func (l *lossy) Move(ctx context.Context, agent string, entries []streambridge.Held) error {
	return errors.Join(l.Stream.Move(ctx, agent, entries), l.lose())
}

func (l *lossy) Tick(ctx context.Context, req streambridge.TickRequest) (streambridge.Tick, error) {
	tick, err := l.Stream.Tick(ctx, req)
	if err = errors.Join(err, l.lose()); err != nil {
		return streambridge.Tick{}, err
	}
	return tick, nil
}

func TestLostRepliesLoseNothing(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		c.add(500, "noop")
		for range 5 {
			c.server.Add(public, messages.Pair{Name: "x", Value: "y"})
		}
		a := c.node("a", 100*time.Millisecond, func(cfg *streambridge.Config) {
			l := &lossy{Stream: cfg.Stream.(*memstream.Stream)}
			l.n = 1 // the first beat, in Start, gets through
			cfg.Stream, cfg.ReadCount = l, 20
		})
		c.settled(5*time.Minute, a)
		c.eachOnce(500)
		letters, err := a.stream.Letters(t.Context(), "", 100)
		require.NoError(t, err)
		assert.Len(t, letters, 5)
		assert.Positive(t, a.event("entry_adopted"))
	})
}
