package statetest

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// unitModel is what must be true of one unit.
type unitModel struct {
	task   *messages.Task
	state  messages.State // 0 before the first Begin
	fence  actors.Fence   // of the last answer Run
	outs   map[actors.Fence]messages.Outcome
	ledger actors.Ledger
	family
}

// held is an entry in a node's hands.
type held struct {
	ref  messages.Ref
	unit *unitModel
	node string
	wake uint64
	act  uint64
	due  time.Time // that the entry names
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
	doomed []*unitModel      // what a turn of the clock is to cancel with its parents
}

func (m *model) setLive(node string, live bool) {
	m.World.Live(m.t, node, live)
	m.live[node] = live
}

func (m *model) fatalf(format string, args ...any) { m.rt.Fatalf(format, args...) }

// ask begins and checks the answer against the model.
func (m *model) ask(h *held, req actors.BeginRequest) {
	u, id := h.unit, h.unit.task.GetTaskId()
	req.Due = h.due
	b, err := m.State.Begin(m.t.Context(), req)
	if err != nil {
		m.fatalf("begin: %v", err)
	}
	if u.state == 0 && !h.due.IsZero() {
		if b.Answer != actors.Elsewhere {
			m.fatalf("answer %v to an entry for later", b.Answer)
		}
		u.state = messages.State_STATE_SCHEDULED
		return // it may be asked again before it is settled
	}
	final := final(u.state)
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
		m.bereaved(h)
		m.settle(h)
	case actors.Elsewhere:
		if final || u.state == 0 {
			m.fatalf("elsewhere, but the unit is %v", u.state)
		}
		m.bereaved(h)
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

func final(s messages.State) bool {
	return s == messages.State_STATE_SUCCEEDED || s == messages.State_STATE_FAILED || s == messages.State_STATE_CANCELLED
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
	if b.Answer == actors.Later && u.ledger != got { // charged: PENDING, whatever it was, and nobody's
		u.state, u.fence = messages.State_STATE_PENDING, actors.Fence{}
		delete(m.owners, u.task.GetTaskId())
	}
	u.ledger = got
}

func (m *model) settle(h *held) {
	m.World.Ack(m.t, h.ref)
	m.drop(h)
}

// bereaved follows an answer that let the next waiting entry through because the owner is dead: should that one come back,
// it owns nothing.
func (m *model) bereaved(h *held) {
	id := h.unit.task.GetTaskId()
	if owner := m.owners[id]; owner == "" || owner == h.node || m.live[owner] {
		return
	}
	rec, err := m.State.Task(m.t.Context(), id)
	if err != nil {
		m.fatalf("task: %v", err)
	}
	if rec.Owner == "" {
		delete(m.owners, id)
	}
}

// owned says that another live node owns the task.
func (m *model) owned(h *held) bool {
	owner := m.owners[h.unit.task.GetTaskId()]
	return owner != "" && owner != h.node && m.live[owner]
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
		case len(u.kids) > 0:
			m.checkKids(u)
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
		m.turn(nil)
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
			Trial: true,
		})
		if u := h.unit; u.state == messages.State_STATE_RUNNING && u.fence.Activation == h.act {
			m.end(u, u.fence, h, messages.Outcome_OUTCOME_COMPLETED)
		}
	}
	for name, u := range m.units {
		if !final(u.state) {
			m.fatalf("unit %q can never end: %v, %d entries in hand", name, u.state, len(m.held))
		}
		rec, err := m.State.Task(m.t.Context(), u.task.GetTaskId())
		if err != nil || rec.TTL <= 0 || rec.Queued != 0 || rec.Owner != "" {
			m.fatalf("the ended task is left as %+v, %v", rec, err)
		}
	}
}
