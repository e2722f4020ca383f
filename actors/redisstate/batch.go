package redisstate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxBatch is how many calls share one pipeline at most, and how many must wait for a further one to be opened.
	MaxBatch = 128
	// MaxLanes is how many pipelines are in flight at most.
	MaxLanes = 3
	// maxBatchBytes ends a pipeline before it holds others up: 128 results of 1 MiB are not sent in one go.
	maxBatchBytes = 4 << 20
)

// ErrClosed is what calls get after Close.
var ErrClosed = errors.New("the state store is closed")

// timers bound how long a call waits, at a fraction of what a context with a deadline costs.
var timers = sync.Pool{New: func() any { return time.NewTimer(replyTimeout) }}

// replyTimeout is how long a call waits for its reply where the client has no timeouts of its own, as with a server that
// takes connections and does not answer. The call may have run; every script may be repeated.
const replyTimeout = 10 * time.Second

var errNoReply = fmt.Errorf("no reply within %s", replyTimeout)

// batcher puts the calls of all goroutines into common pipelines. A lane is a goroutine with one pipeline in flight; it
// lives while calls wait.
type batcher struct {
	rdb redis.UniversalClient

	mu      sync.Mutex
	waiting []*call
	lanes   int
	closed  bool
	running sync.WaitGroup

	flags atomic.Int32 // 0 not asked yet, else flagsNo or flagsYes
}

const (
	flagsNo  = 1
	flagsYes = 2
)

// do runs a script with the next pipeline and waits for its reply. When ctx ends first, a call that was not sent is never
// sent; one that was may have run.
func (b *batcher) do(ctx context.Context, s *script, keys []string, args ...string) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := newCall(s, keys, args)
	if !b.add(c) {
		return nil, ErrClosed
	}
	timer := timers.Get().(*time.Timer)
	timer.Reset(replyTimeout)
	defer timers.Put(timer)
	defer timer.Stop()
	select {
	case <-c.done:
		reply, err := c.reply, c.err
		c.recycle() // the lane is through with it; one that was given up is the lane's for ever
		return reply, err
	case <-ctx.Done():
		c.taken.CompareAndSwap(callWaits, callAbandoned)
		return nil, context.Cause(ctx)
	case <-timer.C:
		c.taken.CompareAndSwap(callWaits, callAbandoned)
		return nil, errNoReply
	}
}

// inOrder runs calls in a pipeline of their own: lanes overtake each other.
func (b *batcher) inOrder(ctx context.Context, calls []*call) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	b.running.Add(1)
	b.mu.Unlock()
	defer b.running.Done()
	b.send(ctx, calls)
	return nil
}

// isReply says that the server answered, with an error: others had their answers.
func isReply(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused)
}

func (b *batcher) add(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.waiting = append(b.waiting, c)
	if b.lanes == 0 || (b.lanes < MaxLanes && len(b.waiting) >= MaxBatch) {
		b.lanes++
		b.running.Go(b.lane)
	}
	return true
}

// lane sends what waits until nothing does.
func (b *batcher) lane() {
	for batch := b.take(); len(batch) > 0; batch = b.take() {
		// No caller's context: one that gives up must not take the others along. The client's timeouts bound what is sent;
		// this one also bounds the wait for a connection.
		ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
		b.send(ctx, batch)
		cancel()
	}
}

// take gives a lane its next batch; empty, and the lane is over.
func (b *batcher) take() []*call {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		n := fitting(b.waiting)
		if n == 0 {
			b.lanes--
			b.waiting = nil
			return nil
		}
		batch := make([]*call, 0, n)
		for _, c := range b.waiting[:n] {
			if c.taken.CompareAndSwap(callWaits, callSent) {
				batch = append(batch, c)
			}
		}
		b.waiting = b.waiting[n:]
		if len(batch) > 0 {
			return batch
		}
	}
}

// fitting is how many of the calls go into one pipeline: at least one, if there is one.
func fitting(calls []*call) int {
	size := 0
	for i, c := range calls {
		size += c.size
		if i == MaxBatch || i > 0 && size > maxBatchBytes {
			return i
		}
	}
	return len(calls)
}

// send runs one pipeline and gives each call its own reply or error.
func (b *batcher) send(ctx context.Context, batch []*call) {
	flags, err := b.knowsFlags(ctx)
	if err != nil {
		for _, c := range batch {
			c.finish(nil, err)
		}
		return
	}
	unknown := b.exec(ctx, batch, flags, false)
	if len(unknown) == 0 {
		return
	}
	// The server has lost its scripts, and may lose them again: each call takes its text along.
	for _, c := range b.exec(ctx, unknown, flags, true) {
		c.finish(nil, errors.New("the server does not know a script that it was just given"))
	}
}

// knowsFlags asks the server once whether it knows script flags (7.0). One that does not tell gets scripts without.
func (b *batcher) knowsFlags(ctx context.Context) (bool, error) {
	if f := b.flags.Load(); f != 0 {
		return f == flagsYes, nil
	}
	info, err := b.rdb.Info(ctx, "server").Result()
	if err != nil && !isReply(err) {
		return false, fmt.Errorf("ask the server's version: %w", err)
	}
	f := int32(flagsNo)
	if majorVersion(info) >= 7 {
		f = flagsYes
	}
	b.flags.Store(f)
	return f == flagsYes, nil
}

func majorVersion(info string) int {
	_, v, _ := strings.Cut(info, "redis_version:")
	v, _, _ = strings.Cut(v, ".")
	n, _ := strconv.Atoi(v)
	return n
}

// close waits until what was handed over has been answered. Idempotent.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}
