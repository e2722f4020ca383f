package redistest_test

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge/redistest"
)

func wired(t *testing.T, change ...func(*redis.Options)) (*redistest.Proxy, *redis.Client, *redis.Client) {
	t.Helper()
	s := redistest.Shared(t)
	p := redistest.StartProxy(t, s.Addr())
	rdb := s.NewClient(append(change, redistest.Via(p))...)
	t.Cleanup(func() { rdb.Close() })
	return p, rdb, s.Client()
}

func fired(t *testing.T, lost <-chan struct{}) {
	t.Helper()
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Fatal("no reply was lost")
	}
}

func TestProxyPassesEveryByte(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		ctx := short(t)
		_, rdb, _ := wired(t, func(o *redis.Options) { o.Protocol = protocol })
		name := redistest.Name(t)
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		all = bytes.Repeat(all, 1000) // several buffers long
		require.NoError(t, rdb.XAdd(ctx, &redis.XAddArgs{Stream: name, Values: []any{"payload", all, "empty", ""}}).Err())
		got, err := rdb.XRange(ctx, name, "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, string(all), got[0].Values["payload"])
		require.ErrorIs(t, rdb.Get(ctx, name+"-none").Err(), redis.Nil)
		require.NoError(t, rdb.ConfigGet(ctx, "max*").Err())
	}
}

func TestLoseReply(t *testing.T) {
	ctx := short(t)
	p, rdb, direct := wired(t)
	name := redistest.Name(t)
	lost := p.LoseReply(redistest.Command("incr", name))
	require.NoError(t, rdb.Incr(ctx, name+"-other").Err())
	require.Error(t, rdb.Incr(ctx, name).Err())
	fired(t, lost)
	n, err := direct.Get(ctx, name).Int()
	require.NoError(t, err)
	require.Equal(t, 1, n, "Redis ran the command")
	require.NoError(t, rdb.Incr(ctx, name).Err(), "once only")
	require.Equal(t, 1, p.Lost())
}

func TestLoseReplyOfTheNthInAPipeline(t *testing.T) {
	ctx := short(t)
	p, rdb, direct := wired(t)
	name := redistest.Name(t)
	lost := p.LoseReply(redistest.Nth(3, redistest.Command("INCR", name)))
	cmds, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 5 {
			pipe.Incr(ctx, name)
		}
		return nil
	})
	require.Error(t, err)
	fired(t, lost)
	// go-redis puts the connection's error on the answered commands too, but it has read their answers.
	for i, want := range []int64{1, 2, 0, 0, 0} {
		require.Equal(t, want, cmds[i].(*redis.IntCmd).Val(), "what came before is passed on, nothing after")
	}
	require.Eventually(t, func() bool { n, _ := direct.Get(ctx, name).Int(); return n == 5 }, 5*time.Second, time.Millisecond)
}

func TestLoseReplyOfAScript(t *testing.T) {
	ctx := short(t)
	p, rdb, direct := wired(t)
	name := redistest.Name(t)
	src := "return redis.call('INCR', KEYS[1]) -- " + name
	lost := p.LoseReply(redistest.Script(src))
	s := redis.NewScript(src)
	// EVALSHA answers NOSCRIPT, which is passed on; the EVAL that follows loses its reply.
	require.Error(t, s.Run(ctx, rdb, []string{name}).Err())
	fired(t, lost)
	n, err := direct.Get(ctx, name).Int()
	require.NoError(t, err)
	require.Equal(t, 1, n)

	lost = p.LoseReply(redistest.Script(src))
	require.Error(t, rdb.EvalSha(ctx, s.Hash(), []string{name}).Err())
	fired(t, lost)
}

func TestALossWaitsForAnotherMatchWhenItsConnectionBreaks(t *testing.T) {
	ctx := short(t)
	p, rdb, _ := wired(t)
	name := redistest.Name(t)
	seen := make(chan struct{}, 2)
	lost := p.LoseReply(func(cmd []string) bool {
		ours := redistest.Command("BLPOP", name)(cmd)
		if ours {
			seen <- struct{}{}
		}
		return ours
	})
	for range 2 {
		done := make(chan error, 1)
		go func() { done <- rdb.BLPop(ctx, 5*time.Second, name).Err() }()
		<-seen
		p.Break()
		require.Error(t, <-done)
	}
	select {
	case <-lost:
		t.Fatal("a reply that never came was counted as lost")
	default:
	}
}

func TestCutAndHeal(t *testing.T) {
	ctx := short(t)
	p, rdb, _ := wired(t)
	require.NoError(t, rdb.Ping(ctx).Err())
	p.Cut()
	require.Error(t, rdb.Ping(ctx).Err())
	require.Error(t, rdb.Ping(ctx).Err(), "new connections break too")
	p.Heal()
	require.NoError(t, rdb.Ping(ctx).Err())
}

