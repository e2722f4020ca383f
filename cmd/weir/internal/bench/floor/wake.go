package floor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// wakePause is the gap between two entries of [Wake]: long enough for the reader to be blocked in Redis
// again, which is what light load means.
const wakePause = 2 * time.Millisecond

// Latency is a distribution of latencies.
type Latency struct {
	N   int           `json:"n"`
	P50 time.Duration `json:"p50_ns"`
	P90 time.Duration `json:"p90_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// Summarize makes a Latency of samples, which it sorts in place. Percentiles are nearest-rank: each one is
// a sample that was seen. Without samples everything is 0.
func Summarize(samples []time.Duration) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	slices.Sort(samples)
	rank := func(p float64) time.Duration {
		return samples[max(0, int(math.Ceil(p*float64(len(samples))))-1)]
	}
	return Latency{
		N: len(samples), P50: rank(0.50), P90: rank(0.90), P99: rank(0.99), Max: samples[len(samples)-1],
	}
}

// Wake measures n times how long it takes from just before an XADD until a bare XREADGROUP that was blocked
// on the stream has returned with the entry. Entries come about 2 ms apart and are acknowledged outside the
// clock. It works on a stream of its own and removes it; it holds one connection of rdb's pool for the reader.
func Wake(ctx context.Context, rdb redis.UniversalClient, n int) (lat Latency, err error) {
	if n < 1 {
		return Latency{}, fmt.Errorf("floor: n (%d) must be at least 1", n)
	}
	stream := fmt.Sprintf("weir:floor:wake:%d", time.Now().UnixNano())
	if err := rdb.XGroupCreateMkStream(ctx, stream, group, "0").Err(); err != nil {
		return Latency{}, fmt.Errorf("floor: create group on %q: %w", stream, err)
	}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		err = errors.Join(err, rdb.Unlink(cctx, stream).Err())
	}()

	type wake struct {
		at  time.Time
		err error
	}
	samples := make([]time.Duration, 0, n)
	pause := time.NewTimer(wakePause)
	defer pause.Stop()
	for range n {
		woke := make(chan wake, 1)
		go func() { // ends with its XREADGROUP, at the latest after BLOCK; always received below
			res, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: group, Consumer: "wake", Streams: []string{stream, ">"}, Count: 1, Block: 2 * time.Second,
			}).Result()
			w := wake{at: time.Now(), err: err}
			if err == nil {
				w.err = rdb.XAck(ctx, stream, group, res[0].Messages[0].ID).Err()
			}
			woke <- w
		}()

		pause.Reset(wakePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			<-woke
			return Latency{}, fmt.Errorf("floor: wake: %w", context.Cause(ctx))
		}
		sent := time.Now()
		addErr := rdb.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"task_id", "wake"}}).Err()
		w := <-woke
		if err := errors.Join(addErr, w.err); err != nil {
			return Latency{}, fmt.Errorf("floor: wake after %d samples: %w", len(samples), err)
		}
		samples = append(samples, w.at.Sub(sent))
	}
	return Summarize(samples), nil
}
