package redisstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// replyTimeout is how long a call waits for its reply where the client has no timeouts of its own, as with a server that
// takes connections and does not answer. The call may have run; every script may be repeated.
const replyTimeout = 10 * time.Second

// sweepEvery is how often it is looked whose caller has given up, and who waits too long.
const sweepEvery = 50 * time.Millisecond

var errNoReply = fmt.Errorf("no reply within %s", replyTimeout)

// batcher puts the calls of all goroutines into common pipelines. Its lanes are goroutines that live while calls wait.
type batcher struct {
	rdb redis.UniversalClient

	mu      sync.Mutex
	waiting []*call
	lanes   [MaxLanes]lane
	busy    int         // lanes
	sweeper *time.Timer // runs while a lane is busy
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
//
// A plain receive, and a sweep now and then for those that wait in vain: a select on ctx and a timer too costs each call
// as much as its share of the pipeline.
func (b *batcher) do(ctx context.Context, s *script, keys []string, args ...string) (any, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := newCall(s, keys, args)
	c.ctx = ctx
	if !b.add(c) {
		return nil, ErrClosed
	}
	<-c.done
	reply, err := c.reply, c.err
	if !c.swept {
		c.recycle() // the lane is through with it; one that was swept is the lane's for ever
	}
	return reply, err
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
	slices.SortStableFunc(calls, (*call).like)
	(&lane{batcher: b}).send(ctx, calls)
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
	if b.busy == 0 || (b.busy < MaxLanes && len(b.waiting) >= MaxBatch) {
		b.open()
	}
	return true
}

// open lets a lane run that rests; the caller holds b.mu.
func (b *batcher) open() {
	l := &b.lanes[0]
	for i := 1; l.busy; i++ {
		l = &b.lanes[i]
	}
	l.batcher, l.busy = b, true
	if b.busy++; b.busy == 1 {
		if b.sweeper == nil {
			b.sweeper = time.AfterFunc(sweepEvery, b.sweep)
		}
		b.sweeper.Reset(sweepEvery)
	}
	b.running.Go(l.run)
}

// sweep answers the calls that wait in vain.
func (b *batcher) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy == 0 {
		return
	}
	b.waiting = slices.DeleteFunc(b.waiting, (*call).sweep)
	for i := range b.lanes {
		for _, c := range b.lanes[i].flying {
			c.sweep()
		}
	}
	b.sweeper.Reset(sweepEvery)
}

// lane has one pipeline in flight.
type lane struct {
	*batcher
	args []any // of the commands in flight

	// Under batcher.mu:
	busy   bool
	flying []*call // taken, and not answered yet
}

// run sends what waits until nothing does.
func (l *lane) run() {
	for batch := l.take(); len(batch) > 0; batch = l.take() {
		// No caller's context: one that gives up must not take the others along. The client's timeouts bound what is sent;
		// this one also bounds the wait for a connection.
		ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
		l.send(ctx, batch)
		cancel()
	}
}

// take gives the lane its next batch; empty, and the lane rests.
func (l *lane) take() []*call {
	b := l.batcher
	b.mu.Lock()
	defer b.mu.Unlock()
	n := fitting(b.waiting)
	if n == 0 {
		l.busy, b.waiting = false, nil
		if b.busy--; b.busy == 0 {
			b.sweeper.Stop()
		}
		return nil
	}
	batch := slices.Clone(b.waiting[:n])
	slices.SortStableFunc(batch, (*call).like) // those of one script share a run of it
	b.waiting, l.flying = b.waiting[n:], batch
	return batch
}

// fly shows the sweeper the calls in flight; nil takes them back.
func (l *lane) fly(calls []*call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flying = calls
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
func (l *lane) send(ctx context.Context, batch []*call) {
	flags, err := l.knowsFlags(ctx)
	if err != nil {
		l.fly(nil)
		for _, c := range batch {
			c.finish(nil, err)
		}
		return
	}
	unknown := l.exec(ctx, batch, flags, false)
	if len(unknown) == 0 {
		return
	}
	// The server has lost its scripts, and may lose them again: each call takes its text along.
	l.fly(unknown)
	for _, c := range l.exec(ctx, unknown, flags, true) {
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
