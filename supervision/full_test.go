package supervision_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// A full server hands out entries and takes heartbeats, but nothing can begin: that node is not ready.
func TestANodeOnAFullServerIsNotReady(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client()
	b := backend{actors.Names{Stream: "s", Group: "g"}, func() (supervision.Stream, actors.State) {
		return redisstream.New(client), redisstate.New(client)
	}}
	agents := actors.Agents{"echo": actors.Func(func(*actors.Context, actors.Raw) (string, error) { return "ok", nil })}
	rt, _ := start(t, b.config("a", agents))
	// The limit and the entry come together, because a full server takes no entry.
	_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		p.XAdd(t.Context(), &redis.XAddArgs{Stream: "s", ID: "1700000000000-0", Values: []any{"type", "echo", "payload", "1"}})
		p.ConfigSet(t.Context(), "maxmemory", "1")
		return nil
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return rt.Ready() != nil }, 10*time.Second, 5*time.Millisecond)
	require.ErrorContains(t, rt.Ready(), "OOM")
	require.NoError(t, rt.Live())
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Eventually(t, func() bool { return rt.Ready() == nil && rt.Stats().Completed == 1 }, 10*time.Second, 5*time.Millisecond)
}
