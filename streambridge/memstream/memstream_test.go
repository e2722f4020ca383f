package memstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var testNames = messages.Names{Stream: "agent:tasks", Group: "agent-workers"}.WithDefaults()

func node(n int) messages.Node {
	return messages.Node{Incarnation: fmt.Sprintf("%016x", n), Consumer: fmt.Sprint("c-", n), Lease: 15 * time.Second, Beat: 5 * time.Second}
}

func openNode(t *testing.T, s *Server, n int) *Stream {
	t.Helper()
	h := s.Stream()
	require.NoError(t, h.Open(t.Context(), testNames, node(n)))
	return h
}

var hello = messages.Pair{Name: "task_id", Value: "a"}

// read starts a read and returns what it will have given.
func read(ctx context.Context, s *Stream, block time.Duration) (entries func() ([]streambridge.Entry, error)) {
	var found []streambridge.Entry
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		found, err = s.Read(ctx, 1, block)
	}()
	return func() ([]streambridge.Entry, error) {
		<-done
		return found, err
	}
}

func TestBlockedReadersAreServedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		var reads []func() ([]streambridge.Entry, error)
		for i := range 5 {
			reads = append(reads, read(t.Context(), openNode(t, s, i), time.Minute))
			synctest.Wait()
		}
		for i, r := range reads {
			id := s.Add(testNames.Stream, hello)
			found, err := r()
			require.NoError(t, err)
			require.Len(t, found, 1, "reader %d", i)
			require.Equal(t, id, found[0].ID)
		}
	})
}

func TestReadEndsWithItsBlockItsContextAndItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		h := openNode(t, s, 1)
		start := time.Now()
		found, err := h.Read(t.Context(), 1, 2*time.Second)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, 2*time.Second, time.Since(start))

		ctx, cancel := context.WithCancel(t.Context())
		r := read(ctx, h, time.Minute)
		synctest.Wait()
		cancel()
		found, err = r()
		require.NoError(t, err)
		require.Empty(t, found)

		gone := errors.New("connection refused")
		r = read(t.Context(), h, time.Minute)
		synctest.Wait()
		s.SetDown(gone)
		_, err = r()
		require.ErrorIs(t, err, gone)
		require.ErrorIs(t, h.Ack(t.Context(), nil), gone)
		s.SetDown(nil)

		other := openNode(t, s, 2)
		h.SetDown(gone)
		require.ErrorIs(t, h.Ack(t.Context(), nil), gone)
		require.NoError(t, other.Ack(t.Context(), nil))
		h.SetDown(nil)

		r = read(t.Context(), h, time.Minute)
		synctest.Wait()
		require.NoError(t, h.Close())
		_, err = r()
		require.ErrorIs(t, err, errClosed)
	})
}

func TestALostGroupIsReportedOnceToEachNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		a, b := openNode(t, s, 1), openNode(t, s, 2)
		ra := read(t.Context(), a, time.Minute)
		synctest.Wait()
		s.FlushAll()
		_, err := ra()
		require.ErrorIs(t, err, streambridge.ErrGroupLost)
		_, err = b.Tick(t.Context(), streambridge.TickRequest{})
		require.NoError(t, err)
		_, err = b.Read(t.Context(), 1, -1)
		require.ErrorIs(t, err, streambridge.ErrGroupLost)
		for _, h := range []*Stream{a, b} {
			_, err = h.Read(t.Context(), 1, -1)
			require.NoError(t, err)
		}
	})
}

func TestTheGroupIsMadeAgainAtItsLowWaterMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		h := openNode(t, s, 1)
		for range 3 {
			s.Add(testNames.Stream, hello)
		}
		found, err := h.Read(t.Context(), 2, -1)
		require.NoError(t, err)
		require.Len(t, found, 2)
		require.NoError(t, h.Ack(t.Context(), []messages.Ref{found[0].Ref}))
		_, err = h.Tick(t.Context(), streambridge.TickRequest{})
		require.NoError(t, err)
		s.GroupLost(testNames)
		_, err = h.Read(t.Context(), 9, -1)
		require.ErrorIs(t, err, streambridge.ErrGroupLost)
		again, err := h.Read(t.Context(), 9, -1)
		require.NoError(t, err)
		require.Len(t, again, 2, "what was acknowledged does not come again")
		require.Equal(t, found[1].Ref, again[0].Ref)
	})
}

// The entry would be handed out again by the group that is made anew.
func TestWhatIsAcknowledgedLeavesTheInboxOfALostGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		h := openNode(t, s, 1)
		s.fault(func(now int64) { h.world().toInbox(now, withControl([]messages.Pair{hello}, "x", "1-1", 1)) })
		found, err := h.Read(t.Context(), 2, -1)
		require.NoError(t, err)
		require.Len(t, found, 1)
		s.GroupLost(testNames)
		require.NoError(t, h.Ack(t.Context(), []messages.Ref{found[0].Ref}))
		_, err = h.Read(t.Context(), 9, -1)
		require.ErrorIs(t, err, streambridge.ErrGroupLost)
		again, err := h.Read(t.Context(), 9, -1)
		require.NoError(t, err)
		require.Empty(t, again)
	})
}

