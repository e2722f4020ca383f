package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

// asynqPeer is asynq as its own benchmark runs it (benchmark_test.go, BenchmarkEndToEndSimple): one server,
// one queue, a handler that returns nil; no retention, so a finished task leaves nothing behind. To its
// advantage: a connection for every worker instead of the default ten per CPU, warnings and info logs off.
// Its processor takes tasks off the queue one by one, so more concurrency does not make no-op tasks faster.
type asynqPeer struct {
	env
	n int
}

func newAsynq(e env) peer { return &asynqPeer{env: e} }

func (p *asynqPeer) Name() string { return "asynq" }

func (p *asynqPeer) Fill(ctx context.Context, n int) error {
	p.n = n
	rdb := p.client(p.concurrency)
	defer func() { _ = rdb.Close() }()
	c := asynq.NewClientFromRedisClient(rdb)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.concurrency)
	for i := range n {
		g.Go(func() error {
			_, err := c.EnqueueContext(ctx, asynq.NewTask("noop", []byte(payload(i))))
			return err
		})
	}
	return g.Wait()
}

func (p *asynqPeer) Drain(ctx context.Context) (time.Duration, error) {
	rdb := p.client(p.concurrency + 16) // workers, and the loops of the server
	defer func() { _ = rdb.Close() }()
	look := p.client(1)
	defer func() { _ = look.Close() }()
	inspector := asynq.NewInspectorFromRedisClient(look)
	srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: p.concurrency, LogLevel: asynq.ErrorLevel})

	started := time.Now()
	err := srv.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		return p.tally.handle(string(t.Payload()))
	}))
	if err != nil {
		return 0, fmt.Errorf("start the server: %w", err)
	}
	err = p.tally.wait(ctx, func(context.Context) (bool, error) {
		q, err := inspector.GetQueueInfo("default")
		if err != nil {
			return false, err
		}
		return q.ProcessedTotal >= p.n && q.Active == 0, nil
	})
	elapsed := time.Since(started)
	srv.Shutdown()
	return elapsed, err
}
