package streambridge

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

func ref(n int) messages.Ref { return messages.Ref{Stream: fakeKey, ID: "5-" + strconv.Itoa(n)} }

func arrive(n int, taskID string) arrival {
	return arrival{
		Ref: ref(n), at: placeOf(ref(n).ID), deliveries: 1, size: 10,
		task: &messages.Task{TaskId: taskID, Type: "noop"},
	}
}

// post is an entry that brings a message.
func post(n int, taskID string) arrival {
	a := arrive(n, taskID)
	a.task = &messages.Task{TaskId: taskID, Message: "m"}
	return a
}

func cancelled(tasks ...string) (units []Cancelled) {
	for _, t := range tasks {
		units = append(units, Cancelled{TaskID: t})
	}
	return units
}

func come(all ...arrival) arrived { return arrived{entries: all, bytes: int64(len(all)) * 10} }

func answer(n int, taskID string, v messages.Verdict) finished {
	r := ref(n)
	return finished{&messages.Done{TaskId: taskID, Entry: &messages.Entry{Stream: r.Stream, Id: r.ID}, Verdict: v}}
}

// show writes effects as short words, to compare.
func show(effects []effect) []string {
	out := []string{}
	for _, e := range effects {
		switch e := e.(type) {
		case assign:
			out = append(out, "assign "+e.Entry.Id+" to "+e.Task.TaskId)
		case cancel:
			out = append(out, "cancel "+e.TaskId+" "+e.Entry.GetId()+" "+e.Cause.String()[len("CANCEL_CAUSE_"):])
		case acknowledge:
			out = append(out, "ack "+e.ref.ID)
		case bury:
			out = append(out, fmt.Sprintf("bury %s fail=%v", e.ID, e.Fail))
		case move:
			out = append(out, "move "+e.held.ID+" to "+e.agent)
		case deliver:
			out = append(out, "deliver "+e.ID+" to "+e.TaskID)
		case report:
			out = append(out, e.Event.Name())
		case idle:
			out = append(out, "idle")
		case giveUp:
			out = append(out, "give up")
		}
	}
	return out
}

