package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	wfredis "github.com/cschleiden/go-workflows/backend/redis"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
	"golang.org/x/sync/errgroup"
)

// workflowsPeer is go-workflows on its Redis backend: a workflow of three activities, one after the other.
// To its advantage: one worker process, a cache that holds every workflow of the drain (with the default of 128
// each continuation would replay its history from Redis, since all were started before the clock), no metrics,
// tracing or logs, a connection for every poller and task, and as many pollers as were fastest in a trial.
type workflowsPeer struct {
	env
	n int
}

// workflowPollers of each kind.
const workflowPollers = 16

// blockTimeout is how long a poller's read blocks, and so how long stopping takes; outside the clock.
const blockTimeout = 500 * time.Millisecond

func newWorkflows(e env) peer { return &workflowsPeer{env: e} }

func (p *workflowsPeer) Name() string { return "go-workflows (Redis backend)" }

// open makes a backend; its Close closes its client.
func (p *workflowsPeer) open() (backend.Backend, error) {
	return wfredis.NewRedisBackend(p.client(2*p.concurrency+2*workflowPollers+8),
		wfredis.WithBlockTimeout(blockTimeout),
		wfredis.WithBackendOptions(backend.WithLogger(slog.New(slog.DiscardHandler))))
}

func (p *workflowsPeer) Fill(ctx context.Context, n int) error {
	p.n = n
	b, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	c := client.New(b)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.concurrency)
	for i := range n {
		g.Go(func() error {
			id := client.WorkflowInstanceOptions{InstanceID: fmt.Sprintf("task-%08d", i)}
			_, err := c.CreateWorkflowInstance(ctx, id, p.threeSteps, payload(i))
			return err
		})
	}
	return g.Wait()
}

// threeSteps is the workflow. Its code runs again on a replay, so only the run that goes on is counted.
func (p *workflowsPeer) threeSteps(ctx workflow.Context, payload string) (int, error) {
	sum := 0
	for i := range 3 {
		v, err := workflow.ExecuteActivity[int](ctx, workflow.DefaultActivityOptions, step, i).Get(ctx)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	if workflow.Replaying(ctx) {
		return sum, nil
	}
	return sum, p.tally.handle(payload)
}

func step(_ context.Context, i int) (int, error) { return i + 1, nil }

func (p *workflowsPeer) Drain(ctx context.Context) (time.Duration, error) {
	b, err := p.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = b.Close() }()
	opts := worker.DefaultOptions
	opts.WorkflowPollers, opts.ActivityPollers = workflowPollers, workflowPollers
	opts.MaxParallelWorkflowTasks, opts.MaxParallelActivityTasks = p.concurrency, p.concurrency
	opts.WorkflowPollingInterval, opts.ActivityPollingInterval = 0, 0 // as in its own bench: Redis reads block
	opts.WorkflowExecutorCacheSize, opts.WorkflowExecutorCacheTTL = max(p.n, 128), drainTimeout
	w := worker.New(b, &opts)
	if err := w.RegisterWorkflow(p.threeSteps); err != nil {
		return 0, err
	}
	if err := w.RegisterActivity(step); err != nil {
		return 0, err
	}

	wctx, cancel := context.WithCancel(ctx)
	started := time.Now()
	if err := w.Start(wctx); err != nil {
		cancel()
		return 0, fmt.Errorf("start the worker: %w", err)
	}
	err = p.tally.wait(ctx, func(ctx context.Context) (bool, error) {
		s, err := b.GetStats(ctx)
		return err == nil && s.ActiveWorkflowInstances == 0, err
	})
	elapsed := time.Since(started)
	cancel()
	if stopErr := w.WaitForCompletion(); err == nil && stopErr != nil {
		err = fmt.Errorf("stop the worker: %w", stopErr)
	}
	return elapsed, err
}
