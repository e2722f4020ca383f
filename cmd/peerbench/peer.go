package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// peer is one library that does the work. A peer serves one round: Fill, then Drain, then it is thrown away.
type peer interface {
	// Name is what the table says, with whatever sets this row apart.
	Name() string
	// Fill puts n tasks into Redis, outside the clock.
	Fill(ctx context.Context, n int) error
	// Drain handles them all and says how long it took, from before the library's workers start until the
	// last task is handled and settled. It returns with everything it started stopped.
	Drain(ctx context.Context) (time.Duration, error)
}

// env is what a peer gets.
type env struct {
	opts        *redis.Options // to be copied
	concurrency int
	tally       *tally
}

// client makes a client with connections enough that no worker waits for one.
func (e env) client(conns int) *redis.Client {
	opts := *e.opts
	opts.PoolSize = conns
	return redis.NewClient(&opts)
}

// row is a line of the table.
type row struct {
	name     string
	workload string
	open     func(env) peer
}

const (
	noop  = "no-op tasks"
	steps = "three-step tasks"
)

// catalogue is every row in the order in which a round runs them.
var catalogue = slices.Concat(
	[]row{
		{"asynq", noop, newAsynq},
		{"watermill", noop, newWatermill},
		{"go-workflows", steps, newWorkflows},
	},
	weirRows,
)

const payloadSize = 200

// payload is the task's number in front of padding, payloadSize bytes together.
func payload(i int) string {
	s := fmt.Sprintf("%08d ", i)
	return s + strings.Repeat("x", payloadSize-len(s))
}

// tally counts what the handlers of one drain see.
type tally struct {
	seen     []atomic.Uint32 // calls by task
	calls    atomic.Int64
	distinct atomic.Int64
	bad      atomic.Int64 // payloads that are not one of ours
	all      chan struct{}
}

func newTally(n int) *tally { return &tally{seen: make([]atomic.Uint32, n), all: make(chan struct{})} }

// handle is the body of every no-op handler.
func (t *tally) handle(payload string) error {
	t.calls.Add(1)
	number, _, _ := strings.Cut(payload, " ")
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(t.seen) || len(payload) != payloadSize {
		t.bad.Add(1)
		return fmt.Errorf("a payload of %d bytes that is no task's of this drain", len(payload))
	}
	if t.seen[i].Add(1) == 1 && int(t.distinct.Add(1)) == len(t.seen) {
		close(t.all)
	}
	return nil
}

// wait ends when every task was handled and settled says that the library has nothing left to write.
func (t *tally) wait(ctx context.Context, settled func(context.Context) (bool, error)) error {
	select {
	case <-t.all:
	case <-ctx.Done():
		return fmt.Errorf("%d of %d tasks handled: %w", t.distinct.Load(), len(t.seen), context.Cause(ctx))
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := settled(ctx)
		if err != nil {
			return fmt.Errorf("look whether everything is settled: %w", err)
		}
		if ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("all %d tasks handled, but not settled: %w", len(t.seen), context.Cause(ctx))
		}
	}
}
