package statetest

import (
	"errors"
	"fmt"
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
			"promote": m.promote, "inbox": m.inbox, "": m.check,
		})
		m.finish()
	})
}

// unitModel is what must be true of one unit.
type unitModel struct {
	task   *messages.Task
	state  messages.State // 0 before the first Begin
	fence  actors.Fence   // of the last answer Run
	outs   map[actors.Fence]messages.Outcome
	ledger actors.Ledger
}

// held is an entry in a node's hands.
type held struct {
	ref  messages.Ref
	unit *unitModel
	node string
	wake uint64
	act  uint64
}

type model struct {
	Fixture
	t      *testing.T
	rt     *rapid.T
	units  map[string]*unitModel
	live   map[string]bool
	held   []*held
	acts   uint64
	owners map[string]string // of each task; may be dead
	top    map[string]uint64 // highest fence of each task
}

func (m *model) setLive(node string, live bool) {
	m.World.Live(m.t, node, live)
	m.live[node] = live
}

func (m *model) fatalf(format string, args ...any) { m.rt.Fatalf(format, args...) }

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
	m.held = append(m.held, &held{ref: ref, unit: u, node: node, act: m.acts})
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
	m.ask(h, req)
	if rapid.Bool().Draw(rt, "again, for a lost reply") && slices.Contains(m.held, h) {
		m.ask(h, req)
	}
}

// ask begins and checks the answer against the model.
func (m *model) ask(h *held, req actors.BeginRequest) {
	u, id := h.unit, h.unit.task.GetTaskId()
	b, err := m.State.Begin(m.t.Context(), req)
	if err != nil {
		m.fatalf("begin: %v", err)
	}
	final := u.state == messages.State_STATE_SUCCEEDED || u.state == messages.State_STATE_FAILED || u.state == messages.State_STATE_CANCELLED
	switch b.Answer {
	case actors.Run, actors.Condemned:
		me := actors.Fence{Number: b.Fence.Number, Incarnation: h.node, Activation: h.act}
		switch {
		case final:
			m.fatalf("an ended unit runs again: %v", u.state)
		case u.state == messages.State_STATE_RUNNING && u.fence == me:
			if b.Ledger != u.ledger {
				m.fatalf("asked again, ledger %+v, was %+v", b.Ledger, u.ledger)
			}
			return
		}
		if m.owned(h) {
			m.fatalf("%s runs what the living %s owns", h.node, m.owners[id])
		}
		if b.Fence.Number <= m.top[id] {
			m.fatalf("fence %d after %d", b.Fence.Number, m.top[id])
		}
		m.charge(u, h, b, req.Crash != "")
		u.state, u.fence = messages.State_STATE_RUNNING, me
		m.owners[id], m.top[id] = h.node, me.Number
	case actors.AlreadyDone, actors.CancelledBefore:
		if !final {
			m.fatalf("answer %v, but the unit is %v", b.Answer, u.state)
		}
		m.settle(h)
	case actors.Elsewhere:
		if final {
			m.fatalf("elsewhere, but the unit is %v", u.state)
		}
		m.settle(h)
	case actors.Queued:
		if !m.owned(h) {
			m.fatalf("%s queued behind %q", h.node, m.owners[id])
		}
		m.drop(h)
	case actors.Later:
		m.charge(u, h, b, req.Crash != "")
	default:
		m.fatalf("answer %v to a pending entry of a live node", b.Answer)
	}
}

// charge compares the ledger with what was charged before: a death at most, and this crash at most.
func (m *model) charge(u *unitModel, h *held, b actors.Begun, crash bool) {
	rec, err := m.State.Unit(m.t.Context(), u.task.GetTaskId(), u.task.GetUnit())
	if err != nil {
		m.fatalf("unit: %v", err)
	}
	got, want := rec.Ledger, u.ledger
	if u.state == messages.State_STATE_RUNNING && u.fence.Incarnation != h.node {
		want.Deaths++
		want.Blamed = got.Blamed // a matter of trials: see deathCases
		if got.Blamed < u.ledger.Blamed || got.Blamed > u.ledger.Blamed+1 {
			m.fatalf("blamed %d after %d", got.Blamed, u.ledger.Blamed)
		}
	}
	if got != want && crash {
		want.Crashes++
	}
	if got != want || b.Answer != actors.Later && b.Ledger != got {
		m.fatalf("ledger %+v (answer %+v), expected %+v", got, b.Ledger, want)
	}
	if b.Answer == actors.Later && u.ledger != got { // charged: PENDING with the one that asked, whatever it was
		u.state, u.fence = messages.State_STATE_PENDING, actors.Fence{}
		m.owners[u.task.GetTaskId()] = h.node
	}
	u.ledger = got
}

