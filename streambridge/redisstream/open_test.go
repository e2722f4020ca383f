package redisstream_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

var seq struct {
	sync.Mutex
	n int
}

func newNode(consumer string, lease time.Duration) messages.Node {
	seq.Lock()
	defer seq.Unlock()
	seq.n++
	return messages.Node{
		Incarnation: fmt.Sprintf("%016x", seq.n), Consumer: consumer, Types: []string{"t"}, Lease: lease, Beat: lease / 3,
		Host: "host", PID: 1,
	}
}

// open opens a node on a client that must be let in.
func open(t *testing.T, rdb redis.UniversalClient, names messages.Names, node messages.Node) *redisstream.Stream {
	t.Helper()
	s := redisstream.New(rdb)
	t.Cleanup(func() { s.Close() })
	require.NoError(t, s.Open(t.Context(), names, node))
	return s
}

func benchOpen(b *testing.B, rdb redis.UniversalClient, names messages.Names, node messages.Node) *redisstream.Stream {
	b.Helper()
	s := redisstream.New(rdb)
	require.NoError(b, s.Open(ctx, names, node))
	return s
}

// refusal is the sentence with which Open refuses.
func refusal(t *testing.T, rdb redis.UniversalClient, names messages.Names) string {
	t.Helper()
	s := redisstream.New(rdb)
	defer s.Close()
	err := s.Open(t.Context(), names, newNode("a", time.Minute))
	require.Error(t, err)
	require.NotContains(t, err.Error(), "\n")
	t.Log(err)
	return err.Error()
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	srv := redistest.Start(t, redistest.Password("secret"))
	names := messages.Names{Stream: "s", Group: "g"}

	t.Run("wrong address", func(t *testing.T) {
		rdb := srv.NewClient(func(o *redis.Options) { o.Addr = "127.0.0.1:1" })
		defer rdb.Close()
		require.Regexp(t, `^connect to Redis at 127\.0\.0\.1:1: .*refused`, refusal(t, rdb, names))
	})
	t.Run("wrong password", func(t *testing.T) {
		rdb := srv.NewClient(func(o *redis.Options) { o.Password = "guess" })
		defer rdb.Close()
		require.Contains(t, refusal(t, rdb, names), "refuses the user or the password: WRONGPASS")
	})
	t.Run("no password", func(t *testing.T) {
		rdb := srv.NewClient(func(o *redis.Options) { o.Password = "" })
		defer rdb.Close()
		require.Contains(t, refusal(t, rdb, names), "refuses the user or the password: NOAUTH")
	})
	t.Run("a key of the wrong type", func(t *testing.T) {
		rdb := srv.Client()
		keys, err := messages.NewKeys(names)
		require.NoError(t, err)
		for _, key := range []string{keys.Stream, keys.Inbox(), keys.Meta(), keys.Due(), keys.Consumer("a")} {
			require.NoError(t, rdb.Set(ctx, key, "x", 0).Err())
			require.Contains(t, refusal(t, rdb, names), "the key "+key+" holds a string and must hold a ")
			require.NoError(t, rdb.Del(ctx, key).Err())
		}
		open(t, rdb, names, newNode("a", time.Minute))
	})
	t.Run("braces", func(t *testing.T) {
		require.Contains(t, refusal(t, srv.Client(), messages.Names{Stream: "a}b{"}), `stream "a}b{"`)
	})
	t.Run("twice", func(t *testing.T) {
		node := newNode("b", time.Minute)
		s := open(t, srv.Client(), names, node)
		require.ErrorContains(t, s.Open(ctx, names, node), "open already")
	})
}

func TestOpenRefusesAnEvictingPolicy(t *testing.T) {
	srv := redistest.Start(t, redistest.MaxMemory("100mb", "allkeys-lru"))
	require.Contains(t, refusal(t, srv.Client(), messages.Names{}),
		"has maxmemory-policy allkeys-lru: maxmemory-policy must be noeviction")
}

func TestOpenWithoutTheRightToAskForMuch(t *testing.T) {
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().Do(ctx, "ACL", "SETUSER", "small", "on", ">pw", "~*", "+@all", "-@admin", "-@dangerous", "-client").Err())
	rdb := srv.NewClient(func(o *redis.Options) { o.Username, o.Password = "small", "pw" })
	defer rdb.Close()
	s := open(t, rdb, messages.Names{}, newNode("a", time.Minute))
	// It cannot be unblocked, so it blocks for a short time.
	started := time.Now()
	got, err := s.Read(ctx, 1, 2*time.Second)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Less(t, time.Since(started), 1500*time.Millisecond)
}

// oldServer speaks just enough of the protocol to be asked for its version.
func oldServer(t *testing.T, version string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					var n int
					if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
						return
					}
					var words []string
					for range n {
						var size int
						if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
							return
						}
						b := make([]byte, size+2)
						if _, err := readFull(r, b); err != nil {
							return
						}
						words = append(words, string(b[:size]))
					}
					if strings.EqualFold(words[0], "info") {
						body := "# Server\r\nredis_version:" + version + "\r\n"
						fmt.Fprintf(c, "$%d\r\n%s\r\n", len(body), body)
					} else {
						fmt.Fprint(c, "-ERR unknown command\r\n")
					}
				}
			})
		}
	})
	return ln.Addr().String()
}

func readFull(r *bufio.Reader, b []byte) (int, error) {
	for i := range b {
		c, err := r.ReadByte()
		if err != nil {
			return i, err
		}
		b[i] = c
	}
	return len(b), nil
}

func TestOpenRefusesAnOldServer(t *testing.T) {
	addr := oldServer(t, "6.0.16")
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DisableIdentity: true})
	defer rdb.Close()
	require.Equal(t, "Redis at "+addr+" has version 6.0.16: Redis 6.2 or newer is needed", refusal(t, rdb, messages.Names{}))
}

func TestANameWhoseConnectionIsGoneIsTakenAtOnce(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	names := messages.Names{Stream: redistest.Name(t), Group: "g"}
	old := open(t, rdb, names, newNode("a", time.Hour))
	require.NoError(t, old.Close()) // as the kernel does for a process that was killed
	started := time.Now()
	young := open(t, rdb, names, newNode("a", time.Hour))
	require.Less(t, time.Since(started), 2*time.Second)
	b, err := old.Beat(ctx, nil)
	require.NoError(t, err)
	require.True(t, b.Usurped)
	_, err = old.Tick(ctx, streambridge.TickRequest{})
	require.ErrorIs(t, err, streambridge.ErrUsurped)
	b, err = young.Beat(ctx, nil)
	require.NoError(t, err)
	require.False(t, b.Usurped)
}

func TestANameWhoseBeatStandsStillIsTakenAfterALease(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	names := messages.Names{Stream: redistest.Name(t), Group: "g"}
	open(t, rdb, names, newNode("a", 400*time.Millisecond))
	open(t, rdb, names, newNode("a", 400*time.Millisecond))
}

func TestOpenHeedsItsContextWhileItWaits(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	names := messages.Names{Stream: redistest.Name(t), Group: "g"}
	open(t, rdb, names, newNode("a", time.Hour))
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	s := redisstream.New(rdb)
	defer s.Close()
	err := s.Open(short, names, newNode("a", time.Hour))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, streambridge.ErrConsumerTaken)
}
