package streamtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// second passes, with the look at the lines that comes with it.
func (n *node) second(held ...streambridge.Held) {
	n.w.Helper()
	n.w.Pass(time.Second + time.Millisecond)
	n.beat(held...)
	n.tick(10)
}

// running holds one entry of a task that has a slot.
func (n *node) running(id, limit string) streambridge.Held {
	n.w.Helper()
	n.w.Add(task(id)...)
	held := n.hold(1)
	n.w.Begin(n.Node, id, "")
	n.w.Hold(limit, id, held[0].Ref)
	return held[0]
}

var limitTests = []test{
	{"a slot is its unit's while anybody is left to end it", func(w *world) {
		a, b := w.open("a"), w.open("b")
		held := a.running("one", "g")
		w.Line("g", 1, "two", task("two"))
		b.second()
		require.Equal(w, []string{"one"}, w.Held("g"))
		w.Kill(a.Node)
		b.second()
		require.Equal(w, []string{"one"}, w.Held("g"), "another takes it over, slot and all")
		w.live(Lease, map[*node][]streambridge.Held{b: nil})
		require.Len(w, b.ticks(10).Claimed, 0, "claimed already")
		require.Zero(w, w.Len(w.Inbox()))
		// A foreigner's XACK leaves nobody who could.
		require.NoError(w, b.Ack(w.ctx(), []messages.Ref{held.Ref}))
		b.second()
		require.Empty(w, w.Held("g"))
		got := b.read(10)
		require.Len(w, got, 1)
		require.Equal(w, "two", value(got[0], messages.ControlID))
		require.Equal(w, "1", value(got[0], messages.ControlWake))
	}},
	{"a slot of a unit that does not run is taken back", func(w *world) {
		n := w.open("a")
		w.Line("k:t:x", 0, "waits", task("waits"))
		gone, done := n.running("gone", "k:t:x"), n.running("done", "k:t:x")
		w.Forget("gone")
		w.End("done", "")
		n.second(gone, done)
		require.Empty(w, w.Held("k:t:x"))
	}},
	{"a call that is not heard is not waited for", func(w *world) {
		n := w.open("a")
		w.Line("t:t", 1, "one", task("one"))
		w.Line("t:t", 1, "two", task("two"))
		require.Equal(w, 1, w.Len(w.Inbox()), "one was called")
		n.second()
		require.Equal(w, 1, w.Len(w.Inbox()))
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Equal(w, []streambridge.Line{{Limit: "t", Most: 1, Waiting: 1}}, st.Lines)
		require.Equal(w, "one", value(n.read(1)[0], messages.ControlID))
		for range 5 {
			n.second()
		}
		require.Equal(w, 2, w.Len(w.Inbox()))
		st, err = n.Status(w.ctx())
		require.NoError(w, err)
		require.Empty(w, st.Lines)
	}},
	{"a release gives slots back", func(w *world) {
		n, other := w.open("a"), w.open("b")
		held := n.running("one", "g")
		w.Line("g", 1, "two", task("two"))
		_, err := n.Release(w.ctx(), []streambridge.Held{held})
		require.NoError(w, err)
		require.Empty(w, w.Held("g"))
		require.Equal(w, 1, w.Len(w.Inbox()))
		other.tick(0)
	}},
	{"a unit whose copy is gone when its turn comes is a dead letter", func(w *world) {
		n := w.open("a")
		held := n.running("one", "g")
		w.Line("g", 1, "two", task("two"))
		w.Line("g", 1, "three", task("three"))
		w.Uncopy("two")
		require.NoError(w, n.Bury(w.ctx(), []streambridge.Burial{
			{Ref: held.Ref, Reason: messages.Reason_REASON_REJECTED, Detail: "d", TaskID: "one", Type: "t", Fail: true},
		}))
		n.second()
		require.Equal(w, "BODY_GONE", w.Unit("two", "").Reason)
		require.Equal(w, "three", value(n.read(1)[0], messages.ControlID))
	}},
}
