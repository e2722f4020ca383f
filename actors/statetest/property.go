package statetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// nothingIsLost lets nodes begin, crash, die, retry and commit in any order, also late and twice, and holds the store to
// what must be true of all of it: one activation at a time has the fence, every charge is made once, and whatever was
// delivered can be brought to its end.
func nothingIsLost(t *testing.T, fresh func(t *testing.T) Fixture) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{
			t: t, rt: rt, Fixture: fresh(t), units: map[string]*unitModel{}, live: map[string]bool{},
			owners: map[string]string{}, top: map[string]uint64{},
		}
		for _, n := range []string{here, there, third} {
			m.setLive(n, true)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"deliver": m.deliver, "begin": m.begin, "checkpoint": m.checkpoint, "commit": m.commit, "die": m.die,
			"promote": m.promote, "inbox": m.inbox, "cancel": m.cancel, "park": m.park, "turn": m.turn, "": m.check,
		})
		m.finish()
	})
}

func (m *model) deliver(rt *rapid.T) {
	task := part(rapid.SampledFrom([]string{"a", "b{}"}).Draw(rt, "id"), rapid.SampledFrom([]string{"", "2"}).Draw(rt, "unit"))
	u := m.units[task.GetTaskId()+"/"+task.GetUnit()]
	if u == nil {
		u = &unitModel{task: task, outs: map[actors.Fence]messages.Outcome{}}
		m.units[task.GetTaskId()+"/"+task.GetUnit()] = u
	}
	node := rapid.SampledFrom([]string{here, there, third}).Draw(rt, "node")
	ref := m.World.Deliver(m.t, false, consumerOf(node), fieldsOf(task))
	m.acts++
	h := &held{ref: ref, unit: u, node: node, act: m.acts}
	if rapid.IntRange(0, 3).Draw(rt, "for later") == 0 {
		h.due = m.World.Now(m.t).Add(time.Hour)
	}
	m.held = append(m.held, h)
}

func (m *model) drop(h *held) {
	m.held = slices.DeleteFunc(m.held, func(o *held) bool { return o == h })
}

// draw picks an entry of a live node; a dead node's entry is claimed by another first.
func (m *model) draw(rt *rapid.T) *held {
	if len(m.held) == 0 {
		rt.Skip("nothing in hand")
	}
	h := m.held[rapid.IntRange(0, len(m.held)-1).Draw(rt, "entry")]
	if !m.live[h.node] {
		node := rapid.SampledFrom([]string{here, there, third}).Draw(rt, "claimed by")
		if !m.live[node] {
			rt.Skip("nobody claims")
		}
		m.World.Claim(m.t, h.ref, consumerOf(node))
		m.acts++
		h.node, h.act = node, m.acts
	}
	return h
}

func (m *model) begin(rt *rapid.T) {
	h := m.draw(rt)
	req := actors.BeginRequest{
		Task: h.unit.task, Entry: h.ref, Deliveries: 1, Wake: h.wake, Consumer: consumerOf(h.node), Incarnation: h.node,
	}
	if rapid.Bool().Draw(rt, "fresh actor") {
		m.acts++
		h.act = m.acts
		if rapid.Bool().Draw(rt, "after a crash") {
			req.Crash = "boom"
		}
	}
	req.Activation = h.act
	req.Trial = rapid.Bool().Draw(rt, "ready for a trial")
	m.ask(h, req)
	if rapid.Bool().Draw(rt, "again, for a lost reply") && slices.Contains(m.held, h) {
		m.ask(h, req)
	}
}

// fenceOf picks a fence that some activation of a unit had: the current one, or an old one.
func (m *model) fenceOf(rt *rapid.T) (*unitModel, actors.Fence, *held) {
	if len(m.held) == 0 {
		rt.Skip("nothing in hand")
	}
	h := m.held[rapid.IntRange(0, len(m.held)-1).Draw(rt, "entry")]
	f := h.unit.fence
	switch rapid.IntRange(0, 4).Draw(rt, "fence") {
	case 0:
		f.Activation++
	case 1:
		f.Number--
	}
	return h.unit, f, h
}

func (m *model) checkpoint(rt *rapid.T) {
	u, f, _ := m.fenceOf(rt)
	err := m.State.Checkpoint(m.t.Context(), actors.Checkpoint{
		TaskID: u.task.GetTaskId(), Unit: u.task.GetUnit(), Fence: f, Step: done("s", allBytes(rapid.SampledFrom([]int{0, 300}).Draw(rt, "size"))),
	})
	m.fenced(err, u.state == messages.State_STATE_RUNNING && f == u.fence && f.Number > 0)
}

func (m *model) fenced(err error, ours bool) {
	if ours && err != nil || !ours && !errors.Is(err, actors.ErrLeaseLost) {
		m.fatalf("write with a fence that is ours: %v, got %v", ours, err)
	}
}

var outcomes = map[messages.Outcome]messages.State{
	messages.Outcome_OUTCOME_COMPLETED:   messages.State_STATE_SUCCEEDED,
	messages.Outcome_OUTCOME_RETRY:       messages.State_STATE_RETRYING,
	messages.Outcome_OUTCOME_REJECTED:    messages.State_STATE_FAILED,
	messages.Outcome_OUTCOME_CANCELLED:   messages.State_STATE_CANCELLED,
	messages.Outcome_OUTCOME_INTERRUPTED: messages.State_STATE_PENDING,
	messages.Outcome_OUTCOME_PARKED:      messages.State_STATE_WAITING,
}

