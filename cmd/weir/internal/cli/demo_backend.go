package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/memstream"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// Where a demo keeps its tasks.
const (
	whereURL    = "redis_url"
	whereServer = "redis_server"
	whereMemory = "memory"
)

// demoBackend is what the demo runs on.
type demoBackend struct {
	where  string
	text   string // for a person
	url    string // empty in memory
	names  actors.Names
	stream supervision.Stream
	state  actors.State
	// close ends it; forget removes the demo's keys from a Redis that is not its own.
	close  func() error
	forget func(ctx context.Context) error
}

// newDemoBackend picks the Redis that the user named, else a private redis-server, else memory.
func (a *app) newDemoBackend(ctx context.Context) (*demoBackend, error) {
	if url := cmp.Or(a.conn.redis, a.std.Getenv("REDIS_URL")); url != "" {
		rdb, err := dialRedis(ctx, url)
		if err != nil {
			return nil, err
		}
		// A name of its own: the demo must not meet its own past, or anything of yours.
		b := redisBackend(rdb, "weir:demo:"+strings.ToLower(rand.Text()[:8]))
		b.where, b.url = whereURL, url
		b.text = fmt.Sprintf("your Redis at %s, stream %s", rdb.Options().Addr, b.names.Stream)
		b.close = rdb.Close
		b.forget = func(ctx context.Context) error { return forgetStream(ctx, rdb, b.names.Stream) }
		return b, nil
	}
	b, why := privateBackend(ctx)
	if b == nil {
		b = memoryBackend(why)
	}
	return b, nil
}

func redisBackend(rdb *redis.Client, stream string) *demoBackend {
	return &demoBackend{
		names:  actors.Names{Stream: stream, Group: "triage"},
		stream: redisstream.New(rdb), state: redisstate.New(rdb),
		forget: func(context.Context) error { return nil },
	}
}

// privateBackend starts a redis-server from PATH, or says why it cannot.
func privateBackend(ctx context.Context) (*demoBackend, string) {
	srv, err := redistest.Run(ctx, redistest.Config{StartTimeout: 5 * time.Second})
	switch {
	case errors.Is(err, redistest.ErrNoServer):
		return nil, "no REDIS_URL, and no redis-server on PATH"
	case err != nil:
		first, _, _ := strings.Cut(err.Error(), "\n")
		return nil, "the redis-server on PATH did not start: " + first
	}
	version, err := redisVersion(ctx, srv.Client())
	if err != nil || !usable(version) {
		_ = srv.Close()
		return nil, "the redis-server on PATH is " + cmp.Or(version, "of an unknown version") + ", and 6.2 is needed"
	}
	b := redisBackend(srv.Client(), "weir:demo")
	b.where, b.url = whereServer, srv.URL()
	b.text = fmt.Sprintf("a private redis-server %s at %s (from PATH), gone when the demo ends", version, srv.Addr())
	b.close = srv.Close
	return b, ""
}

func memoryBackend(why string) *demoBackend {
	s := memstream.New()
	return &demoBackend{
		where: whereMemory, text: "memory (" + why + ")",
		names:  actors.Names{Stream: "weir:demo", Group: "triage"},
		stream: s, state: memstate.New(s),
		close:  func() error { return nil },
		forget: func(context.Context) error { return nil },
	}
}

func redisVersion(ctx context.Context, rdb *redis.Client) (string, error) {
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return info["Server"]["redis_version"], nil
}

// usable says whether the version is at least 6.2.
func usable(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	x, _ := strconv.Atoi(parts[0])
	y, _ := strconv.Atoi(parts[1])
	return x > 6 || x == 6 && y >= 2
}

// forgetStream removes a stream and all that its groups keep beside it.
func forgetStream(ctx context.Context, rdb *redis.Client, stream string) error {
	keys := []string{stream}
	it := rdb.Scan(ctx, 0, "{"+stream+"}:*", 1000).Iterator()
	for it.Next(ctx) {
		keys = append(keys, it.Val())
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("look for what the demo left: %w", err)
	}
	if err := rdb.Unlink(ctx, keys...).Err(); err != nil {
		return fmt.Errorf("remove what the demo left: %w", err)
	}
	return nil
}
