package supervision_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// A producer that writes to two streams within a millisecond gets one entry id twice. Without a task_id that id names both
// tasks; their effects are two all the same.
func TestEffectsOfTwoStreamsNeverShareAKey(t *testing.T) {
	client := redistest.Shared(t).Client()
	keys := make(chan string, 1)
	agents := actors.Agents{"pay": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
		return actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
			keys <- s.Key
			return s.Key, nil
		})
	})}
	for _, stream := range []string{redistest.Name(t), redistest.Name(t)} {
		b := backend{actors.Names{Stream: stream, Group: "g"}, func() (supervision.Stream, actors.State) {
			return redisstream.New(client), redisstate.New(client)
		}}
		rt, _ := start(t, b.config("a", agents))
		id, err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: "1700000000000-0", Values: []any{"type", "pay", "payload", "1"}}).Result()
		require.NoError(t, err)
		key := <-keys
		require.Equal(t, actors.Key(stream+"/"+id, "", "pay"), key)
		require.Equal(t, key, result[string](t, rt.Client().Task(id)))
	}
}