func (m *model) commit(rt *rapid.T) {
	u, f, h := m.fenceOf(rt)
	out := rapid.SampledFrom([]messages.Outcome{
		messages.Outcome_OUTCOME_COMPLETED, messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_RETRY,
		messages.Outcome_OUTCOME_REJECTED, messages.Outcome_OUTCOME_CANCELLED, messages.Outcome_OUTCOME_INTERRUPTED,
	}).Draw(rt, "outcome")
	m.end(u, f, h, out)
}

// end commits and checks that it was accepted exactly when it had to be.
func (m *model) end(u *unitModel, f actors.Fence, h *held, out messages.Outcome) {
	m.commitAs(u, f, h, actors.Commit{Outcome: out})
}

func (m *model) commitAs(u *unitModel, f actors.Fence, h *held, c actors.Commit) {
	out := c.Outcome
	c.TaskID, c.Unit, c.Type, c.Fence, c.Entry = u.task.GetTaskId(), u.task.GetUnit(), u.task.GetType(), f, h.ref
	c.Charge, c.Reason, c.TTL, c.DeadTTL = messages.Charge_CHARGE_FAILURE, messages.Reason_REASON_REJECTED, time.Hour, time.Hour
	err := m.State.Commit(m.t.Context(), c)
	ours := u.state == messages.State_STATE_RUNNING && f == u.fence && f.Number > 0
	woken := out == messages.Outcome_OUTCOME_PARKED && u.state == messages.State_STATE_PENDING
	again := f == u.fence && f.Number > 0 && u.outs[f] == out && (u.state == outcomes[out] || woken)
	if ours && m.start(u, c) {
		if !errors.Is(err, actors.ErrResume) {
			m.fatalf("a unit that need not wait: %v", err)
		}
		return
	}
	m.fenced(err, ours || again)
	if !ours {
		return
	}
	u.outs[f], u.state = out, outcomes[out]
	if m.owners[u.task.GetTaskId()] == f.Incarnation { // another node may be at another unit by now
		delete(m.owners, u.task.GetTaskId())
	}
	switch out {
	case messages.Outcome_OUTCOME_INTERRUPTED:
		u.ledger.Interruptions++
	case messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_REJECTED:
		u.ledger.Failures++
	default: // ended, free of charge
	}
	m.ended(u)
	if out != messages.Outcome_OUTCOME_INTERRUPTED && f.Incarnation == h.node {
		m.settle(h)
	}
}

// cancel ends one unit, or all of its task.
func (m *model) cancel(rt *rapid.T) {
	if len(m.units) == 0 {
		rt.Skip("nobody is there")
	}
	task := m.units[rapid.SampledFrom(slices.Sorted(maps.Keys(m.units))).Draw(rt, "unit")].task
	ended, err := m.State.Cancel(m.t.Context(), actors.Cancellation{ID: task.GetTaskId(), Unit: task.GetUnit(), TTL: time.Hour})
	was := map[string]messages.State{}
	for _, e := range ended {
		was[e.Unit] = e.Was
	}
	known := false
	for _, u := range m.units {
		if u.task.GetTaskId() != task.GetTaskId() || task.GetUnit() != "" && u.task != task {
			continue
		}
		name := u.task.GetUnit()
		known = known || u.state != 0
		switch {
		case u.state == 0 && was[name] == messages.State_STATE_PENDING: // it waits for the task's owner
		case u.state == 0 || final(u.state):
			if was[name] != 0 {
				m.fatalf("unit %q, which was %v, was cancelled", name, u.state)
			}
			continue
		case was[name] != u.state:
			m.fatalf("unit %q was %v, and its cancellation says %v", name, u.state, was[name])
		}
		if u.state == messages.State_STATE_RUNNING && m.owners[task.GetTaskId()] == u.fence.Incarnation {
			delete(m.owners, task.GetTaskId())
		}
		u.state, u.outs[u.fence] = messages.State_STATE_CANCELLED, messages.Outcome_OUTCOME_CANCELLED
		m.ended(u)
	}
	switch {
	case len(ended) > 0 && err == nil:
	case len(ended) == 0 && known && errors.Is(err, actors.ErrEnded):
	case len(ended) == 0 && !known && errors.Is(err, actors.ErrNoTask):
	default:
		m.fatalf("cancel: %v, %v", ended, err)
	}
}

func (m *model) die(rt *rapid.T) {
	node := rapid.SampledFrom([]string{here, there, third}).Draw(rt, "node")
	m.setLive(node, !m.live[node])
}

// promote lets every retry, and every unit that waits for its time, be due.
func (m *model) promote(*rapid.T) {
	for _, u := range m.units {
		if u.state != messages.State_STATE_RETRYING && u.state != messages.State_STATE_SCHEDULED {
			continue
		}
		if _, waits := m.World.Due(m.t)["r:"+member(u.task)]; waits {
			m.World.Promote(m.t, u.task.GetTaskId(), u.task.GetUnit())
		}
	}
}

func (m *model) inbox(rt *rapid.T) {
	m.take(rapid.SampledFrom([]string{here, there, third}).Draw(rt, "node"))
}

func (m *model) take(node string) {
	for _, d := range m.World.TakeInbox(m.t, consumerOf(node)) {
		u := m.units[d.Field(messages.ControlID)+"/"+d.Field("step")]
		if u == nil {
			m.fatalf("the inbox has an entry of nobody: %q", d.Fields)
		}
		m.acts++
		h := &held{ref: d.Ref, unit: u, node: node, act: m.acts}
		if _, err := fmt.Sscan(d.Field(messages.ControlWake), &h.wake); err != nil {
			m.fatalf("wake: %v", err)
		}
		m.held = append(m.held, h)
	}
}
