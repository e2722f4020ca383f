package supervision

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/messages"
)

// agents is the supervisor of the agent actors and does nothing else: a restart of it would kill them all.
//
// It knows one assignment a task. Each is served by an actor of its own, spawned unnamed when the Assign comes and
// stopped after its Done. When an actor dies before that (the strategy only ever stops), the supervisor sees Terminated,
// waits out the back-off and gives the same assignment to a fresh actor, which goes on from the last checkpoint.
// The entries that wait for the task stay in the bridge's window meanwhile.
type agents struct {
	props    *actor.Props // of one agent actor
	restarts Restarts
	log      hclog.Logger
	events   func(Event)
	counts   *counters
	fault    func(error) // a panic of its own

	bridge     *actor.PID
	activation uint64
	tasks      map[string]*hand
	pids       map[string]*hand // by child PID id
	reasons    map[string]string
}

// hand is an assignment in hand.
type hand struct {
	assign *messages.Assign
	pid    *actor.PID // nil while it waits out a back-off
	budget budget
	crash  string
	spent  bool             // the restarts are used up: the next actor only ends the unit
	cancel *messages.Cancel // came during the back-off
	timer  *time.Timer
}

// respawn ends a back-off. It names the hand, so that one of an older assignment is ignored.
type respawn struct{ h *hand }

// stopAgents tells the supervisor to stop all its actors and then itself.
type stopAgents struct{}

func (a *agents) Receive(c actor.Context) {
	defer guard("agents", c, a.fault)
	switch m := c.Message().(type) {
	case *messages.Assign:
		a.assign(c, m)
	case *messages.Done:
		a.done(c, m)
	case *messages.Cancel:
		a.cancel(c, m)
	case *actor.Terminated:
		a.terminated(c, m.GetWho())
	case respawn:
		if a.tasks[m.h.assign.GetTask().GetTaskId()] == m.h && m.h.pid == nil {
			a.spawn(c, m.h, m.h.spent)
		}
	case stopAgents:
		for _, h := range a.tasks {
			if h.timer != nil {
				h.timer.Stop()
			}
		}
		c.Stop(c.Self())
	}
}

// HandleFailure is the strategy: remember why, and stop. protoactor's restart would lose the message in hand, and one
// that reaches a stopping actor resurrects it.
func (a *agents) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	if _, ours := a.pids[child.GetId()]; ours {
		a.reasons[child.GetId()] = fmt.Sprint(reason)
	}
	s.StopChildren(child)
}

func (a *agents) assign(c actor.Context, m *messages.Assign) {
	if c.Sender() != nil {
		a.bridge = c.Sender()
	}
	id := m.GetTask().GetTaskId()
	if old := a.tasks[id]; old != nil {
		// The bridge never does this; answering it would only hide the fault.
		panic(fmt.Sprintf("a second assignment of a task: entry %s while %s is in hand", m.GetEntry().GetId(), old.assign.GetEntry().GetId()))
	}
	h := &hand{assign: m, budget: budget{policy: a.restarts}}
	a.tasks[id] = h
	a.spawn(c, h, false)
}

// spawn gives the assignment to a fresh, unnamed actor. A name would be the dying one's for a while.
func (a *agents) spawn(c actor.Context, h *hand, spent bool) {
	a.activation++
	h.timer = nil
	h.pid = c.Spawn(a.props)
	a.pids[h.pid.GetId()] = h
	c.Request(h.pid, &messages.Assign{
		Task: h.assign.GetTask(), Entry: h.assign.GetEntry(),
		Activation: a.activation, Crash: h.crash, RestartsSpent: spent,
	})
	if h.cancel != nil {
		c.Send(h.pid, h.cancel)
	}
}

func (a *agents) done(c actor.Context, m *messages.Done) {
	h := a.tasks[m.GetTaskId()]
	if h == nil || h.pid == nil || c.Sender() == nil || !h.pid.Equal(c.Sender()) {
		return // of an actor that was given up
	}
	a.forget(h)
	c.Stop(h.pid)
	c.Request(a.bridge, m)
}

func (a *agents) forget(h *hand) {
	delete(a.tasks, h.assign.GetTask().GetTaskId())
	if h.pid != nil {
		delete(a.pids, h.pid.GetId())
		delete(a.reasons, h.pid.GetId())
	}
}

func (a *agents) cancel(c actor.Context, m *messages.Cancel) {
	h := a.tasks[m.GetTaskId()]
	switch {
	case h == nil:
	case m.GetEntry() != nil && m.GetEntry().Ref() != h.assign.GetEntry().Ref():
	case h.pid != nil:
		c.Send(h.pid, m)
	default:
		// It waits out a back-off: nothing runs. An entry given up in a drain is dropped now, a cancelled task is told to its
		// next actor, which ends it under its fence.
		if m.GetCause() == messages.CancelCause_CANCEL_CAUSE_CANCELLED {
			h.cancel = m
			return
		}
		h.timer.Stop()
		if m.GetCause() == messages.CancelCause_CANCEL_CAUSE_LEASE_LOST {
			// The record says that it runs here; the next actor's Begin mends that, and finds the entry gone.
			a.spawn(c, h, h.spent)
			return
		}
		a.forget(h)
		c.Request(a.bridge, &messages.Done{TaskId: m.GetTaskId(), Entry: h.assign.GetEntry(), Verdict: messages.Verdict_VERDICT_DROP})
	}
}

// terminated is told of every child, also of those that were stopped on purpose and possibly twice.
func (a *agents) terminated(c actor.Context, who *actor.PID) {
	h := a.pids[who.GetId()]
	if h == nil {
		return
	}
	reason := a.reasons[who.GetId()]
	delete(a.pids, who.GetId())
	delete(a.reasons, who.GetId())
	if reason == "" {
		reason = "the agent actor stopped without an answer"
	}
	h.pid, h.crash = nil, reason
	a.counts.crashes.Add(1)
	wait, ok := h.budget.next(time.Now())
	task := h.assign.GetTask()
	a.events(AgentCrashed{TaskID: task.GetTaskId(), Unit: task.GetUnit(), Type: task.GetType(), Reason: reason, Restarting: ok, After: wait})
	if !ok && !h.spent {
		h.spent = true
		a.spawn(c, h, true)
		return
	}
	if !ok { // not even ending it worked: keep trying, slowly
		wait = a.restarts.Cap
	}
	self, root := c.Self(), c.ActorSystem().Root
	h.timer = time.AfterFunc(jitter(wait), func() { root.Send(self, respawn{h}) })
}
