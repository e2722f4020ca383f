package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

// round is one drain of one row.
type round struct {
	Tasks    int           `json:"tasks"`
	Handled  int64         `json:"handled"` // different tasks that reached a handler
	Calls    int64         `json:"calls"`   // handler calls: more than Handled means some ran again
	Fill     time.Duration `json:"fill_ns"`
	Drain    time.Duration `json:"drain_ns"`
	PerSec   float64       `json:"tasks_per_second"`
	LoadAvg1 float64       `json:"load_average_1m"` // before the drain: how quiet the machine was; 0 is unknown
}

// runRounds runs every row once a round and notes each drain in rep.
func runRounds(ctx context.Context, cfg config, opts *redis.Options, rows []row, rep *report, progress io.Writer) error {
	admin := redis.NewClient(opts)
	defer func() { _ = admin.Close() }()
	for i := range cfg.rounds {
		for _, r := range rows {
			n := cfg.n
			if r.workload == steps {
				n = cfg.steps
			}
			p, res, err := runOne(ctx, r, env{opts: opts, concurrency: cfg.concurrency, tally: newTally(n)}, n)
			// The next one finds an empty Redis and a heap without this one's leftovers.
			err = errors.Join(err, admin.FlushDB(context.WithoutCancel(ctx)).Err())
			runtime.GC()
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", i+1, p.Name(), err)
			}
			rep.add(r, p.Name(), res)
			fmt.Fprintf(progress, "round %d/%d  %-40s %7d %s in %8s: %7.0f/s\n",
				i+1, cfg.rounds, p.Name(), n, r.workload, res.Drain.Round(time.Millisecond), res.PerSec)
		}
	}
	return nil
}

func runOne(ctx context.Context, r row, e env, n int) (peer, round, error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	p := r.open(e)
	started := time.Now()
	if err := p.Fill(ctx, n); err != nil {
		return p, round{}, fmt.Errorf("fill %d tasks: %w", n, err)
	}
	res := round{Tasks: n, Fill: time.Since(started), LoadAvg1: loadAverage()}
	if e.tally.calls.Load() != 0 {
		return p, res, errors.New("a task ran before the clock started")
	}
	var err error
	res.Drain, err = p.Drain(ctx)
	res.Handled, res.Calls = e.tally.distinct.Load(), e.tally.calls.Load()
	switch bad := e.tally.bad.Load(); {
	case err != nil:
		return p, res, fmt.Errorf("drain %d tasks: %w", n, err)
	case res.Handled != int64(n) || bad > 0:
		return p, res, fmt.Errorf("%d of %d tasks were handled, and %d that are not ours", res.Handled, n, bad)
	}
	res.PerSec = float64(n) / res.Drain.Seconds()
	return p, res, nil
}
