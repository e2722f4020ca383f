package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/cmd/weir/internal/bench/floor"
)

// wakePause is the gap between two entries, as in floor.Wake: the reader is blocked in Redis again.
const wakePause = 2 * time.Millisecond

// handlerStart measures n times how long it takes from just before an XADD until the task's handler begins, on a node
// that has nothing else to do.
func handlerStart(ctx context.Context, rdb *redis.Client, n int) (lat floor.Latency, err error) {
	names := newNames("latency")
	defer func() { err = errors.Join(err, forget(context.WithoutCancel(ctx), rdb, names, n)) }()
	started := make(chan time.Time, 1)
	cfg := config(rdb, names, 100)
	cfg.Agents = actors.Agents{"noop": actors.Func(func(*actors.Context, actors.Raw) (actors.None, error) {
		started <- time.Now()
		return nil, nil
	})}
	node, err := startNode(ctx, cfg)
	if err != nil {
		return floor.Latency{}, err
	}
	defer func() { err = errors.Join(err, node.stop()) }()
	if err := node.until(ctx, "the node is ready", func() bool { return node.rt.Ready() == nil }); err != nil {
		return floor.Latency{}, err
	}
	samples := make([]time.Duration, 0, n)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for i := range n {
		pause.Reset(wakePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return floor.Latency{}, context.Cause(ctx)
		}
		sent := time.Now()
		err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: names.Stream, Values: []any{
			"task_id", fmt.Sprintf("task-%08d", i), "type", "noop", "payload", "{}",
		}}).Err()
		if err != nil {
			return floor.Latency{}, fmt.Errorf("add an entry: %w", err)
		}
		select {
		case at := <-started:
			samples = append(samples, at.Sub(sent))
		case err := <-node.ended:
			node.ended <- err
			return floor.Latency{}, errors.Join(errors.New("the node ended before it ran the task"), err)
		case <-ctx.Done():
			return floor.Latency{}, context.Cause(ctx)
		}
	}
	return floor.Summarize(samples), nil
}
