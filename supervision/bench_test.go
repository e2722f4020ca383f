package supervision_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// BenchmarkNoop drains tasks of 200 bytes that do nothing, from a private redis-server: one operation is one task, from
// XREADGROUP to XACK. It says where the time goes (-cpuprofile); cmd/weir bench compares with the floor.
func BenchmarkNoop(b *testing.B) {
	client := redistest.Start(b).Client()
	names := actors.Names{Stream: "bench", Group: "g"}
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(client), State: redisstate.New(client), Names: names,
		Agents: actors.Agents{"noop": actors.Func(func(*actors.Context, actors.Raw) (actors.None, error) { return nil, nil })},
	})
	require.NoError(b, err)
	payload := make([]byte, 200)
	for at := 0; at < b.N; at += 10_000 {
		var batch []actors.NewTask
		for i := at; i < min(at+10_000, b.N); i++ {
			batch = append(batch, actors.NewTask{Type: "noop", ID: fmt.Sprint("t", i), Payload: actors.Raw{Bytes: payload}})
		}
		_, err := rt.Client().SubmitAll(b.Context(), batch)
		require.NoError(b, err)
	}
	b.ResetTimer()
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(context.Background()) }()
	for rt.Stats().Completed < int64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	require.NoError(b, rt.Drain(context.Background()))
	require.NoError(b, <-ended)
}