func TestCutEndsABlockedRead(t *testing.T) {
	ctx := short(t)
	p, rdb, direct := wired(t)
	name := redistest.Name(t)
	done := make(chan error, 1)
	go func() { done <- rdb.BLPop(ctx, time.Minute, name).Err() }()
	require.Eventually(t, func() bool {
		n, _ := direct.InfoMap(ctx, "clients").Result()
		return n["Clients"]["blocked_clients"] != "0"
	}, 5*time.Second, time.Millisecond)
	p.Cut()
	require.Error(t, <-done)
}

func TestFreezeHoldsAndHealPassesOn(t *testing.T) {
	ctx := short(t)
	p, rdb, direct := wired(t)
	name := redistest.Name(t)
	require.NoError(t, rdb.Ping(ctx).Err())
	p.Freeze()
	done := make(chan error, 1)
	go func() { done <- rdb.Incr(ctx, name).Err() }()
	select {
	case err := <-done:
		t.Fatalf("an answer came through: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.ErrorIs(t, direct.Get(ctx, name).Err(), redis.Nil)
	p.Heal()
	require.NoError(t, <-done)
	require.NoError(t, direct.Get(ctx, name).Err())
}

func TestCloseEndsAFrozenProxy(t *testing.T) {
	ctx := short(t)
	p, rdb, _ := wired(t)
	require.NoError(t, rdb.Ping(ctx).Err())
	p.Freeze()
	done := make(chan error, 1)
	go func() { done <- rdb.Ping(ctx).Err() }()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.Error(t, <-done)
}

func TestDelay(t *testing.T) {
	ctx := short(t)
	p, rdb, _ := wired(t)
	require.NoError(t, rdb.Ping(ctx).Err())
	p.Delay(20 * time.Millisecond)
	from := time.Now()
	_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 100 {
			pipe.Ping(ctx)
		}
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(from), 40*time.Millisecond, "once each way")
	require.Less(t, time.Since(from), 2*time.Second, "a batch, not each command")
}

func TestNoServerBehindTheProxy(t *testing.T) {
	s := redistest.Start(t)
	p := redistest.StartProxy(t, s.Addr())
	rdb := s.NewClient(redistest.Via(p))
	defer rdb.Close()
	require.NoError(t, s.Kill())
	require.Error(t, rdb.Ping(short(t)).Err())
	require.NoError(t, s.Start())
	require.NoError(t, rdb.Ping(short(t)).Err())
}

func TestGarbageEndsTheConnection(t *testing.T) {
	p, _, _ := wired(t)
	c, err := (&net.Dialer{}).DialContext(short(t), "tcp", p.Addr())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}

func TestRESPValues(t *testing.T) {
	for _, v := range []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "$-1\r\n", "$0\r\n\r\n", "$4\r\n\r\n\r\n\r\n", "*-1\r\n", "*0\r\n", "_\r\n", "#t\r\n", ",1.5\r\n",
		"(123456789012345678901234567890\r\n", "=7\r\ntxt:abc\r\n", "!3\r\nERR\r\n", "*2\r\n*1\r\n:1\r\n$1\r\na\r\n",
		"%1\r\n+k\r\n*1\r\n:2\r\n", "~1\r\n:1\r\n", ">2\r\n+a\r\n+b\r\n", "|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n",
	} {
		got, kind, err := redistest.AppendValue([]byte("before"), bufio.NewReader(bytes.NewReader([]byte(v+"+next\r\n"))))
		require.NoError(t, err, v)
		require.Equal(t, "before"+v, string(got))
		if v[0] == '|' {
			require.Equal(t, byte('$'), kind, "the value's kind, not the attribute's")
		} else {
			require.Equal(t, v[0], kind)
		}
	}
}

func FuzzRESP(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte("%1\r\n+k\r\n|1\r\n+a\r\n+b\r\n_\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 1<<12 {
			return
		}
		got, _, err := redistest.AppendValue(nil, bufio.NewReader(bytes.NewReader(in)))
		if err == nil && !bytes.HasPrefix(in, got) {
			t.Fatalf("%q became %q", in, got)
		}
		if err == nil {
			_, _ = redistest.Words(got)
		}
	})
}

func ExampleProxy_LoseReply() {
	s, err := redistest.Run(context.Background(), redistest.Config{})
	if err != nil {
		return
	}
	defer s.Close()
	p, err := redistest.NewProxy(s.Addr())
	if err != nil {
		return
	}
	defer p.Close()
	rdb := s.NewClient(redistest.Via(p))
	defer rdb.Close()
	lost := p.LoseReply(redistest.Command("XADD"))
	_ = rdb.XAdd(context.Background(), &redis.XAddArgs{Stream: "s", Values: []string{"k", "v"}}) // an error, yet added
	<-lost
}
