package redisstream_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/streambridge/streamtest"
)

// wired is a node behind a wire that loses replies, and the fixture that sees the server without it.
type wired struct {
	*fixture
	*redisstream.Stream
	node messages.Node
	wire *redistest.Proxy
}

func newWired(t *testing.T, consumer string) *wired {
	srv := redistest.Start(t)
	wire := redistest.StartProxy(t, srv.Addr())
	rdb := srv.NewClient(redistest.Via(wire))
	t.Cleanup(func() { rdb.Close() })
	w := &wired{fixture: newFixture(t, srv.Client()), wire: wire, node: newNode(consumer, streamtest.Lease)}
	w.Stream = open(t, rdb, w.names, w.node)
	return w
}

// lose runs a call whose reply is lost, and then runs it again.
func (w *wired) lose(match func([]string) bool, call func() error) {
	w.t.Helper()
	lost := w.wire.LoseReply(match)
	require.Error(w.t, call())
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		require.FailNow(w.t, "no reply was lost")
	}
	require.NoError(w.t, call())
}

func (w *wired) fill(n int) []streambridge.Held {
	w.t.Helper()
	for i := range n {
		w.Add(messages.Pair{Name: "task_id", Value: fmt.Sprint("t", i)}, messages.Pair{Name: "payload", Value: "p"})
	}
	got, err := w.Read(ctx, 1000, 0)
	require.NoError(w.t, err)
	require.Len(w.t, got, n)
	var held []streambridge.Held
	for i, e := range got {
		held = append(held, streambridge.Held{Ref: e.Ref, TaskID: fmt.Sprint("t", i)})
	}
	return held
}

// script matches a script's call, by its hash or by its text.
func script(cmd []string) bool {
	return redistest.Command("EVALSHA")(cmd) || redistest.Command("EVAL")(cmd)
}

func request(room int) streambridge.TickRequest {
	return streambridge.TickRequest{Room: room, StrayAfter: streamtest.Lease * 2 / 3, DeadTTL: time.Hour}
}

func TestALostReadComesBackAsStrays(t *testing.T) {
	w := newWired(t, "a")
	w.Add(messages.Pair{Name: "task_id", Value: "x"})
	lost := w.wire.LoseReply(redistest.Command("XREADGROUP"))
	_, err := w.Read(ctx, 10, 0)
	require.Error(t, err)
	<-lost
	got, err := w.Read(ctx, 10, 0)
	require.NoError(t, err)
	require.Empty(t, got)
	_, err = w.Beat(ctx, nil)
	require.NoError(t, err)
	w.age(streamtest.Lease, "a")
	tick, err := w.Tick(ctx, request(10))
	require.NoError(t, err)
	require.Len(t, tick.Strays, 1)
	require.EqualValues(t, 1, tick.Strays[0].Deliveries)
}

