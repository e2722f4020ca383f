package streambridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

// TestOnRedis runs two bridges on a real server: one dies with all it holds, the other takes everything over a lease
// later; an outage in the middle; then a drain that leaves the pending list empty.
func TestOnRedis(t *testing.T) {
	srv := redistest.Start(t, redistest.AOF("always"))
	rdb, ctx := srv.Client(), t.Context()
	names := messages.Names{Stream: redistest.Name(t)}.WithDefaults()
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 2000 {
			p.XAdd(ctx, &redis.XAddArgs{Stream: names.Stream, Values: []any{"task_id", fmt.Sprint(i), "type", "noop", "payload", "{}"}})
		}
		return nil
	})
	require.NoError(t, err)

	var ended sync.Map
	var answering atomic.Bool
	system := actor.NewActorSystem(
		actor.WithDeadLetterThrottleInterval(10*time.Millisecond),
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
	)
	agents := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(*messages.Assign); ok && answering.Load() {
			ended.Store(m.Task.TaskId, true)
			ctx.Respond(&messages.Done{TaskId: m.Task.TaskId, Entry: m.Entry, Verdict: messages.Verdict_VERDICT_ACK})
		}
	}))
	defer system.Root.Stop(agents)
	node := func(name string) *streambridge.Bridge {
		b, err := streambridge.New(streambridge.Config{
			Stream: redisstream.New(srv.Client()), Names: names, Lease: 2 * time.Second, Beat: 500 * time.Millisecond, Tick: 200 * time.Millisecond,
			Node: messages.Node{Incarnation: "0123456789abcde" + name, Consumer: name, Types: []string{"noop"}},
		})
		require.NoError(t, err)
		require.NoError(t, b.Start(ctx, system, agents))
		t.Cleanup(b.Stop)
		return b
	}
	eventually := func(ok func() bool, what string) {
		t.Helper()
		require.Eventually(t, ok, 30*time.Second, 5*time.Millisecond, what)
	}

	a := node("a")
	eventually(func() bool { return a.Stats().Running >= 1000 }, "a full window")
	a.Stop()
	answering.Store(true)
	b := node("b")
	eventually(func() bool { return b.Stats().Acked >= 1000 }, "what was new")
	require.NoError(t, srv.Restart())
	eventually(func() bool {
		sum, err := rdb.XPending(ctx, names.Stream, names.Group).Result()
		return err == nil && sum.Count == 0 && b.Stats().Acked >= 2000
	}, "what the dead node held")
	assert.GreaterOrEqual(t, b.Stats().Claimed, uint64(1000))
	n := 0
	ended.Range(func(any, any) bool { n++; return true })
	assert.Equal(t, 2000, n)
	eventually(func() bool { return b.Health().Ready(time.Now()) == nil }, "ready after the restart")
	require.NoError(t, b.Drain(context.WithoutCancel(ctx)))
	assert.Zero(t, b.Stats().InFlight)
	exists, err := rdb.XInfoConsumers(ctx, names.Stream, names.Group).Result()
	require.NoError(t, err)
	for _, c := range exists {
		assert.Zero(t, c.Pending, c.Name)
	}
}
