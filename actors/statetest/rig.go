package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// The nodes of every test: incarnations and their consumer names. All but gone are live at the start.
const (
	here  = "00000000000000aa"
	there = "00000000000000bb"
	third = "00000000000000cc"
	gone  = "00000000000000dd"

	week = 7 * 24 * time.Hour
)

func consumerOf(incarnation string) string { return "c-" + incarnation[14:] }

// rig is a Fixture with short words for what every test does.
type rig struct {
	Fixture
	t *testing.T
}

func newRig(t *testing.T, f Fixture) *rig {
	t.Helper()
	r := &rig{Fixture: f, t: t}
	for _, n := range []string{here, there, third} {
		r.World.Live(t, n, true)
	}
	return r
}

// work is an entry in hand: what a bridge gives to an agent.
type work struct {
	*rig
	task       *messages.Task
	ref        messages.Ref
	wake       uint64
	deliveries int64
	node       string
	act        uint64
	due        time.Time // that the entry names
}

func fieldsOf(t *messages.Task) []messages.Pair {
	f := []messages.Pair{{Name: "task_id", Value: t.GetTaskId()}, {Name: "type", Value: t.GetType()}, {Name: "payload", Value: string(t.GetPayload())}}
	if t.GetUnit() != "" {
		f = append(f, messages.Pair{Name: "step", Value: t.GetUnit()})
	}
	return append(f, messages.Pair{Name: "x-own", Value: "kept \x00\xff"})
}

func newTask(id string) *messages.Task {
	return &messages.Task{TaskId: id, Type: "noop", Payload: []byte(`{"n":1}`)}
}

// deliver puts an entry for task into the public stream and hands it to node.
func (r *rig) deliver(task *messages.Task, node string) *work {
	r.t.Helper()
	ref := r.World.Deliver(r.t, false, consumerOf(node), fieldsOf(task))
	return &work{rig: r, task: task, ref: ref, deliveries: 1, node: node, act: 1}
}

// fromInbox hands the inbox to node and expects one entry there, for task.
func (r *rig) fromInbox(task *messages.Task, node string) *work {
	r.t.Helper()
	got := r.World.TakeInbox(r.t, consumerOf(node))
	require.Len(r.t, got, 1, "entries in the inbox")
	return r.received(got[0], task, node)
}

// received is an entry of the inbox, for task, in the hands of node.
func (r *rig) received(d Delivery, task *messages.Task, node string) *work {
	r.t.Helper()
	require.Equal(r.t, task.GetTaskId(), d.Field(messages.ControlID))
	require.Equal(r.t, "kept \x00\xff", d.Field("x-own"), "the producer's own field")
	w := &work{rig: r, task: task, ref: d.Ref, deliveries: 1, node: node, act: 1}
	_, err := fmt.Sscan(d.Field(messages.ControlWake), &w.wake)
	require.NoError(r.t, err)
	return w
}

// on is the same entry in the hands of another node, after a claim.
func (w *work) on(node string) *work {
	w.t.Helper()
	w.World.Claim(w.t, w.ref, consumerOf(node))
	other := *w
	other.node, other.deliveries = node, w.deliveries+1
	return &other
}

// again is the same entry on the same node, with a fresh actor.
func (w *work) again() *work {
	other := *w
	other.act++
	return &other
}

func (w *work) request() actors.BeginRequest {
	return actors.BeginRequest{
		Task: w.task, Entry: w.ref, Deliveries: w.deliveries, Wake: w.wake,
		Consumer: consumerOf(w.node), Incarnation: w.node, Activation: w.act, MaxDeliveries: 3, Due: w.due,
	}
}

// begin asks as a node does: for the trial of a suspect when it is told to.
func (w *work) begin() actors.Begun {
	w.t.Helper()
	req := w.request()
	b, err := w.State.Begin(w.t.Context(), req)
	require.NoError(w.t, err)
	if b.Answer == actors.Later {
		req.Trial = true
		b, err = w.State.Begin(w.t.Context(), req)
		require.NoError(w.t, err)
	}
	return b
}

func (w *work) answers(want actors.Answer) actors.Begun {
	w.t.Helper()
	b := w.begin()
	require.Equal(w.t, want, b.Answer, "answer to Begin: %+v", b)
	return b
}

func (w *work) run() actors.Begun {
	w.t.Helper()
	b := w.answers(actors.Run)
	require.Equal(w.t, w.node, b.Fence.Incarnation)
	require.Equal(w.t, w.act, b.Fence.Activation)
	require.NotZero(w.t, b.Fence.Number)
	return b
}

func (w *work) completed(b actors.Begun, result string) actors.Commit {
	return actors.Commit{
		TaskID: w.task.GetTaskId(), Unit: w.task.GetUnit(), Type: w.task.GetType(), Fence: b.Fence, Entry: w.ref,
		Outcome: messages.Outcome_OUTCOME_COMPLETED, ContentType: "text/plain", Result: []byte(result), TTL: week, DeadTTL: week,
	}
}

func (w *work) retry(b actors.Begun, after time.Duration) actors.Commit {
	c := w.completed(b, "")
	c.Outcome, c.Charge, c.Error, c.After = messages.Outcome_OUTCOME_RETRY, messages.Charge_CHARGE_FAILURE, "no luck", after
	c.ContentType, c.Result = "", nil
	return c
}

func (w *work) rejected(b actors.Begun, why messages.Reason, detail string) actors.Commit {
	c := w.completed(b, "")
	c.Outcome, c.Error, c.Reason, c.Detail = messages.Outcome_OUTCOME_REJECTED, detail, why, detail
	c.ContentType, c.Result = "", nil
	return c
}

func (w *work) outcome(b actors.Begun, o messages.Outcome) actors.Commit {
	c := w.completed(b, "")
	c.Outcome, c.ContentType, c.Result = o, "", nil
	return c
}

func (r *rig) commit(c actors.Commit) {
	r.t.Helper()
	require.NoError(r.t, r.State.Commit(r.t.Context(), c))
}

func (r *rig) lost(c actors.Commit) {
	r.t.Helper()
	require.ErrorIs(r.t, r.State.Commit(r.t.Context(), c), actors.ErrLeaseLost)
}

func (r *rig) step(b actors.Begun, task *messages.Task, s messages.Step) error {
	return r.State.Checkpoint(r.t.Context(), actors.Checkpoint{TaskID: task.GetTaskId(), Unit: task.GetUnit(), Fence: b.Fence, Step: s})
}

func (r *rig) unit(task *messages.Task) *actors.UnitRecord {
	r.t.Helper()
	u, err := r.State.Unit(r.t.Context(), task.GetTaskId(), task.GetUnit())
	require.NoError(r.t, err)
	return u
}

func (r *rig) record(id string) *actors.TaskRecord {
	r.t.Helper()
	rec, err := r.State.Task(r.t.Context(), id)
	require.NoError(r.t, err)
	return rec
}

func (r *rig) state(task *messages.Task, want messages.State) {
	r.t.Helper()
	require.Equal(r.t, want.String(), r.unit(task).State.String())
}

// die ends a node that had lived for ran since its unit began.
func (r *rig) die(node string, task *messages.Task, ran time.Duration) {
	r.t.Helper()
	r.World.Tick(r.t, node, r.unit(task).Began.Add(ran))
	r.World.Live(r.t, node, false)
}

func member(task *messages.Task) string {
	return messages.Escape(task.GetTaskId()) + ":" + messages.Escape(task.GetUnit())
}