func TestLostRepliesChangeNothing(t *testing.T) {
	t.Run("beat", func(t *testing.T) {
		w := newWired(t, "a")
		held := w.fill(3)
		w.Begin(w.node, "t0", "")
		var b streambridge.Beat
		w.lose(script, func() (err error) { b, err = w.Beat(ctx, held); return err })
		require.Equal(t, []messages.Ref{held[0].Ref}, b.Saved)
		require.Empty(t, b.Lost)
		w.Delete(held[0].Ref)
		w.Delete(held[1].Ref)
		w.lose(script, func() (err error) { b, err = w.Beat(ctx, held); return err })
		require.ElementsMatch(t, []messages.Ref{held[0].Ref, held[1].Ref}, b.Lost, "what was gone is forgotten either way")
		require.Equal(t, 1, w.Len(w.Inbox()))
		ls, err := w.Letters(ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, ls, 1)
	})
	t.Run("bury", func(t *testing.T) {
		w := newWired(t, "a")
		held := w.fill(2)
		w.lose(script, func() error {
			return w.Bury(ctx, []streambridge.Burial{
				{Ref: held[0].Ref, Reason: messages.Reason_REASON_REJECTED, TaskID: "t0", Type: "t", Fail: true},
				{Ref: held[1].Ref, Reason: messages.Reason_REASON_REJECTED, TaskID: "t1", Type: "t", Fail: true},
			})
		})
		ls, err := w.Letters(ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, ls, 2)
		require.EqualValues(t, 1, w.Unit("t0", "").Fence)
	})
	t.Run("move", func(t *testing.T) {
		w := newWired(t, "a")
		held := w.fill(2)
		w.lose(script, func() error { return w.Move(ctx, "u", held) })
		require.Equal(t, 2, w.Len(w.keys.Type("u")))
	})
	t.Run("ack", func(t *testing.T) {
		w := newWired(t, "a")
		held := w.fill(2)
		w.lose(redistest.Command("XACK"), func() error { return w.Ack(ctx, []messages.Ref{held[0].Ref, held[1].Ref}) })
		require.Empty(t, w.Pending(w.keys.Stream))
	})
	t.Run("release", func(t *testing.T) {
		losses := 0
		for nth := 1; nth <= 7; nth++ { // the first is answered NOSCRIPT
			w := newWired(t, "a")
			held := w.fill(3)
			w.Begin(w.node, "t0", "")
			w.wire.LoseReply(redistest.Nth(nth, script))
			_, err := w.Release(ctx, held)
			if err != nil {
				losses++
				_, err = w.Release(ctx, held)
			}
			require.NoError(t, err)
			require.EqualValues(t, 1, w.Unit("t0", "").Interruptions)
			require.Len(t, w.Pending(w.keys.Stream), 3)
			for _, p := range w.Pending(w.keys.Stream) {
				require.EqualValues(t, 0, p.Deliveries)
				require.GreaterOrEqual(t, p.Idle, time.Hour)
			}
		}
		require.Equal(t, 5, losses, "tasks, two looks at the stream, one at the inbox, the leave")
	})
	t.Run("tick", func(t *testing.T) {
		w := newWired(t, "a")
		other := newNode("b", streamtest.Lease)
		b := open(t, w.rdb, w.names, other)
		for range 3 {
			w.Add(messages.Pair{Name: "task_id", Value: "x"})
		}
		got, err := b.Read(ctx, 10, 0)
		require.NoError(t, err)
		require.Len(t, got, 3)
		_, err = w.Tick(ctx, request(0))
		require.NoError(t, err)
		w.Kill(other)
		w.Retry("r", "", 0, []messages.Pair{{Name: "task_id", Value: "r"}})
		w.Pass(time.Millisecond)
		var tick streambridge.Tick
		w.lose(script, func() (err error) { tick, err = w.Tick(ctx, request(10)); return err })
		require.Empty(t, tick.Claimed)
		require.Equal(t, 1, w.Len(w.Inbox()), "promoted once")
		w.age(streamtest.Lease, "a")
		tick, err = w.Tick(ctx, request(10))
		require.NoError(t, err)
		require.Len(t, tick.Strays, 3, "what a lost reply claimed")
	})
	t.Run("settle", func(t *testing.T) {
		for _, how := range []streambridge.Settlement{streambridge.Retry, streambridge.Complete, streambridge.Drop} {
			w := newWired(t, "a")
			held := w.fill(1)
			require.NoError(t, w.Bury(ctx, []streambridge.Burial{{Ref: held[0].Ref, Reason: messages.Reason_REASON_REJECTED, TaskID: "t0", Type: "t", Fail: true}}))
			ls, err := w.Letters(ctx, "", 1)
			require.NoError(t, err)
			w.lose(script, func() error { return w.Settle(ctx, ls[0].GetId(), how) })
			if how == streambridge.Retry {
				require.Equal(t, 1, w.Len(w.Inbox()))
			}
		}
	})
	t.Run("open", func(t *testing.T) {
		srv := redistest.Start(t)
		wire := redistest.StartProxy(t, srv.Addr())
		rdb := srv.NewClient(redistest.Via(wire))
		defer rdb.Close()
		s := redisstream.New(rdb)
		defer s.Close()
		node := newNode("a", time.Hour)
		lost := wire.LoseReply(redistest.Command("EVAL"))
		require.Error(t, s.Open(ctx, messages.Names{}, node))
		<-lost
		require.NoError(t, s.Open(ctx, messages.Names{}, node))
	})
}

func TestReadEndsWithItsContextWhenTheServerDoesNotAnswer(t *testing.T) {
	w := newWired(t, "a")
	short, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Read(short, 10, 2*time.Second)
		ended <- err
	}()
	require.Eventually(t, func() bool { return blocked(t, w.rdb) == 1 }, 10*time.Second, time.Millisecond)
	w.wire.Freeze()
	defer w.wire.Heal()
	started := time.Now()
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err)
		require.Less(t, time.Since(started), 4*time.Second)
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the read goes on")
	}
}

func blocked(t *testing.T, rdb *redis.Client) int64 {
	info, err := rdb.InfoMap(ctx, "clients").Result()
	require.NoError(t, err)
	var n int64
	fmt.Sscan(info["Clients"]["blocked_clients"], &n)
	return n
}

func TestReadEndsAtOnceWhileItWaits(t *testing.T) {
	w := newWired(t, "a")
	for range 20 {
		short, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := w.Read(short, 10, 2*time.Second)
			ended <- err
		}()
		require.Eventually(t, func() bool { return blocked(t, w.rdb) == 1 }, 10*time.Second, time.Millisecond)
		started := time.Now()
		cancel()
		require.NoError(t, <-ended)
		require.Less(t, time.Since(started), 500*time.Millisecond)
	}
}

func TestAServerThatGoesAndComesBack(t *testing.T) {
	srv := redistest.Start(t, redistest.AOF("always"))
	f := newFixture(t, srv.Client())
	s := open(t, srv.Client(), f.names, newNode("a", time.Hour))
	f.Add(messages.Pair{Name: "task_id", Value: "x"})
	got, err := s.Read(ctx, 10, 0)
	require.NoError(t, err)
	require.NoError(t, srv.Kill())
	_, err = s.Read(ctx, 10, time.Second)
	require.Error(t, err)
	_, err = s.Beat(ctx, nil)
	require.Error(t, err)
	require.NoError(t, srv.Start())
	_, err = s.Tick(ctx, request(10)) // its script is unknown to the new server
	require.NoError(t, err)
	b, err := s.Beat(ctx, []streambridge.Held{{Ref: got[0].Ref, TaskID: "x"}})
	require.NoError(t, err)
	require.Empty(t, b.Lost)
	more, err := s.Read(ctx, 10, 0)
	require.NoError(t, err)
	require.Empty(t, more)
	require.NoError(t, s.Ack(ctx, []messages.Ref{got[0].Ref}))
	require.Empty(t, f.Pending(f.keys.Stream))
}
