package streamtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

var laterTests = []test{
	{"what was submitted for later joins the stream when it is due, once", func(w *world) {
		n := w.open("a")
		w.Delay("x:{y}", "u/1", Lease/4, task("x:{y}"))
		require.Zero(w, n.tick(10).Joined)
		require.Zero(w, w.Len(w.public()))
		w.Pass(Lease/4 - time.Second)
		require.Zero(w, n.tick(10).Joined)
		w.Pass(time.Second)
		require.Equal(w, 1, n.tick(10).Joined)
		require.Zero(w, n.tick(10).Joined)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, w.public(), got[0].Stream)
		require.Equal(w, task("x:{y}"), got[0].Fields)
		require.Equal(w, got[0].ID, w.Submitted("x:{y}", "u/1"), "the marker knows where it is")
	}},
	{"a node of any group lets it join", func(w *world) {
		n := w.open("a")
		audit := &node{Stream: w.New(), Node: w.node("b"), w: w}
		names := w.Names()
		names.Group = "audit"
		require.NoError(w, audit.Open(w.ctx(), names, audit.Node))
		w.Delay("x", "", time.Minute, task("x"))
		for _, m := range []*node{audit, n} {
			st, err := m.Status(w.ctx())
			require.NoError(w, err)
			require.EqualValues(w, 1, st.States["SCHEDULED"])
			require.EqualValues(w, 1, st.Delayed)
		}
		w.Pass(time.Minute)
		require.Equal(w, 1, audit.tick(0).Joined)
		require.Zero(w, n.tick(0).Joined)
		require.Len(w, n.read(10), 1)
		require.Len(w, audit.read(10), 1)
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Zero(w, st.States["SCHEDULED"]+st.Delayed)
	}},
	{"many join in turns, in the order of their times", func(w *world) {
		n := w.open("a")
		for i := range 450 {
			w.Delay(fmt.Sprint("r", i), "", time.Duration(450-i)*time.Second, task(fmt.Sprint("r", i)))
		}
		w.Pass(Lease / 4)
		require.Less(w, n.tick(10).Joined, 450)
		n.ticks(10)
		got := n.read(1000)
		require.Len(w, got, 450)
		for i, e := range got {
			require.Equal(w, fmt.Sprint("r", 449-i), value(e, "task_id"))
		}
	}},
	{"big ones join in turns too", func(w *world) {
		n := w.open("a")
		big := append(task("x"), messages.Pair{Name: "payload", Value: strings.Repeat("x", 1<<20)})
		for i := range 12 {
			w.Delay(fmt.Sprint("r", i), "", 0, big)
		}
		w.Pass(time.Millisecond)
		first := n.tick(10)
		require.True(w, first.More)
		require.Less(w, first.Joined, 12)
		require.Equal(w, 12, first.Joined+n.ticks(10).Joined)
	}},
	{"a unit that is SCHEDULED goes into the inbox when it is due, under its wake", func(w *world) {
		n := w.open("a")
		fields := append([]messages.Pair{{Name: messages.ControlOrigin, Value: "7-7"}}, task("x:{y}")...)
		w.Schedule("x:{y}", "p/q", Lease/4, fields)
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.EqualValues(w, 1, st.States["SCHEDULED"])
		require.EqualValues(w, 1, st.Due)
		require.Zero(w, st.Delayed)
		require.Zero(w, n.tick(10).Promoted)
		w.Pass(Lease / 4)
		require.Equal(w, 1, n.tick(10).Promoted)
		require.Zero(w, n.tick(10).Promoted)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, w.Inbox(), got[0].Stream)
		require.Equal(w, "x:{y}", value(got[0], messages.ControlID))
		require.Equal(w, "7-7", value(got[0], messages.ControlOrigin))
		require.Equal(w, "1", value(got[0], messages.ControlWake))
		require.Equal(w, messages.State_STATE_SCHEDULED, w.Unit("x:{y}", "p/q").State)
	}},
	{"a SCHEDULED unit that was ended meanwhile is forgotten", func(w *world) {
		n := w.open("a")
		w.Schedule("x", "", 0, task("x"))
		w.Cancel("x", "", "not wanted")
		w.Pass(time.Millisecond)
		require.Zero(w, n.tick(10).Promoted)
		require.Empty(w, n.read(10))
	}},
	{"the entry of a SCHEDULED unit is not given back to it", func(w *world) {
		w.add(1)
		n := w.open("a")
		held := n.hold(1)
		w.Schedule("t1", "", Lease, task("t1"))
		w.Delete(held[0].Ref)
		n.beat(held...)
		require.Empty(w, w.Pending(w.public()), "it is where its copy is")
		require.Empty(w, n.letters())
		require.Zero(w, w.Len(w.Inbox()))
	}},
	{"what was submitted for later outlives its nodes", func(w *world) {
		a := w.open("a")
		w.Delay("x", "", Lease/4, task("x"))
		w.Schedule("y", "", Lease/4, task("y"))
		a.tick(0)
		w.Kill(a.Node)
		w.Pass(2 * Lease)
		b := w.open("b")
		t := b.tick(0)
		require.Equal(w, []int{1, 1}, []int{t.Joined, t.Promoted})
		require.Len(w, b.read(10), 2)
	}},
}
