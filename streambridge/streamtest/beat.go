package streamtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var beatTests = []test{
	{"a beat renews what is held", func(w *world) {
		w.add(3)
		n := w.open("a")
		held := n.hold(3)
		w.Pass(Lease / 2)
		got := n.beat(held[:2]...)
		require.Equal(w, streambridge.Beat{}, got)
		p := w.Pending(w.public())
		require.Less(w, p[0].Idle, Lease/4)
		require.Less(w, p[1].Idle, Lease/4)
		require.GreaterOrEqual(w, p[2].Idle, Lease/2)
		require.EqualValues(w, 1, p[0].Deliveries, "a renewal is no delivery")
	}},
	{"more than one script can hold", func(w *world) {
		n := w.open("a")
		w.add(1300)
		held := heldOf(append(n.read(1000), n.read(1000)...))
		require.Len(w, held, 1300)
		w.Pass(Lease / 2)
		require.Empty(w, n.beat(held...).Lost)
		for _, p := range w.Pending(w.public()) {
			require.Less(w, p.Idle, Lease/4)
		}
	}},
	{"a beat steals nothing back", func(w *world) {
		w.add(2)
		a, b := w.open("a"), w.open("b")
		held := a.hold(2)
		w.Kill(a.Node) // stopped past its lease, and goes on
		require.Len(w, b.tick(10).Claimed, 2)
		require.NoError(w, b.Ack(w.ctx(), refsOf(held[:1])))
		w.End("t1", "")
		got := a.beat(held...)
		require.Equal(w, refsOf(held), got.Lost)
		require.Equal(w, map[string]int{"b": 1}, w.owners(w.public()))
	}},
	{"the first beat copies what runs, once", func(w *world) {
		w.Add(task("x:{y}")...)
		w.Add(append(task("z"), messages.Pair{Name: "step", Value: "a/b:c"})...)
		w.Add(task("idle")...)
		n := w.open("a")
		held := n.hold(3)
		w.Begin(n.Node, "x:{y}", "")
		w.Begin(n.Node, "z", "a/b:c")
		require.Equal(w, refsOf(held[:2]), n.beat(held...).Saved)
		require.True(w, w.Unit("x:{y}", "").Copied)
		require.True(w, w.Unit("z", "a/b:c").Copied)
		held[0].Saved, held[1].Saved = true, true
		require.Empty(w, n.beat(held...).Saved)
	}},
	{"a body that went is rebuilt from the copy", func(w *world) {
		id := w.Add(append(task("x"), messages.Pair{Name: "weir.id", Value: "forged"})...)
		n := w.open("a")
		held := n.hold(1)
		w.Begin(n.Node, "x", "")
		n.beat(held...)
		w.Delete(held[0].Ref)
		got := n.beat(held...)
		require.Equal(w, refsOf(held), got.Gone)
		require.Empty(w, got.Lost)
		require.Empty(w, w.Pending(w.public()))
		require.Empty(w, n.letters())
		again := n.read(10)
		require.Len(w, again, 1)
		require.Equal(w, w.Inbox(), again[0].Stream)
		require.Equal(w, "x", value(again[0], messages.ControlID))
		require.Equal(w, id, value(again[0], messages.ControlOrigin))
		require.Equal(w, "work of x", value(again[0], "payload"))
		require.Equal(w, messages.State_STATE_RUNNING, w.Unit("x", "").State)
		require.Equal(w, refsOf(held), n.beat(held...).Lost, "it stays forgotten")
	}},
	{"a body that went without a copy is a dead letter that says so", func(w *world) {
		w.add(3)
		n := w.open("a")
		held := n.hold(3)
		w.Begin(n.Node, "t2", "")
		fence := w.Unit("t2", "").Fence
		w.Trim(1)
		require.Equal(w, refsOf(held[:2]), n.beat(held...).Gone)
		ls := n.letters()
		require.Len(w, ls, 2)
		for i, l := range ls {
			require.Equal(w, messages.Reason_REASON_BODY_GONE, l.GetReason())
			require.Equal(w, held[i].ID, l.GetEntry().GetId())
			require.Equal(w, fmt.Sprint("t", i+1), l.GetTaskId())
			require.Empty(w, l.GetFields())
			require.Equal(w, messages.State_STATE_FAILED, w.Unit(l.GetTaskId(), "").State)
		}
		require.Greater(w, w.Unit("t2", "").Fence, fence, "whoever runs it is refused")
		require.Empty(w, w.Unit("t2", "").Owner)
		require.Len(w, w.Pending(w.public()), 1)
	}},
	{"a body that went does not end another unit's run", func(w *world) {
		w.Add(append(task("x"), messages.Pair{Name: "step", Value: "1"})...)
		w.Add(append(task("x"), messages.Pair{Name: "step", Value: "2"})...)
		n := w.open("a")
		held := n.hold(2)
		held[0].Unit, held[1].Unit = "1", "2"
		w.Begin(n.Node, "x", "1")
		w.Delete(held[1].Ref)
		require.Equal(w, refsOf(held[1:]), n.beat(held...).Gone)
		require.Equal(w, messages.State_STATE_FAILED, w.Unit("x", "2").State)
		require.Equal(w, n.Node.Incarnation, w.Unit("x", "1").Owner, "one at a time: unit 1 runs")
	}},
	{"a body that went after the commit is nobody's loss", func(w *world) {
		w.add(1)
		n := w.open("a")
		held := n.hold(1)
		w.Begin(n.Node, "t1", "")
		w.End("t1", "")
		w.Delete(held[0].Ref)
		require.Equal(w, refsOf(held), n.beat(held...).Gone)
		require.Empty(w, n.letters())
		require.Empty(w, w.Pending(w.public()))
		require.Equal(w, messages.State_STATE_SUCCEEDED, w.Unit("t1", "").State)
	}},
	{"a body that went after its unit parked does not wake it", func(w *world) {
		w.add(2)
		n := w.open("a")
		held := n.hold(2)
		for i, id := range []string{"t1", "t2"} {
			w.Begin(n.Node, id, "")
			w.nap(id, "", "nap", Lease, task(id))
			w.Delete(held[i].Ref)
		}
		require.Equal(w, refsOf(held), n.beat(held...).Gone)
		require.Empty(w, n.letters())
		require.Empty(w, w.Pending(w.public()))
		require.Zero(w, w.Len(w.Inbox()))
		require.Equal(w, messages.State_STATE_WAITING, w.Unit("t1", "").State)
	}},
	{"a beat and a release leave alone what waits", func(w *world) {
		w.add(1)
		n, b := w.open("a"), w.open("b")
		held := n.hold(1)
		w.Begin(n.Node, "t1", "")
		w.nap("t1", "", "nap", Lease, task("t1"))
		beat := n.beat(held...)
		require.Empty(w, beat.Saved)
		require.Empty(w, beat.Lost)
		_, err := n.Release(w.ctx(), held)
		require.NoError(w, err)
		u := w.Unit("t1", "")
		require.Equal(w, messages.State_STATE_WAITING, u.State)
		require.Equal(w, []string{"nap"}, u.Waits)
		require.Zero(w, u.Interruptions)
		w.Pass(Lease)
		require.Equal(w, 1, b.tick(10).Promoted)
	}},
	{"a beat tells who was cancelled", func(w *world) {
		w.add(2)
		n := w.open("a")
		held := n.hold(2)
		w.Begin(n.Node, "t1", "")
		w.Begin(n.Node, "t2", "")
		require.Empty(w, n.beat(held...).Cancelled)
		held[0].Saved, held[1].Saved = true, true
		w.Cancel("t2", "", "too late")
		require.Equal(w, []streambridge.Cancelled{{TaskID: "t2", Reason: "too late"}}, n.beat(held...).Cancelled)
	}},
	{"a beat names the unit that was cancelled", func(w *world) {
		w.Add(append(task("x"), messages.Pair{Name: "step", Value: "p/q"})...)
		w.Add(task("x")...)
		n := w.open("a")
		held := n.hold(2)
		w.Begin(n.Node, "x", "")
		long := strings.Repeat("why ", 50)
		w.Cancel("x", "p/q", long)
		require.Equal(w, []streambridge.Cancelled{{TaskID: "x", Unit: "p/q", Reason: long}}, n.beat(held...).Cancelled)
		require.Equal(w, messages.State_STATE_RUNNING, w.Unit("x", "").State)
	}},
	{"a burial keeps the bytes, ends the unit and raises its fence", func(w *world) {
		fields := append(task("x"), messages.Pair{Name: "\xff\x00", Value: "\x00\xfe"}, messages.Pair{Name: "a", Value: "1"}, messages.Pair{Name: "a", Value: "2"})
		w.Add(fields...)
		n := w.open("a")
		held := n.hold(1)
		w.Begin(n.Node, "x", "")
		w.Queue("x", task("x"))
		d := streambridge.Burial{
			Ref: held[0].Ref, Reason: messages.Reason_REASON_BUDGET_SPENT, Detail: "spent", TaskID: "x", Type: "t", Fail: true, Deliveries: 1,
		}
		for range 2 {
			require.NoError(w, n.Bury(w.ctx(), []streambridge.Burial{d}))
		}
		ls := n.letters()
		require.Len(w, ls, 1)
		l := ls[0]
		require.Equal(w, messages.Reason_REASON_BUDGET_SPENT, l.GetReason())
		require.Equal(w, "spent", l.GetDetail())
		require.Equal(w, "x", l.GetTaskId())
		require.Equal(w, "t", l.GetType())
		require.Equal(w, held[0].ID, l.GetEntry().GetId())
		require.EqualValues(w, 1, l.GetEntry().GetDeliveries())
		var kept []messages.Pair
		for _, f := range l.GetFields() {
			kept = append(kept, messages.Pair{Name: string(f.GetName()), Value: string(f.GetValue())})
		}
		require.Equal(w, fields, kept)
		u := w.Unit("x", "")
		require.Equal(w, messages.State_STATE_FAILED, u.State)
		require.EqualValues(w, 2, u.Fence)
		require.Equal(w, "BUDGET_SPENT", u.Reason)
		require.Empty(w, u.Owner)
		require.Zero(w, u.Waiting, "what waited for the task goes on")
		require.Equal(w, 1, w.Len(w.Inbox()))
		require.Empty(w, w.Pending(w.public()))
	}},
	{"a burial without a task, or of another's work, leaves records alone", func(w *world) {
		w.Add(messages.Pair{Name: "junk", Value: "\xff"})
		w.Add(task("x")...)
		n := w.open("a")
		got := n.read(10)
		require.Len(w, got, 2)
		w.Begin(n.Node, "x", "")
		require.NoError(w, n.Bury(w.ctx(), []streambridge.Burial{
			{Ref: got[0].Ref, Reason: messages.Reason_REASON_UNDECODABLE, Detail: "no type", Fail: true},
			{Ref: got[1].Ref, Reason: messages.Reason_REASON_ID_CONFLICT, Detail: "other work", TaskID: "x", Type: "t"},
		}))
		require.Len(w, n.letters(), 2)
		require.Equal(w, messages.State_STATE_RUNNING, w.Unit("x", "").State)
		require.Empty(w, w.Pending(w.public()))
	}},
	{"what is not ours is neither buried nor moved", func(w *world) {
		w.add(2)
		a, b := w.open("a"), w.open("b")
		held := a.hold(2)
		require.NoError(w, b.Bury(w.ctx(), []streambridge.Burial{{Ref: held[0].Ref, Reason: messages.Reason_REASON_REJECTED, TaskID: "t1", Fail: true}}))
		require.NoError(w, b.Move(w.ctx(), "u", held[1:]))
		require.Empty(w, b.letters())
		require.Equal(w, map[string]int{"a": 2}, w.owners(w.public()))
		require.Zero(w, w.Unit("t1", ""))
	}},
	{"an entry of another agent type finds the node that has it", func(w *world) {
		id := w.Add(messages.Pair{Name: "event_id", Value: "e"}, messages.Pair{Name: "type", Value: "u:1"})
		a := w.open("a")
		held := a.hold(1)
		held[0].TaskID = "e"
		for range 2 {
			require.NoError(w, a.Move(w.ctx(), "u:1", held))
		}
		require.Empty(w, w.Pending(w.public()))
		require.Equal(w, []string{"u:1"}, a.tick(10).Unserved)
		b := w.open("b", "other", "u:1")
		require.Empty(w, b.tick(0).Drained, "no room")
		found := b.tick(10)
		require.Empty(w, found.Unserved)
		require.Empty(w, a.tick(10).Unserved)
		require.Empty(w, a.read(10), "it is b's at once: a would only pass it on again")
		got := found.Drained
		require.Len(w, got, 1)
		require.EqualValues(w, 1, got[0].Deliveries)
		require.Equal(w, map[string]int{"b": 1}, w.owners(w.Inbox()))
		require.Empty(w, b.tick(10).Drained)
		require.Equal(w, "e", value(got[0], messages.ControlID))
		require.Equal(w, id, value(got[0], messages.ControlOrigin))
		require.Equal(w, "0", value(got[0], messages.ControlWake))
		require.Equal(w, "u:1", value(got[0], "type"))
	}},
	{"a release gives all back at once, free of charge", func(w *world) {
		ids := w.add(3)
		a, b := w.open("a"), w.open("b")
		w.Retry("r", "", 0, task("r"))
		w.Pass(time.Millisecond)
		a.tick(0)
		held := a.hold(4) // one from the inbox
		w.Begin(a.Node, "t1", "")
		w.Begin(a.Node, "t2", "")
		w.End("t2", "")
		w.Queue("t1", task("t1"))
		given, err := a.Release(w.ctx(), held[:3]) // the last is not known to the window
		require.NoError(w, err)
		require.Equal(w, 4, given)
		u := w.Unit("t1", "")
		require.Equal(w, messages.State_STATE_PENDING, u.State)
		require.EqualValues(w, 1, u.Interruptions)
		require.Empty(w, u.Owner)
		require.Zero(w, u.Waiting)
		require.Equal(w, messages.State_STATE_SUCCEEDED, w.Unit("t2", "").State)

		given, err = a.Release(w.ctx(), held)
		require.NoError(w, err)
		require.Zero(w, given, "repeated it counts nothing twice")
		require.EqualValues(w, 1, w.Unit("t1", "").Interruptions)

		got := b.ticks(10)
		require.Len(w, got.Claimed, 4)
		for _, e := range got.Claimed {
			require.EqualValues(w, 1, e.Deliveries, "the delivery that was given back is not counted")
			if e.Stream == w.public() {
				require.Contains(w, ids, e.ID)
			}
		}
		require.Equal(w, 1, got.Nodes)
		b.tick(10)
		require.Equal(w, []string{"b"}, w.Consumers())
	}},
	{"a release sees to a body that went", func(w *world) {
		w.add(2)
		a, b := w.open("a"), w.open("b")
		held := a.hold(2)
		w.Begin(a.Node, "t1", "")
		a.beat(held...)
		w.Delete(held[0].Ref)
		w.Delete(held[1].Ref)
		_, err := a.Release(w.ctx(), held)
		require.NoError(w, err)
		require.Empty(w, w.Pending(w.public()))
		got := b.read(10)
		require.Len(w, got, 1, "rebuilt from its copy")
		require.Equal(w, "t1", value(got[0], messages.ControlID))
		ls := b.letters()
		require.Len(w, ls, 1)
		require.Equal(w, messages.Reason_REASON_BODY_GONE, ls[0].GetReason())
	}},
}
