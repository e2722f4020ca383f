package streamtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var reapTests = []test{
	{"a dead node's entries are taken over, each counted as a delivery", func(w *world) {
		ids := w.add(3)
		a, b := w.open("a"), w.open("b")
		a.hold(3)
		b.tick(0)
		require.Empty(w, b.tick(10).Claimed)
		w.Kill(a.Node)
		got := b.tick(10)
		require.Equal(w, ids, idsOf(got.Claimed))
		require.Zero(w, got.Orphans)
		require.Equal(w, 1, got.Nodes)
		for _, e := range got.Claimed {
			require.EqualValues(w, 2, e.Deliveries)
			require.Contains(w, value(e, "payload"), "work of ")
		}
		require.Equal(w, map[string]int{"b": 3}, w.owners(w.public()))
		require.Empty(w, b.tick(10).Claimed)
	}},
	{"the inbox is reaped as well", func(w *world) {
		a, b := w.open("a"), w.open("b")
		w.Retry("x", "", 0, task("x"))
		w.Pass(time.Millisecond)
		a.tick(0)
		a.hold(1)
		w.Kill(a.Node)
		got := b.tick(10).Claimed
		require.Len(w, got, 1)
		require.Equal(w, w.Inbox(), got[0].Stream)
		require.Equal(w, "1", value(got[0], messages.ControlWake))
	}},
	{"the living are left alone, however long they hold", func(w *world) {
		w.add(3)
		a, b := w.open("a"), w.open("b")
		held := a.hold(3)
		w.live(5*Lease, map[*node][]streambridge.Held{a: held, b: nil})
		require.Empty(w, b.tick(10).Claimed)
		require.Equal(w, map[string]int{"a": 3}, w.owners(w.public()))
	}},
	{"a node takes its share and no more than it has room for", func(w *world) {
		w.add(10)
		a, b, c := w.open("a"), w.open("b"), w.open("c")
		a.hold(10)
		b.tick(0)
		c.tick(0)
		w.Kill(a.Node)
		require.Empty(w, b.tick(0).Claimed)
		got := b.tick(2)
		require.Len(w, got.Claimed, 2)
		require.Equal(w, 8, got.Orphans)
		require.Equal(w, 2, got.Nodes)
		require.Len(w, c.tick(100).Claimed, 5, "half of the ten, whatever b had room for")
		require.Len(w, b.tick(100).Claimed, 2, "half of the rest: b has had its turn")
	}},
	{"a crowd of orphans is taken over within one turn of each node", func(w *world) {
		w.add(100)
		a, b, c, d := w.open("a"), w.open("b"), w.open("c"), w.open("d")
		a.hold(100)
		for _, n := range []*node{b, c, d} {
			n.tick(0)
		}
		w.Kill(a.Node)
		require.Len(w, b.tick(1000).Claimed, 34)
		require.Len(w, c.tick(1000).Claimed, 34)
		got := d.tick(1000)
		require.Len(w, got.Claimed, 32)
		require.Zero(w, got.Orphans)
	}},
	{"a crowd of orphans is taken over in turns, and the share holds over them", func(w *world) {
		w.add(1000)
		a, b, c := w.open("a"), w.open("b"), w.open("c")
		a.hold(1000)
		b.tick(0)
		c.tick(0)
		w.Kill(a.Node)
		require.Len(w, b.ticks(10_000).Claimed, 500)
		require.Len(w, c.ticks(10_000).Claimed, 500)
		require.Zero(w, w.owners(w.public())["a"])
	}},
	{"orphans without a body are rebuilt, or dead letters that say so", func(w *world) {
		w.add(4)
		a, b := w.open("a"), w.open("b")
		held := a.hold(4)
		w.Begin(a.Node, "t1", "")
		a.beat(held...)
		w.Kill(a.Node)
		w.Trim(2)
		got := b.tick(10)
		require.Len(w, got.Claimed, 2)
		require.Equal(w, []messages.Ref{held[1].Ref}, got.Buried)
		again := b.read(10)
		require.Len(w, again, 1)
		require.Equal(w, "t1", value(again[0], messages.ControlID))
		ls := b.letters()
		require.Len(w, ls, 1)
		require.Equal(w, messages.Reason_REASON_BODY_GONE, ls[0].GetReason())
		require.Equal(w, map[string]int{"b": 2}, w.owners(w.public()))
	}},
	{"after an outage nobody is taken for dead until a lease has passed", func(w *world) {
		w.add(3)
		a, b := w.open("a"), w.open("b")
		held := a.hold(3)
		a.tick(0)
		w.Pass(2 * Lease) // nobody could tick or beat
		got := b.tick(10)
		require.True(w, got.Calm)
		require.Empty(w, got.Claimed)
		require.Empty(w, a.beat(held...).Lost)
		w.live(Lease/2, map[*node][]streambridge.Held{b: nil})
		require.Empty(w, b.tick(10).Claimed)
		w.live(Lease, map[*node][]streambridge.Held{b: nil})
		got = b.tick(10)
		require.False(w, got.Calm)
		require.Len(w, got.Claimed, 3, "a has died in the meantime")
	}},
	{"what was given back in order is taken even in a calm", func(w *world) {
		w.add(2)
		a := w.open("a")
		held := a.hold(2)
		a.tick(0)
		_, err := a.Release(w.ctx(), held)
		require.NoError(w, err)
		w.Pass(10 * Lease)
		b := w.open("b")
		got := b.tick(10)
		require.True(w, got.Calm)
		require.Len(w, got.Claimed, 2)
	}},
	{"a dead consumer goes when nothing is pending on it, and not before", func(w *world) {
		w.add(1)
		a, b, c := w.open("a"), w.open("b"), w.open("c")
		a.hold(1)
		c.tick(0)
		b.tick(0)
		w.Kill(a.Node)
		w.Kill(c.Node)
		b.tick(0)
		require.Equal(w, []string{"a", "b"}, w.Consumers())
		require.Len(w, b.tick(10).Claimed, 1)
		b.tick(10)
		require.Equal(w, []string{"b"}, w.Consumers())
		require.Equal(w, map[string]int{"b": 1}, w.owners(w.public()))
	}},
}
