package streamtest

import (
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge"
)

// losses reads until nothing is left and returns the entries and how often a loss was told.
func (n *node) losses() (entries []streambridge.Entry, told int) {
	n.w.Helper()
	for range 5 {
		got, err := n.Read(n.w.ctx(), 100, 0)
		if errors.Is(err, streambridge.ErrGroupLost) {
			told++
			continue
		}
		require.NoError(n.w, err)
		entries = append(entries, got...)
	}
	return entries, told
}

var lossTests = []test{
	{"a group that was destroyed is made again at its low-water mark", func(w *world) {
		w.add(5)
		n := w.open("a")
		held := n.hold(5)
		require.NoError(w, n.Ack(w.ctx(), refsOf(held[:2])))
		n.tick(0)
		other := w.open("b")
		w.DropGroup()
		later := w.Add(task("later")...)
		got, told := n.losses()
		require.Equal(w, 1, told)
		require.Equal(w, []string{held[2].ID, held[3].ID, held[4].ID, later}, idsOf(got), "the unacknowledged again, the others not")
		other.tick(0)
		got, told = other.losses()
		require.Equal(w, 1, told, "each node must know, for each held something")
		require.Empty(w, got)
		_, told = n.losses()
		require.Zero(w, told)
	}},
	{"an emptied server loses what was held, is told once, and goes on", func(w *world) {
		w.add(3)
		n := w.open("a")
		held := n.hold(3)
		n.tick(0)
		w.Flush()
		require.Equal(w, refsOf(held), n.beat(held...).Lost)
		id := w.Add(task("x")...)
		got, told := n.losses()
		require.Equal(w, 1, told)
		require.Equal(w, []string{id}, idsOf(got))
		require.Empty(w, n.beat(heldOf(got)...).Lost)
		require.NoError(w, n.Ack(w.ctx(), refsOf(heldOf(got))))
		require.Equal(w, 1, n.tick(10).Nodes)
		_, told = n.losses()
		require.Zero(w, told)
	}},
	{"a tick finds the loss too, and the next read tells it", func(w *world) {
		n := w.open("a")
		n.tick(0)
		w.Flush()
		n.tick(0)
		n.tick(0)
		w.add(1)
		got, told := n.losses()
		require.Equal(w, 1, told)
		require.Len(w, got, 1)
	}},
	{"a loss is found by a read that waits", func(w *world) {
		n := w.open("a")
		told := make(chan error, 1)
		go func() {
			for {
				if _, err := n.Read(w.ctx(), 10, 2*time.Second); err != nil {
					told <- err
					return
				}
			}
		}()
		w.Flush()
		select {
		case err := <-told:
			require.ErrorIs(w, err, streambridge.ErrGroupLost)
		case <-time.After(patience):
			require.FailNow(w, "the loss was not found")
		}
		w.add(1)
		require.Len(w, n.read(10), 1)
	}},
}
