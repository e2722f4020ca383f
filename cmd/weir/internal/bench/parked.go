package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
)

// Parked is what tasks that sleep in their handlers cost their process.
type Parked struct {
	Tasks int `json:"tasks"`
	// Before is the resident memory before the node started, Peak the most while it was watched with all tasks parked.
	Before   int64         `json:"rss_before_bytes"`
	Peak     int64         `json:"rss_bytes"`
	PerTask  int64         `json:"bytes_per_task"`
	Heap     uint64        `json:"heap_bytes"`
	Routines int           `json:"goroutines"`
	Filled   time.Duration `json:"parked_after_ns"`
	Watched  time.Duration `json:"watched_ns"`
}

// parkedWatch is how long the memory is watched: longer than two beats, which copy the payloads aside.
const parkedWatch = 12 * time.Second

// RunParked parks n tasks in one node of this process and watches its memory. It should be all that the process does.
func RunParked(ctx context.Context, rdb *redis.Client, n int, progress func(string)) (p Parked, err error) {
	p.Tasks = n
	names := newNames("parked")
	defer func() { err = errors.Join(err, forget(context.WithoutCancel(ctx), rdb, names, n)) }()
	if err := (work{kind: "sleep", n: n, payload: []byte(`{"ms":3600000}`)}).fill(ctx, rdb, names); err != nil {
		return p, err
	}
	if p.Before, err = residentBytes(); err != nil {
		return p, err
	}
	var inside atomic.Int64
	cfg := config(rdb, names, n)
	cfg.Grace = -1 // they would sleep for an hour
	cfg.Agents = actors.Agents{"sleep": actors.Func((&sleeper{&inside}).handle)}
	began := time.Now()
	node, err := startNode(ctx, cfg)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, node.stop()) }()
	if err := node.until(ctx, "every task is parked", func() bool { return inside.Load() >= int64(n) }); err != nil {
		return p, fmt.Errorf("%d tasks are parked: %w", inside.Load(), err)
	}
	p.Filled = time.Since(began)
	progress(fmt.Sprintf("%d tasks parked after %.1f s", n, p.Filled.Seconds()))

	end := time.Now().Add(parkedWatch)
	var look error
	err = node.until(ctx, "the memory was watched", func() bool {
		rss, err := residentBytes()
		look, p.Peak = err, max(p.Peak, rss)
		return err != nil || time.Now().After(end)
	})
	p.Watched = parkedWatch
	p.PerTask = (p.Peak - p.Before) / int64(n)
	p.Routines = runtime.NumGoroutine()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	p.Heap = mem.HeapAlloc
	return p, errors.Join(err, look)
}

// sleeper counts those that are in its handler.
type sleeper struct{ inside *atomic.Int64 }

func (s *sleeper) handle(c *actors.Context, _ actors.Raw) (actors.None, error) {
	ctx := c.Context()
	sleep := time.NewTimer(time.Hour)
	defer sleep.Stop()
	s.inside.Add(1)
	select {
	case <-sleep.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// residentBytes is this process's resident memory.
func residentBytes() (int64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("read this process's memory: %w", err)
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("read this process's memory: %q", b)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read this process's memory: %w", err)
	}
	return pages * int64(os.Getpagesize()), nil
}