func TestTakingAConsumerName(t *testing.T) {
	again := node(1)
	again.Incarnation = "00000000000000ff"
	for _, c := range []struct {
		name  string
		left  func(s *Server, h *Stream)
		waits time.Duration
		taken bool
	}{
		{"its connection is gone", func(s *Server, h *Stream) { _ = h.Close() }, 0, false},
		{"it was killed", func(s *Server, _ *Stream) { s.KillNode(node(1).Incarnation) }, 0, false},
		{"it hangs", func(*Server, *Stream) {}, 15 * time.Second, false},
		{"it beats", func(_ *Server, h *Stream) {
			time.AfterFunc(4500*time.Millisecond, func() { _, _ = h.Beat(context.Background(), nil) })
		}, 5 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer()
				h := openNode(t, s, 1)
				c.left(s, h)
				start := time.Now()
				err := s.Stream().Open(t.Context(), testNames, again)
				require.Equal(t, c.waits, time.Since(start))
				if c.taken {
					require.ErrorIs(t, err, streambridge.ErrConsumerTaken)
					return
				}
				require.NoError(t, err)
				beat, err := h.Beat(t.Context(), nil)
				require.NoError(t, err)
				require.True(t, beat.Usurped)
				_, err = h.Tick(t.Context(), streambridge.TickRequest{})
				require.ErrorIs(t, err, streambridge.ErrUsurped)
			})
		})
	}
}

func TestForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer()
		h := openNode(t, s, 1)
		keys, err := messages.NewKeys(testNames)
		require.NoError(t, err)
		script := func(f func(tx *Tx)) {
			require.NoError(t, h.Script(t.Context(), "test", keys, testNames.Group, func(tx *Tx) error { f(tx); return nil }))
		}
		script(func(tx *Tx) {
			task := tx.MakeTask("a")
			u := &Unit{Type: "noop"}
			task.Units[""] = u
			tx.Become(task, u, messages.State_STATE_FAILED, false)
			tx.Expire(task, time.Hour)
			tx.Bury(2*time.Hour, Letter{TaskID: "a"})
			tx.SetMark("a", "", Mark{}, 3*time.Hour)
			tx.Publish("a", Chunk{}, time.Hour)
		})
		time.Sleep(time.Hour)
		script(func(tx *Tx) {
			require.Nil(t, tx.Task("a"))
			require.Empty(t, tx.Index(messages.State_STATE_FAILED, "noop"))
			require.Len(t, tx.Letters(), 1)
			require.NotNil(t, tx.Marks("a"))
			require.NotContains(t, tx.w.feeds, "a")
		})
		time.Sleep(24 * time.Hour)
		script(func(tx *Tx) {
			require.Empty(t, tx.Letters())
			require.Nil(t, tx.Marks("a"))
			require.Empty(t, tx.w.lives)
			require.Empty(t, tx.w.data.expiry.heap, "what has gone leaves nothing behind")
		})
	})
}

func TestIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := entryID{ms: rapid.Int64Range(0, 1<<50).Draw(t, "ms"), seq: rapid.Uint64().Draw(t, "seq")}
		back, ok := parseID(id.String())
		require.True(t, ok)
		require.Equal(t, id, back)
		require.Equal(t, 1, id.next().compare(id))
		require.Equal(t, id, id.next().prev())
	})
	for _, bad := range []string{"", "-", "1-", "-1", "a-1", "1-a", "1-2-3"} {
		_, ok := parseID(bad)
		require.False(t, ok, bad)
	}
}

// A list by id is a sorted map, whatever comes and goes.
func TestByID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l byID[int]
		model := map[int64]int{}
		for range rapid.IntRange(0, 200).Draw(t, "moves") {
			id := rapid.Int64Range(0, 60).Draw(t, "id")
			at := entryID{ms: id}
			switch rapid.IntRange(0, 2).Draw(t, "move") {
			case 0, 1:
				v := rapid.Int().Draw(t, "value")
				l.put(at, &v)
				model[id] = v
			case 2:
				_, had := model[id]
				require.Equal(t, had, l.remove(at) != nil)
				delete(model, id)
			}
		}
		require.Equal(t, len(model), l.len())
		var order []int64
		for id, v := range l.from(entryID{}) {
			require.Equal(t, model[id.ms], *v)
			order = append(order, id.ms)
		}
		require.Equal(t, sortedKeys(model), append([]int64(nil), order...))
		for id, v := range model {
			require.Equal(t, v, *l.get(entryID{ms: id}))
		}
	})
}
