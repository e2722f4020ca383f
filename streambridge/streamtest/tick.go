package streamtest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var tickTests = []test{
	{"an idle tick finds nothing", func(w *world) {
		n := w.open("a")
		require.Equal(w, streambridge.Tick{Nodes: 1, Gate: streambridge.Gate{State: open}}, clean(n.tick(10)))
	}},
	{"a due retry is promoted when it is due, under its wake", func(w *world) {
		n := w.open("a")
		fields := append([]messages.Pair{{Name: messages.ControlOrigin, Value: "7-7"}}, task("x:{y}")...)
		w.Retry("x:{y}", "p/q", Lease/4, fields)
		require.Zero(w, n.tick(10).Promoted)
		require.Empty(w, n.read(10))
		w.Pass(Lease / 4)
		require.Equal(w, 1, n.tick(10).Promoted)
		require.Zero(w, n.tick(10).Promoted)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, w.Inbox(), got[0].Stream)
		require.Equal(w, "x:{y}", value(got[0], messages.ControlID))
		require.Equal(w, "7-7", value(got[0], messages.ControlOrigin))
		require.Equal(w, "1", value(got[0], messages.ControlWake))
		require.Equal(w, "work of x:{y}", value(got[0], "payload"))
	}},
	{"many due retries are promoted in turns", func(w *world) {
		n := w.open("a")
		for i := range 450 {
			w.Retry(fmt.Sprint("r", i), "", 0, task(fmt.Sprint("r", i)))
		}
		w.Pass(time.Millisecond)
		got := n.ticks(10)
		require.Equal(w, 450, got.Promoted)
		require.Equal(w, 450, w.Len(w.Inbox()))
	}},
	{"a retry of what was ended meanwhile is forgotten", func(w *world) {
		n := w.open("a")
		w.Retry("x", "", 0, task("x"))
		w.Cancel("x", "", "enough")
		w.Pass(time.Millisecond)
		require.Zero(w, n.tick(10).Promoted)
		require.Empty(w, n.read(10))
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Zero(w, st.Due)
	}},
	{"a tick tells who was cancelled while it ran here, once", func(w *world) {
		a, b := w.open("a"), w.open("b")
		w.Begin(a.Node, "old", "")
		w.Cancel("old", "", "before the first tick")
		require.Empty(w, a.tick(0).Cancelled, "a node that has just come runs nothing")
		b.tick(0)
		w.Begin(a.Node, "x:{y}", "p/q")
		w.Begin(b.Node, "z", "")
		w.Cancel("x:{y}", "p/q", "too \x00 late")
		w.Cancel("z", "", "no reason")
		w.Cancel("waits", "", "it runs nowhere")
		require.Equal(w, []streambridge.Cancelled{{TaskID: "x:{y}", Unit: "p/q", Reason: "too \x00 late"}}, a.tick(0).Cancelled)
		require.Empty(w, a.tick(0).Cancelled)
		require.Equal(w, []streambridge.Cancelled{{TaskID: "z", Reason: "no reason"}}, b.tick(0).Cancelled)
	}},
	{"many cancellations are told in turns, and what is too much by the beat", func(w *world) {
		n := w.open("a")
		n.tick(0)
		for i := range 450 {
			id := fmt.Sprint("c", i)
			w.Begin(n.Node, id, "")
			w.Cancel(id, "", "all of them")
		}
		told := n.ticks(0).Cancelled
		require.Len(w, told, 450)
		require.Equal(w, "c449", told[449].TaskID)
	}},
	{"a cancellation that is due ends its unit, whatever it does", func(w *world) {
		w.add(1)
		n := w.open("a")
		n.hold(1)
		n.tick(0)
		w.Begin(n.Node, "t1", "")
		w.Retry("r", "", Lease, task("r"))
		w.Begin(n.Node, "ended", "")
		w.End("ended", "")
		for _, id := range []string{"t1", "r", "ended", "unknown"} {
			w.CancelLater(id, "")
		}
		w.Pass(time.Millisecond)
		require.Zero(w, n.tick(0).Promoted)
		require.Equal(w, messages.State_STATE_CANCELLED, w.Unit("t1", "").State)
		require.Empty(w, w.Unit("t1", "").Owner)
		require.Equal(w, messages.State_STATE_CANCELLED, w.Unit("r", "").State)
		require.Equal(w, messages.State_STATE_SUCCEEDED, w.Unit("ended", "").State)
		require.Zero(w, w.Unit("unknown", ""))
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Zero(w, st.Due)
		require.Equal(w, []streambridge.Cancelled{{TaskID: "t1", Reason: "its parent was cancelled"}}, n.tick(0).Cancelled)
	}},
	{"a wait whose time is over lets its unit go on, under its wake", func(w *world) {
		n := w.open("a")
		fields := append([]messages.Pair{{Name: messages.ControlOrigin, Value: "7-7"}}, task("x:{y}")...)
		w.Park("x:{y}", "p/q", "nap/:1", Lease/4, fields)
		w.Park("z", "", "x", -1, task("z"))
		require.Zero(w, n.tick(10).Promoted)
		require.Empty(w, n.read(10))
		w.Pass(Lease / 4)
		require.Equal(w, 1, n.tick(10).Promoted)
		require.Zero(w, n.tick(10).Promoted)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, w.Inbox(), got[0].Stream)
		require.Equal(w, "x:{y}", value(got[0], messages.ControlID))
		require.Equal(w, "7-7", value(got[0], messages.ControlOrigin))
		require.Equal(w, "1", value(got[0], messages.ControlWake))
		require.Equal(w, "work of x:{y}", value(got[0], "payload"))
		u := w.Unit("x:{y}", "p/q")
		require.Equal(w, messages.State_STATE_PENDING, u.State)
		require.Empty(w, u.Waits)
		require.Equal(w, []string{"nap/:1"}, u.Steps)
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.EqualValues(w, 1, st.States["WAITING"])
		require.Zero(w, st.Due)
	}},
	{"a wait whose time is over leaves alone what does not wait", func(w *world) {
		n := w.open("a")
		w.Park("x", "", "nap", 0, task("x"))
		w.Begin(n.Node, "x", "")
		w.Pass(time.Millisecond)
		require.Zero(w, n.tick(10).Promoted)
		require.Empty(w, n.read(10))
		require.Equal(w, []string{"nap"}, w.Unit("x", "").Steps)
		require.Equal(w, messages.State_STATE_RUNNING, w.Unit("x", "").State)
	}},
	{"a wait of a task that nobody knows any more is forgotten", func(w *world) {
		n := w.open("a")
		w.Park("x", "", "nap", 0, task("x"))
		w.Forget("x")
		w.Pass(time.Millisecond)
		require.Zero(w, n.tick(10).Promoted)
		require.Zero(w, w.Unit("x", ""))
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Zero(w, st.Due)
	}},
	{"what waits for an owner goes on when the owner dies", func(w *world) {
		w.add(1)
		a, b := w.open("a"), w.open("b")
		held := a.hold(1)
		w.Begin(a.Node, "t1", "")
		w.Queue("t1", task("t1"))
		w.Queue("t1", task("t1"))
		w.live(Lease, map[*node][]streambridge.Held{a: held, b: nil})
		require.Equal(w, 2, w.Unit("t1", "").Waiting, "the owner lives")
		w.Kill(a.Node)
		w.live(Lease+time.Second, map[*node][]streambridge.Held{b: nil})
		require.Equal(w, 1, w.Unit("t1", "").Waiting)
		require.Empty(w, w.Unit("t1", "").Owner)
		require.Equal(w, 1, w.Len(w.Inbox()))
		w.live(Lease+time.Second, map[*node][]streambridge.Held{b: nil})
		require.Zero(w, w.Unit("t1", "").Waiting)
	}},
	{"trimming stops at what any group has not acknowledged", func(w *world) {
		others := w.Group("audit")
		w.add(6)
		n := w.open("a")
		held := n.hold(6)
		require.NoError(w, n.Ack(w.ctx(), refsOf(held[:3])))
		require.Zero(w, n.tick(0).Trimmed, "the other group has read nothing")
		others()
		require.EqualValues(w, 3, n.tick(0).Trimmed)
		require.Equal(w, 3, w.Len(w.public()))
		require.NoError(w, n.Ack(w.ctx(), refsOf(held[4:])))
		require.Zero(w, n.tick(0).Trimmed, "the fourth is pending")
		require.NoError(w, n.Ack(w.ctx(), refsOf(held[3:])))
		require.EqualValues(w, 3, n.tick(0).Trimmed)
		require.Zero(w, w.Len(w.public()))
		w.add(1)
		require.Zero(w, n.tick(0).Trimmed, "not delivered yet")
		require.Len(w, n.read(10), 1)
	}},
	{"entries that somebody trimmed undelivered are told once", func(w *world) {
		w.add(10)
		n := w.open("a")
		require.Len(w, n.read(2), 2)
		require.Zero(w, n.tick(0).Missed)
		w.Trim(3)
		require.EqualValues(w, 5, n.tick(0).Missed)
		require.Zero(w, n.tick(0).Missed)
	}},
	{"own entries that nobody renews are strays", func(w *world) {
		w.add(5)
		n := w.open("a")
		held := n.hold(5)
		n.tick(10)
		w.live(Lease/2, map[*node][]streambridge.Held{n: held[:2]})
		require.Empty(w, n.tick(10).Strays)
		w.Pass(Lease / 4)
		n.beat(held[:2]...)
		require.Empty(w, n.tick(0).Strays, "no room")
		got := n.tick(2).Strays
		require.Len(w, got, 2)
		require.EqualValues(w, 1, got[0].Deliveries, "a stray was delivered no further time")
		require.Equal(w, "work of t3", value(got[0], "payload"))
		got = append(got, n.tick(10).Strays...)
		require.Equal(w, held[2:], heldOf(got), "each is told once")
	}},
	{"a stray without a body takes no room", func(w *world) {
		n := w.open("a")
		w.Queue("q", task("q"))
		w.Pass(Lease + time.Second)
		n.tick(0)
		w.add(1)
		held := n.hold(2)
		w.Delete(held[0].Ref)
		w.live(Lease, map[*node][]streambridge.Held{n: nil})
		got := n.tick(1)
		require.Equal(w, held[1:], heldOf(got.Strays), "%+v", got)
	}},
	{"a stray without a body is seen to", func(w *world) {
		w.add(1)
		n := w.open("a")
		held := n.hold(1)
		w.live(Lease, map[*node][]streambridge.Held{n: nil})
		w.Delete(held[0].Ref)
		w.Pass(Lease / 4)
		n.tick(10)
		require.Empty(w, w.Pending(w.public()))
		require.Len(w, n.letters(), 1)
	}},
}

// clean drops empty lists, which an adapter may give as nil.
func clean(t streambridge.Tick) streambridge.Tick {
	if len(t.Claimed) == 0 {
		t.Claimed = nil
	}
	if len(t.Strays) == 0 {
		t.Strays = nil
	}
	if len(t.Buried) == 0 {
		t.Buried = nil
	}
	if len(t.Unserved) == 0 {
		t.Unserved = nil
	}
	return t
}
