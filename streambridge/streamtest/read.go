package streamtest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var readTests = []test{
	{"unopened", func(w *world) {
		s := w.New()
		_, err := s.Read(w.ctx(), 1, 0)
		require.ErrorIs(w, err, streambridge.ErrNotOpen)
		_, err = s.Beat(w.ctx(), nil)
		require.ErrorIs(w, err, streambridge.ErrNotOpen)
		_, err = s.Tick(w.ctx(), streambridge.TickRequest{})
		require.ErrorIs(w, err, streambridge.ErrNotOpen)
	}},
	{"every byte is kept, in order, repeats too", func(w *world) {
		var all strings.Builder
		for i := range 256 {
			all.WriteByte(byte(i))
		}
		fields := []messages.Pair{
			{Name: "z", Value: all.String()}, {Name: "a", Value: ""}, {Name: "a", Value: "again"}, {Name: all.String(), Value: "\x00"},
		}
		id := w.Add(fields...)
		n := w.open("a")
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, streambridge.Entry{Ref: messages.Ref{Stream: w.public(), ID: id}, Fields: fields, Deliveries: 1}, got[0])
	}},
	{"a group starts at the beginning and hands out in order, at most count", func(w *world) {
		ids := w.add(5)
		n := w.open("a")
		require.Empty(w, n.read(0))
		require.Equal(w, ids[:3], idsOf(n.read(3)))
		require.Equal(w, ids[3:], idsOf(n.read(3)))
		require.Empty(w, n.read(3))
		require.Equal(w, map[string]int{"a": 5}, w.owners(w.public()))
	}},
	{"two nodes share", func(w *world) {
		ids := w.add(4)
		a, b := w.open("a"), w.open("b")
		got := append(idsOf(a.read(2)), idsOf(b.read(2))...)
		require.Equal(w, ids, got)
	}},
	{"a read waits for the first entry", func(w *world) {
		n := w.open("a")
		type result struct {
			entries []streambridge.Entry
			err     error
		}
		got := make(chan result)
		go func() {
			for {
				e, err := n.Read(w.ctx(), 10, time.Second)
				if len(e) > 0 || err != nil {
					got <- result{e, err}
					return
				}
			}
		}()
		id := w.Add(task("x")...)
		r := <-got
		require.NoError(w, r.err)
		require.Equal(w, []string{id}, idsOf(r.entries))
	}},
	{"a read ends with its context, without error and without loss", func(w *world) {
		n := w.open("a")
		for range 5 {
			ctx, cancel := context.WithCancel(w.ctx())
			ended := make(chan error, 1)
			go func() {
				_, err := n.Read(ctx, 10, 2*time.Second)
				ended <- err
			}()
			cancel()
			select {
			case err := <-ended:
				require.NoError(w, err)
			case <-time.After(patience):
				require.FailNow(w, "the read goes on")
			}
		}
		got, err := n.Read(w.ctx(), 10, 0)
		require.NoError(w, err)
		require.Empty(w, got)
		ctx, cancel := context.WithCancel(w.ctx())
		cancel()
		w.Add(task("x")...)
		got, err = n.Read(ctx, 10, time.Second)
		require.NoError(w, err)
		require.Empty(w, got)
		require.Len(w, n.read(10), 1)
	}},
	{"readers at once get each entry once", func(w *world) {
		const total = 600
		w.add(total)
		var mu sync.Mutex
		seen := map[string]int{}
		var wg sync.WaitGroup
		for _, n := range []*node{w.open("a"), w.open("b"), w.open("c")} {
			for range 3 {
				wg.Go(func() {
					for {
						got, err := n.Read(w.ctx(), 7, 0)
						if !assert.NoError(w, err) || len(got) == 0 {
							return
						}
						mu.Lock()
						for _, e := range got {
							seen[e.ID]++
						}
						mu.Unlock()
						assert.NoError(w, n.Ack(w.ctx(), refsOf(heldOf(got))))
					}
				})
			}
		}
		wg.Wait()
		require.Len(w, seen, total)
		for id, times := range seen {
			require.Equal(w, 1, times, id)
		}
		require.Empty(w, w.Pending(w.public()))
	}},
	{"ack is for what is pending, and may be repeated", func(w *world) {
		w.add(3)
		n := w.open("a")
		held := n.hold(3)
		require.NoError(w, n.Ack(w.ctx(), nil))
		for range 2 {
			require.NoError(w, n.Ack(w.ctx(), append(refsOf(held[:2]), messages.Ref{Stream: w.public(), ID: "1-1"})))
		}
		p := w.Pending(w.public())
		require.Len(w, p, 1)
		require.Equal(w, held[2].ID, p[0].ID)
	}},
	{"the inbox is read with the stream, and what is acknowledged there is gone", func(w *world) {
		n := w.open("a")
		w.Retry("x", "", 0, task("x"))
		w.Pass(time.Millisecond)
		require.Equal(w, 1, n.tick(0).Promoted)
		public := w.Add(task("y")...)
		got := n.read(10)
		require.Len(w, got, 2)
		require.Equal(w, w.Inbox(), got[0].Stream)
		require.Equal(w, public, got[1].ID)
		require.NoError(w, n.Ack(w.ctx(), refsOf(heldOf(got))))
		require.Empty(w, w.Pending(w.Inbox()))
		require.Zero(w, w.Len(w.Inbox()))
	}},
	{"a name that a live process has is refused", func(w *world) {
		a := w.open("a")
		second, n := w.New(), w.node("a")
		opened := make(chan error, 1)
		go func() { opened <- second.Open(w.ctx(), w.Names(), n) }()
		for {
			w.Pass(time.Millisecond) // the beat moves
			require.False(w, a.beat().Usurped)
			select {
			case err := <-opened:
				require.ErrorIs(w, err, streambridge.ErrConsumerTaken)
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}},
	{"a dead process's name is taken over at once, its entries are strays", func(w *world) {
		ids := w.add(3)
		old := w.open("a")
		held := old.hold(3)
		old.tick(0)
		w.Kill(old.Node)
		young := w.open("a")
		require.Equal(w, ids, idsOf(young.tick(10).Strays))

		require.True(w, old.beat(held...).Usurped)
		_, err := old.Tick(w.ctx(), streambridge.TickRequest{Room: 10})
		require.ErrorIs(w, err, streambridge.ErrUsurped)
		require.Empty(w, young.beat(held...).Lost)
	}},
}