func TestWindowScripts(t *testing.T) {
	const (
		ackV   = messages.Verdict_VERDICT_ACK
		drop   = messages.Verdict_VERDICT_DROP
		moved  = messages.Verdict_VERDICT_MOVED
		buryV  = messages.Verdict_VERDICT_BURY
		future = messages.Verdict(99)
	)
	type turn struct {
		ev   event
		want []string
	}
	none := []string{}
	for name, turns := range map[string][]turn{
		"straight": {
			{come(arrive(1, "a"), arrive(2, "b")), []string{"assign 5-1 to a", "assign 5-2 to b"}},
			{answer(1, "a", ackV), []string{"ack 5-1"}},
			{settled{[]messages.Ref{ref(1)}}, none},
			{settled{[]messages.Ref{ref(1)}}, none},
			{answer(1, "a", ackV), none},
		},
		"one task waits its turn": {
			{come(arrive(1, "a"), arrive(3, "a")), []string{"assign 5-1 to a"}},
			{come(arrive(2, "a")), none},
			{answer(3, "a", ackV), none}, // it was not assigned
			{answer(1, "a", ackV), []string{"ack 5-1", "assign 5-2 to a"}},
			{answer(2, "a", moved), []string{"assign 5-3 to a"}},
			{answer(3, "a", drop), none},
			{come(arrive(4, "a")), []string{"assign 5-4 to a"}},
		},
		"an entry is admitted once until it is settled": {
			{come(arrive(1, "a")), []string{"assign 5-1 to a"}},
			{swept{strays: []arrival{arrive(1, "a")}}, none},
			{swept{claimed: []arrival{arrive(1, "a")}}, none},
			{answer(1, "a", ackV), []string{"ack 5-1"}},
			{swept{strays: []arrival{arrive(1, "a")}}, none},
			{sweeping{}, none},
			{settled{[]messages.Ref{ref(1)}}, none},
			{swept{strays: []arrival{arrive(1, "a")}}, none}, // seen before it was settled
			{swept{strays: []arrival{arrive(1, "a")}}, []string{"entry_adopted", "assign 5-1 to a"}},
		},
		"what is dropped may come back, also in the sweep under way": {
			{come(arrive(1, "a")), []string{"assign 5-1 to a"}},
			{sweeping{}, none},
			{answer(1, "a", drop), none},
			{swept{strays: []arrival{arrive(1, "a")}}, []string{"entry_adopted", "assign 5-1 to a"}},
			{answer(1, "a", future), none},
			{swept{claimed: []arrival{arrive(1, "a")}}, []string{"entry_claimed", "assign 5-1 to a"}},
		},
		"a lost entry stops its actor, which keeps the task's place": {
			{come(arrive(1, "a"), arrive(2, "a"), arrive(3, "b")), []string{"assign 5-1 to a", "assign 5-3 to b"}},
			{beaten{Beat{Lost: []messages.Ref{ref(1), ref(2), ref(9)}}}, []string{"cancel a 5-1 LEASE_LOST", "lease_lost", "lease_lost"}},
			{come(arrive(4, "a")), none},
			{swept{claimed: []arrival{arrive(1, "a")}}, []string{"entry_claimed"}}, // it came back, older than what waits
			{answer(1, "a", ackV), []string{"assign 5-1 to a"}},
			{answer(1, "a", ackV), []string{"ack 5-1", "assign 5-4 to a"}},
		},
		"what is being settled is not lost": {
			{come(arrive(1, "a")), []string{"assign 5-1 to a"}},
			{answer(1, "a", ackV), []string{"ack 5-1"}},
			{beaten{Beat{Lost: []messages.Ref{ref(1)}, Gone: []messages.Ref{ref(1)}}}, none},
			{silent{}, none},
			{settled{[]messages.Ref{ref(1)}}, none},
		},
		"a body that is gone lets its work go on": {
			{come(arrive(1, "a"), arrive(2, "a")), []string{"assign 5-1 to a"}},
			{beaten{Beat{Gone: []messages.Ref{ref(1), ref(2)}}}, []string{"entry_gone", "entry_gone"}},
			{come(arrive(7, "a")), none},
			{answer(1, "a", ackV), []string{"assign 5-7 to a"}},
		},
		"silence": {
			{come(arrive(1, "a"), arrive(2, "a"), arrive(3, "b")), []string{"assign 5-1 to a", "assign 5-3 to b"}},
			{silent{}, []string{"cancel b 5-3 LEASE_LOST", "lease_lost", "lease_lost", "cancel a 5-1 LEASE_LOST", "lease_lost"}},
			{silent{}, none},
			{answer(3, "b", drop), none},
		},
		"a cancelled task is told once": {
			{come(arrive(1, "a"), arrive(2, "a")), []string{"assign 5-1 to a"}},
			{beaten{Beat{Cancelled: cancelled("b", "a")}}, []string{"cancel a 5-1 CANCELLED"}},
			{beaten{Beat{Cancelled: cancelled("a")}}, none},
			{swept{cancelled: cancelled("a")}, none},
			{answer(1, "a", ackV), []string{"ack 5-1", "assign 5-2 to a"}},
			{swept{cancelled: cancelled("a")}, []string{"cancel a 5-2 CANCELLED"}},
		},
		"only the unit that was cancelled is told": {
			{come(arrive(1, "a")), []string{"assign 5-1 to a"}},
			{beaten{Beat{Cancelled: []Cancelled{{TaskID: "a", Unit: "2"}}}}, none},
		},
		"burials": {
			{come(arrival{Ref: ref(1), size: 10, bad: &messages.DecodeError{TaskID: "x"}}), []string{"bury 5-1 fail=false"}},
			{come(arrive(2, "a")), []string{"assign 5-2 to a"}},
			{answer(2, "a", buryV), []string{"bury 5-2 fail=true"}},
			{settled{[]messages.Ref{ref(1), ref(2)}}, []string{"entry_buried", "entry_buried"}},
		},
		"moves": {
			{come(arrival{Ref: ref(1), size: 10, task: &messages.Task{TaskId: "a"}, moveTo: "refund"}), []string{"move 5-1 to refund"}},
			{settled{[]messages.Ref{ref(1)}}, []string{"entry_moved"}},
		},
		"a message goes to its task, which may be at work": {
			{come(arrive(1, "a"), post(2, "a"), arrive(3, "a")), []string{"deliver 5-2 to a", "assign 5-1 to a"}},
			{swept{strays: []arrival{post(2, "a")}}, none},
			{beaten{Beat{Lost: []messages.Ref{ref(2)}, Cancelled: cancelled("b")}}, none},
			{settled{[]messages.Ref{ref(2)}}, none},
			{answer(2, "a", ackV), none},
			{answer(1, "a", ackV), []string{"ack 5-1", "assign 5-3 to a"}},
		},
		"a message that a dead node held": {
			{swept{claimed: []arrival{post(1, "a")}}, []string{"deliver 5-1 to a", "entry_claimed"}},
			{drain{}, []string{"idle"}},
			{settled{[]messages.Ref{ref(1)}}, none},
			{come(post(2, "a")), none},
		},
		"a drain assigns nothing more": {
			{come(arrive(1, "a"), arrive(2, "a"), arrive(3, "b")), []string{"assign 5-1 to a", "assign 5-3 to b"}},
			{drain{}, none},
			{answer(1, "a", ackV), []string{"ack 5-1"}},
			{come(arrive(4, "c")), none},
			{interrupt{}, []string{"cancel b 5-3 DRAINING"}},
			{answer(3, "b", drop), []string{"idle"}},
			{settled{[]messages.Ref{ref(1)}}, none},
		},
		"an idle drain": {
			{drain{}, []string{"idle"}},
			{drain{}, none},
		},
		"a drain does not wait for ghosts": {
			{come(arrive(1, "a")), []string{"assign 5-1 to a"}},
			{drain{}, none},
			{silent{}, []string{"cancel a 5-1 LEASE_LOST", "lease_lost", "idle"}},
		},
		"usurped": {
			{come(arrive(1, "a")), []string{"assign 5-1 to a"}},
			{beaten{Beat{Usurped: true}}, []string{"cancel a 5-1 LEASE_LOST", "lease_lost", "usurped", "give up"}},
			{beaten{Beat{Usurped: true}}, none},
			{come(arrive(2, "b")), none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWindow(100, 10_000)
			for i, turn := range turns {
				require.Equal(t, turn.want, show(w.Step(turn.ev)), "turn %d: %#v", i, turn.ev)
				check(t, w)
			}
		})
	}
}

