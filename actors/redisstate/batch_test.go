package redisstate

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge/redistest"
)

// watch counts the pipelines of a client.
type watch struct {
	mu                 sync.Mutex
	flying, most       int
	pipelines, longest int
}

func (*watch) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w *watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.mu.Lock()
		w.flying++
		w.most, w.longest, w.pipelines = max(w.most, w.flying), max(w.longest, len(cmds)), w.pipelines+1
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			w.flying--
			w.mu.Unlock()
		}()
		return next(ctx, cmds)
	}
}

// Agents that ask at once share pipelines, within the limits; one that asks alone has a pipeline at once.
func TestGroupCommit(t *testing.T) {
	srv := redistest.Shared(t)
	rdb := srv.NewClient()
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	w := newWorld(t, srv.Client())
	s := w.state(t, rdb)
	begun(t, w, s, "first") // the version and the script are known from here on
	const n = 2000
	reqs := make([]actors.BeginRequest, n)
	for i := range reqs {
		reqs[i] = request(t, w, fmt.Sprint("t", i))
	}
	seen := &watch{}
	rdb.AddHook(seen)
	var ready, wg sync.WaitGroup
	ready.Add(n)
	for _, req := range reqs {
		wg.Go(func() {
			ready.Done()
			ready.Wait()
			if b, err := s.Begin(t.Context(), req); err != nil || b.Answer != actors.Run {
				t.Errorf("begin: %+v, %v", b, err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, seen.most, MaxLanes)
	require.LessOrEqual(t, seen.longest, MaxBatch)
	require.Less(t, seen.pipelines, n/4, "they shared")

	before := seen.pipelines
	for i := range 10 {
		begun(t, w, s, fmt.Sprint("alone", i))
	}
	require.Equal(t, before+10, seen.pipelines)
	require.Eventually(t, func() bool {
		s.batch.mu.Lock()
		defer s.batch.mu.Unlock()
		return s.batch.busy == 0
	}, 10*time.Second, time.Millisecond, "nothing runs while nothing waits")
}

// A lane that is told of a server before 7.0 uses no flags; one that cannot ask says so and asks again.
func TestServerVersion(t *testing.T) {
	for info, want := range map[string]int{
		"# Server\r\nredis_version:7.0.15\r\nredis_git_sha1:0\r\n": 7,
		"redis_version:6.2.0": 6, "redis_version:8.6.1\r\n": 8, "redis_version:255.255.255": 255, "": 0, "redis_version:x": 0,
	} {
		require.Equal(t, want, majorVersion(info), "%q", info)
	}
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	req := request(t, w, "a")
	require.NoError(t, srv.Kill())
	_, err := s.Begin(t.Context(), req)
	require.ErrorContains(t, err, "version")
	require.NoError(t, srv.Start())
	w.groups(t)
	req = request(t, w, "a")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		b, err := s.Begin(t.Context(), req)
		require.NoError(c, err)
		require.Equal(c, actors.Run, b.Answer)
	}, 10*time.Second, 10*time.Millisecond)
	require.EqualValues(t, flagsYes, s.batch.flags.Load())
}
