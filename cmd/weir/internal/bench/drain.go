package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/cmd/weir/internal/agents"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

// work is a stream of equal tasks.
type work struct {
	kind     string
	n        int
	payload  []byte
	inFlight int
}

const fillBatch = 128

// newNames are names that nothing else has.
func newNames(what string) actors.Names {
	return actors.Names{Stream: fmt.Sprintf("weir:bench:%s:%d:%d", what, os.Getpid(), time.Now().UnixNano()), Group: "bench"}
}

// fill adds the tasks with plain XADDs, as the floor's are.
func (w work) fill(ctx context.Context, rdb *redis.Client, names actors.Names) error {
	created := time.Now().UnixMilli()
	for from := 0; from < w.n; from += fillBatch {
		pipe := rdb.Pipeline()
		for i := from; i < min(from+fillBatch, w.n); i++ {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: names.Stream, Values: []any{
				"task_id", fmt.Sprintf("task-%08d", i), "type", w.kind, "payload", w.payload, "created_at", created,
			}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("add %d entries: %w", pipe.Len(), err)
		}
	}
	return nil
}

// node is a runtime that a measurement runs.
type node struct {
	rt    *supervision.Runtime
	end   context.CancelFunc
	ended chan error
}

func startNode(ctx context.Context, cfg supervision.Config) (*node, error) {
	rt, err := supervision.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	n := &node{rt: rt, end: end, ended: make(chan error, 1)}
	go func() { n.ended <- rt.Run(ctx) }()
	return n, nil
}

// stop drains it.
func (n *node) stop() error {
	n.end()
	return <-n.ended
}

// until waits until done says so; it fails when ctx, or the node, ends first.
func (n *node) until(ctx context.Context, what string, done func() bool) error {
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !done() {
		select {
		case <-look.C:
		case err := <-n.ended:
			n.ended <- err
			return errors.Join(fmt.Errorf("the node ended before %s", what), err)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}

// config is a runtime on Redis with the built-in agents and defaults, apart from what it holds at once.
func config(rdb *redis.Client, names actors.Names, inFlight int) supervision.Config {
	return supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb), Names: names,
		Agents: agents.Builtin(os.Exit, nil), InFlight: inFlight,
	}
}

// drain fills a stream, runs a node on it and returns the tasks a second: from the node's start to the last
// acknowledgement. Filling and cleaning are outside the clock.
func drain(ctx context.Context, rdb *redis.Client, w work) (rate float64, err error) {
	names := newNames(w.kind)
	defer func() { err = errors.Join(err, forget(context.WithoutCancel(ctx), rdb, names, w.n)) }()
	if err := w.fill(ctx, rdb, names); err != nil {
		return 0, err
	}
	began := time.Now()
	n, err := startNode(ctx, config(rdb, names, w.inFlight))
	if err != nil {
		return 0, err
	}
	err = n.until(ctx, "every task is acknowledged", func() bool { return n.rt.Stats().Bridge.Acked >= uint64(w.n) })
	took := time.Since(began)
	stats := n.rt.Stats()
	if err = errors.Join(err, n.stop()); err != nil {
		return 0, err
	}
	if stats.Completed != int64(w.n) {
		return 0, fmt.Errorf("%d of %d tasks completed", stats.Completed, w.n)
	}
	return float64(w.n) / took.Seconds(), nil
}

// forget removes the stream, its n tasks by their names, and what the group keeps beside them.
func forget(ctx context.Context, rdb *redis.Client, names actors.Names, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	keys, err := messages.NewKeys(names)
	if err != nil {
		return err
	}
	const chunk = 1000
	doomed := []string{names.Stream}
	unlink := func() error {
		if len(doomed) == 0 {
			return nil
		}
		err := rdb.Unlink(ctx, doomed...).Err()
		doomed = doomed[:0]
		return err
	}
	for i := range n {
		key := keys.Task(fmt.Sprintf("task-%08d", i))
		if doomed = append(doomed, key, key+":long", key+":body", key+":log"); len(doomed) >= chunk {
			if err := unlink(); err != nil {
				return fmt.Errorf("remove the tasks of a measurement: %w", err)
			}
		}
	}
	// What is left are a few dozen keys, which only a scan finds.
	it := rdb.Scan(ctx, 0, keys.Prefix+"*", chunk).Iterator()
	for it.Next(ctx) {
		if doomed = append(doomed, it.Val()); len(doomed) >= chunk {
			if err := unlink(); err != nil {
				return fmt.Errorf("remove the keys of a measurement: %w", err)
			}
		}
	}
	if err := errors.Join(it.Err(), unlink()); err != nil {
		return fmt.Errorf("remove the keys of a measurement: %w", err)
	}
	return nil
}