func TestWindowCredits(t *testing.T) {
	w := newWindow(16, 1000)
	count, bytes := w.advertise()
	assert.EqualValues(t, 16, count)
	assert.EqualValues(t, 1000, bytes)
	assert.Equal(t, 18, w.room(), "claims may go over by an eighth")
	var all []arrival
	for i := range 16 {
		all = append(all, arrive(i, "a"))
	}
	w.Step(come(all...))
	count, bytes = w.advertise()
	assert.EqualValues(t, 16, count, "the limit is a total: sixteen were read, none more may be")
	assert.EqualValues(t, 1000, bytes)
	assert.Equal(t, 2, w.room())
	w.Step(swept{claimed: []arrival{arrive(50, "a"), arrive(51, "a")}, strays: []arrival{arrive(60, "a")}})
	assert.Equal(t, 0, w.room())
	assert.NotContains(t, w.known, ref(60), "no room: the next sweep finds it again")
	count, _ = w.advertise()
	assert.EqualValues(t, 14, count, "less than was read: the reader waits until the overdraft is gone")
	w.Step(drain{})
	count, bytes = w.advertise()
	assert.Zero(t, count)
	assert.Zero(t, bytes)
	assert.Zero(t, w.room())

	w = newWindow(limit(Off), limit(Off))
	w.Step(come(all...))
	count, bytes = w.advertise()
	assert.Positive(t, count)
	assert.Positive(t, bytes)
	assert.Equal(t, 1<<20, w.room())
}

func TestPlaces(t *testing.T) {
	assert.Equal(t, place{5, 7}, placeOf("5-7"))
	assert.Equal(t, place{5, 0}, placeOf("5"))
	for _, id := range []string{"", "-", "a-1", "1-b", "99999999999999999999-1", "-5"} {
		assert.Equal(t, place{}, placeOf(id), id)
	}
	assert.True(t, placeOf("9-10").before(placeOf("10-9")))
	assert.True(t, placeOf("10-9").before(placeOf("10-10")))
}

// check holds a window to what is true between any two steps.
func check(t require.TestingT, w *window) {
	var bytes int64
	states := map[slotState]int{}
	n := 0
	for s := w.oldest; s != nil; s = s.newer {
		n++
		require.Same(t, s, w.known[s.Ref])
		if s.newer != nil {
			require.Same(t, s, s.newer.older)
		}
		bytes += s.size
		states[s.state]++
		if s.state == assigned {
			require.Same(t, s, w.tasks[s.task.TaskId].current)
		}
	}
	require.Equal(t, len(w.known), n, "the list has all that the map has")
	require.Equal(t, bytes, w.bytes)
	var queued, ghosts int
	for id, q := range w.tasks {
		queued += len(q.waiting)
		require.False(t, q.current == nil && len(q.waiting) == 0, "an empty task is forgotten: %s", id)
		require.False(t, q.current == nil && !w.draining, "nothing waits for a free actor: %s", id)
		if q.current != nil {
			require.Equal(t, id, q.current.task.TaskId)
			require.Contains(t, []slotState{assigned, ghost}, q.current.state)
			if q.current.state == ghost {
				ghosts++
			}
		}
		for i, s := range q.waiting {
			require.Equal(t, waiting, s.state)
			require.Same(t, s, w.known[s.Ref])
			require.False(t, i > 0 && s.at.before(q.waiting[i-1].at), "in order")
		}
	}
	s := w.Stats()
	require.Equal(t, queued, s.Waiting)
	require.Equal(t, states[waiting], s.Waiting)
	require.Equal(t, states[assigned], s.Running)
	require.Equal(t, ghosts, s.Ghosts)
	require.Zero(t, states[ghost], "a ghost is not known")
	require.Equal(t, len(w.known), s.Waiting+s.Running+s.Settling)
}