func (m *model) settle(h *held) {
	m.World.Ack(m.t, h.ref)
	m.drop(h)
}

// owned says that another live node owns the task.
func (m *model) owned(h *held) bool {
	owner := m.owners[h.unit.task.GetTaskId()]
	return owner != "" && owner != h.node && m.live[owner]
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
	err := m.State.Commit(m.t.Context(), actors.Commit{
		TaskID: u.task.GetTaskId(), Unit: u.task.GetUnit(), Type: u.task.GetType(), Fence: f, Entry: h.ref, Outcome: out,
		Charge: messages.Charge_CHARGE_FAILURE, Reason: messages.Reason_REASON_REJECTED, TTL: time.Hour, DeadTTL: time.Hour,
	})
	ours := u.state == messages.State_STATE_RUNNING && f == u.fence && f.Number > 0
	again := f == u.fence && f.Number > 0 && u.outs[f] == out && u.state == outcomes[out]
	m.fenced(err, ours || again)
	if !ours {
		return
	}
	u.outs[f], u.state = out, outcomes[out]
	delete(m.owners, u.task.GetTaskId())
	switch out {
	case messages.Outcome_OUTCOME_INTERRUPTED:
		u.ledger.Interruptions++
	case messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_REJECTED:
		u.ledger.Failures++
	default: // ended, free of charge
	}
	if out != messages.Outcome_OUTCOME_INTERRUPTED && f.Incarnation == h.node {
		m.settle(h)
	}
}

func (m *model) die(rt *rapid.T) {
	node := rapid.SampledFrom([]string{here, there, third}).Draw(rt, "node")
	m.setLive(node, !m.live[node])
}

// promote lets every retry be due.
func (m *model) promote(*rapid.T) {
	for _, u := range m.units {
		if u.state != messages.State_STATE_RETRYING {
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

// check compares the record of each unit with the model.
func (m *model) check(*rapid.T) {
	for name, u := range m.units {
		rec, err := m.State.Unit(m.t.Context(), u.task.GetTaskId(), u.task.GetUnit())
		switch {
		case errors.Is(err, actors.ErrNoTask) && u.state == 0:
		case err != nil:
			m.fatalf("unit %q: %v", name, err)
		case rec.State != u.state || rec.Ledger != u.ledger:
			m.fatalf("unit %q is %v %+v, expected %v %+v", name, rec.State, rec.Ledger, u.state, u.ledger)
		}
	}
}

// finish brings everything to its end with all nodes alive.
func (m *model) finish() {
	for _, n := range []string{here, there, third} {
		m.setLive(n, true)
	}
	for range 200 {
		m.promote(nil)
		m.take(here)
		if len(m.held) == 0 {
			break
		}
		h := m.held[0]
		if h.node != here {
			m.World.Claim(m.t, h.ref, consumerOf(here))
			h.node = here
		}
		if m.owned(h) {
			m.setLive(m.owners[h.unit.task.GetTaskId()], false)
		}
		m.World.EndTrial(m.t, here)
		m.acts++
		h.act = m.acts
		m.ask(h, actors.BeginRequest{
			Task: h.unit.task, Entry: h.ref, Wake: h.wake, Consumer: consumerOf(here), Incarnation: here, Activation: h.act,
		})
		if u := h.unit; u.state == messages.State_STATE_RUNNING && u.fence.Activation == h.act {
			m.end(u, u.fence, h, messages.Outcome_OUTCOME_COMPLETED)
		}
	}
	for name, u := range m.units {
		switch u.state {
		case messages.State_STATE_SUCCEEDED, messages.State_STATE_FAILED, messages.State_STATE_CANCELLED:
		default:
			m.fatalf("unit %q can never end: %v, %d entries in hand", name, u.state, len(m.held))
		}
		rec, err := m.State.Task(m.t.Context(), u.task.GetTaskId())
		if err != nil || rec.TTL <= 0 || rec.Queued != 0 || rec.Owner != "" {
			m.fatalf("the ended task is left as %+v, %v", rec, err)
		}
	}
}
