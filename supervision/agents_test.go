package supervision

import (
	"errors"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a supervisor with a scripted agent actor and a bridge that collects what it is told.
type stage struct {
	t      *testing.T
	system *actor.ActorSystem
	sup    *actor.PID
	bridge *actor.PID
	done   chan *messages.Done
	seen   chan *messages.Assign
	events chan Event
	faults chan error
}

type script func(c actor.Context, m *messages.Assign)

func newStage(t *testing.T, restarts Restarts, act script) *stage {
	s := &stage{
		t: t, system: newSystem(hclog.NewNullLogger()),
		done: make(chan *messages.Done, 100), seen: make(chan *messages.Assign, 100), events: make(chan Event, 100), faults: make(chan error, 10),
	}
	child := actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *messages.Assign:
			s.seen <- m
			act(c, m)
		case *messages.Cancel:
			c.Request(c.Parent(), &messages.Done{TaskId: m.GetTaskId(), Verdict: messages.Verdict_VERDICT_DROP})
		}
	})
	s.sup = s.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &agents{
			props: child, restarts: restarts, log: hclog.NewNullLogger(), counts: &counters{}, events: func(e Event) { s.events <- e }, fault: func(err error) { s.faults <- err },
			tasks: map[string]*hand{}, pids: map[string]*hand{}, reasons: map[string]string{},
		}
	}))
	s.bridge = s.system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *messages.Assign:
			c.Request(s.sup, m)
		case *messages.Done:
			s.done <- m
		}
	}))
	t.Cleanup(func() {
		require.NoError(t, stopActor(s.system, s.sup, 5*time.Second))
		s.system.Root.Stop(s.bridge)
	})
	return s
}

func (s *stage) assign(id string) {
	s.system.Root.Send(s.bridge, &messages.Assign{Task: &messages.Task{TaskId: id}, Entry: &messages.Entry{Stream: "s", Id: "1-1"}})
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func answer(c actor.Context, m *messages.Assign) {
	c.Request(c.Parent(), &messages.Done{TaskId: m.GetTask().GetTaskId(), Entry: m.GetEntry(), Verdict: messages.Verdict_VERDICT_ACK})
}

var quick = Restarts{Max: 3, Within: time.Minute, Base: time.Millisecond, Cap: 5 * time.Millisecond}

func TestACrashedAgentIsReplacedAndToldWhy(t *testing.T) {
	s := newStage(t, quick, func(c actor.Context, m *messages.Assign) {
		if m.GetCrash() == "" {
			panic(errors.New("the handler burst"))
		}
		answer(c, m)
	})
	s.assign("a")
	first, second := receive(t, s.seen), receive(t, s.seen)
	require.Less(t, first.GetActivation(), second.GetActivation())
	require.Contains(t, second.GetCrash(), "the handler burst")
	require.Equal(t, messages.Verdict_VERDICT_ACK, receive(t, s.done).GetVerdict())
	e := receive(t, s.events).(AgentCrashed)
	require.True(t, e.Restarting)
	require.Equal(t, "a", e.TaskID)
}

func TestRestartsAreUsedUp(t *testing.T) {
	s := newStage(t, quick, func(c actor.Context, m *messages.Assign) {
		if !m.GetRestartsSpent() {
			panic("again")
		}
		answer(c, m)
	})
	s.assign("a")
	for range 4 {
		require.False(t, receive(t, s.seen).GetRestartsSpent(), "the first and three restarts run it")
	}
	require.True(t, receive(t, s.seen).GetRestartsSpent(), "then an actor that only ends it")
	receive(t, s.done)
}

func TestAnActorThatStopsWithoutAnAnswerCountsAsCrashed(t *testing.T) {
	s := newStage(t, quick, func(c actor.Context, m *messages.Assign) {
		if m.GetCrash() == "" {
			c.Stop(c.Self())
			return
		}
		answer(c, m)
	})
	s.assign("a")
	receive(t, s.done)
	require.Equal(t, "the agent actor stopped without an answer", receive(t, s.events).(AgentCrashed).Reason)
}

func TestACrashLeavesTheOthersAlone(t *testing.T) {
	s := newStage(t, Restarts{Max: -1, Within: time.Minute, Base: time.Millisecond, Cap: time.Millisecond}, func(c actor.Context, m *messages.Assign) {
		if m.GetTask().GetTaskId() == "bad" && !m.GetRestartsSpent() {
			panic("bad")
		}
		answer(c, m)
	})
	for range 20 {
		s.assign("bad")
		for _, id := range []string{"a", "b", "c"} {
			s.assign(id)
		}
		got := map[string]int{}
		for range 4 {
			got[receive(t, s.done).GetTaskId()]++
		}
		require.Equal(t, map[string]int{"bad": 1, "a": 1, "b": 1, "c": 1}, got)
	}
}

func TestACancelDuringTheBackOffDropsTheEntry(t *testing.T) {
	slow := Restarts{Max: 3, Within: time.Minute, Base: time.Hour, Cap: time.Hour}
	s := newStage(t, slow, func(actor.Context, *messages.Assign) { panic("bad") })
	s.assign("a")
	receive(t, s.events)
	s.system.Root.Send(s.sup, &messages.Cancel{TaskId: "a", Cause: messages.CancelCause_CANCEL_CAUSE_DRAINING})
	require.Equal(t, messages.Verdict_VERDICT_DROP, receive(t, s.done).GetVerdict())
	s.assign("a") // it is free again
	receive(t, s.events)
}

// Only a Begin can end the ownership that the record still has.
func TestALostLeaseEndsTheBackOff(t *testing.T) {
	slow := Restarts{Max: 3, Within: time.Minute, Base: time.Hour, Cap: time.Hour}
	s := newStage(t, slow, func(actor.Context, *messages.Assign) { panic("bad") })
	s.assign("a")
	receive(t, s.events)
	receive(t, s.seen)
	s.system.Root.Send(s.sup, &messages.Cancel{TaskId: "a", Cause: messages.CancelCause_CANCEL_CAUSE_LEASE_LOST})
	require.Equal(t, "a", receive(t, s.seen).GetTask().GetTaskId())
}

func TestASecondAssignmentOfATaskIsAFault(t *testing.T) {
	s := newStage(t, quick, func(actor.Context, *messages.Assign) {})
	s.assign("a")
	s.assign("a")
	require.ErrorContains(t, receive(t, s.faults), "a second assignment of a task")
}

func TestBudget(t *testing.T) {
	now := time.Unix(1000, 0)
	b := budget{policy: Restarts{Max: 3, Within: time.Minute, Base: 100 * time.Millisecond, Cap: 300 * time.Millisecond}}
	for i, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond} {
		got, ok := b.next(now.Add(time.Duration(i) * time.Second))
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := b.next(now.Add(59 * time.Second))
	require.False(t, ok)
	got, ok := b.next(now.Add(60 * time.Second))
	require.True(t, ok, "the first one is out of the period")
	require.Equal(t, 300*time.Millisecond, got)
	_, ok = (&budget{policy: Restarts{Max: -1}}).next(now)
	require.False(t, ok, "-1 is off")
}
