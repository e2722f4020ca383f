package supervision_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
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
	own, theirs := ownCPU(b), redisCPU(b, client)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(context.Background()) }()
	for rt.Stats().Completed < int64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	// On a machine that others use too, these two say more than the rate.
	b.ReportMetric((ownCPU(b)-own)/float64(b.N)*1e6, "go-cpu-µs/task")
	b.ReportMetric((redisCPU(b, client)-theirs)/float64(b.N)*1e6, "redis-cpu-µs/task")
	require.NoError(b, rt.Drain(context.Background()))
	require.NoError(b, <-ended)
}

// ownCPU is the processor time of this process in seconds.
func ownCPU(b *testing.B) float64 {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// redisCPU is the server's.
func redisCPU(b *testing.B, client *redis.Client) float64 {
	info, err := client.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	total := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			require.NoError(b, err)
			total += seconds
		}
	}
	return total
}
