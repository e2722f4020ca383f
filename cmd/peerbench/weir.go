package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

var weirRows = []row{
	{"weir", noop, newWeirNoop},
	{"weir-steps", steps, newWeirSteps},
}

// weirPeer is Weir with its defaults: one runtime, state and stream in the same Redis, payloads as they are.
type weirPeer struct {
	env
	agent string
}

var weirNames = actors.Names{Stream: "peerbench", Group: "workers", Consumer: "worker-0"}

func newWeirNoop(e env) peer { return &weirPeer{env: e, agent: "noop"} }

func newWeirSteps(e env) peer { return &weirPeer{env: e, agent: "steps"} }

func (p *weirPeer) Name() string { return "Weir" }

func (p *weirPeer) agents() actors.Agents {
	return actors.Agents{
		"noop": actors.Func(func(_ *actors.Context, m actors.Raw) (actors.None, error) {
			return nil, p.tally.handle(string(m.Bytes))
		}),
		"steps": actors.Func(func(c *actors.Context, m actors.Raw) (int, error) {
			sum := 0
			for i := range 3 {
				v, err := actors.Step(c, "step-"+strconv.Itoa(i), func(actors.StepContext) (int, error) { return i + 1, nil })
				if err != nil {
					return 0, err
				}
				sum += v
			}
			return sum, p.tally.handle(string(m.Bytes))
		}),
	}
}

func (p *weirPeer) Fill(ctx context.Context, n int) error {
	rdb := p.client(2)
	defer func() { _ = rdb.Close() }()
	state := redisstate.New(rdb)
	defer func() { _ = state.Close() }()
	c, err := actors.NewClient(state, weirNames)
	if err != nil {
		return err
	}
	const batch = 500
	for from := 0; from < n; from += batch {
		var tasks []actors.NewTask
		for i := from; i < min(from+batch, n); i++ {
			tasks = append(tasks, actors.NewTask{
				Type: p.agent, ID: fmt.Sprintf("task-%08d", i), Payload: actors.Raw{Bytes: []byte(payload(i))},
			})
		}
		if _, err := c.SubmitAll(ctx, tasks); err != nil {
			return err
		}
	}
	return nil
}

func (p *weirPeer) Drain(ctx context.Context) (elapsed time.Duration, err error) {
	rdb, look := p.client(p.concurrency), p.client(1)
	defer func() { _, _ = rdb.Close(), look.Close() }()
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb), Names: weirNames, Agents: p.agents(),
		InFlight: p.concurrency, // the same number of handlers at once as the others
	})
	if err != nil {
		return 0, err
	}
	runctx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	defer func() {
		stop()
		err = errors.Join(err, <-stopped)
	}()

	started := time.Now()
	go func() { stopped <- rt.Run(runctx) }()
	err = p.tally.wait(ctx, func(ctx context.Context) (bool, error) {
		pending, err := look.XPending(ctx, weirNames.Stream, weirNames.Group).Result()
		if errors.Is(err, redis.Nil) {
			return false, nil
		}
		return err == nil && pending.Count == 0, err
	})
	return time.Since(started), err
}
