package redisstate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

const benchNode = "00000000000000aa"

// seed fills the public stream with n no-op tasks of 200 bytes and hands them out.
func seed(b *testing.B, w *world, n int) []actors.BeginRequest {
	b.Helper()
	w.Live(b, benchNode, true)
	reqs := make([]actors.BeginRequest, 0, n)
	payload := []byte(strings.Repeat("p", 200))
	for len(reqs) < n {
		chunk := min(1000, n-len(reqs))
		pipe := w.rdb.Pipeline()
		ids := make([]*redis.StringCmd, chunk)
		for i := range ids {
			ids[i] = pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: w.keys.Stream, Values: []any{
				"task_id", fmt.Sprintf("task-%08d", len(reqs)+i), "type", "noop", "payload", payload,
			}})
		}
		read := pipe.XReadGroup(b.Context(), &redis.XReadGroupArgs{
			Group: w.names.Group, Consumer: "c", Streams: []string{w.keys.Stream, ">"}, Count: int64(chunk), Block: -1,
		})
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
		require.Len(b, read.Val()[0].Messages, chunk)
		for i := range ids {
			reqs = append(reqs, actors.BeginRequest{
				Task:  &messages.Task{TaskId: fmt.Sprintf("task-%08d", len(reqs)), Type: "noop", Payload: payload},
				Entry: messages.Ref{Stream: w.keys.Stream, ID: ids[i].Val()}, Deliveries: 1, MaxDeliveries: 3,
				Consumer: "c", Incarnation: benchNode, Activation: uint64(len(reqs) + 1),
			})
		}
	}
	return reqs
}

// BenchmarkBeginCommit is the state's part of a no-op task: Begin and Commit through the group commit, asked by as many
// goroutines as agents run at once. XADD, XREADGROUP and XACK are not in it.
func BenchmarkBeginCommit(b *testing.B) {
	for _, agents := range []int{1, 16, 256, 1000} {
		b.Run(fmt.Sprint("agents-", agents), func(b *testing.B) {
			srv := redistest.Start(b)
			w := newWorld(b, srv.Client())
			s := w.state(b, srv.Client())
			reqs := seed(b, w, b.N)
			ctx := context.Background()
			var next atomic.Int64
			var wg sync.WaitGroup
			done := measure(b, w)
			for range agents {
				wg.Go(func() {
					for i := next.Add(1) - 1; i < int64(len(reqs)); i = next.Add(1) - 1 {
						req := reqs[i]
						begun, err := s.Begin(ctx, req)
						if err != nil || begun.Answer != actors.Run {
							b.Errorf("begin: %+v, %v", begun, err)
							return
						}
						err = s.Commit(ctx, actors.Commit{
							TaskID: req.Task.GetTaskId(), Type: "noop", Fence: begun.Fence, Entry: req.Entry,
							Outcome: messages.Outcome_OUTCOME_COMPLETED, TTL: markerTTL,
						})
						if err != nil {
							b.Errorf("commit: %v", err)
							return
						}
					}
				})
			}
			wg.Wait()
			done()
		})
	}
}

// BenchmarkThreeSteps is a task with three checkpoints of 200 bytes and a result of 200 bytes.
func BenchmarkThreeSteps(b *testing.B) {
	srv := redistest.Start(b)
	w := newWorld(b, srv.Client())
	s := w.state(b, srv.Client())
	reqs := seed(b, w, b.N)
	ctx := context.Background()
	var next atomic.Int64
	var wg sync.WaitGroup
	done := measure(b, w)
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(reqs)); i = next.Add(1) - 1 {
				req := reqs[i]
				begun, err := s.Begin(ctx, req)
				for _, name := range []string{"plan", "act", "check"} {
					if err == nil {
						err = s.Checkpoint(ctx, actors.Checkpoint{TaskID: req.Task.GetTaskId(), Fence: begun.Fence, Step: messages.Step{
							Name: name, Status: messages.StepDone, Attempts: 1, BeganMS: 1764000000000, EndedMS: 1764000000001, Value: req.Task.GetPayload(),
						}})
					}
				}
				if err == nil {
					err = s.Commit(ctx, actors.Commit{
						TaskID: req.Task.GetTaskId(), Type: "noop", Fence: begun.Fence, Entry: req.Entry,
						Outcome: messages.Outcome_OUTCOME_COMPLETED, Result: req.Task.GetPayload(), TTL: markerTTL,
					})
				}
				if err != nil {
					b.Errorf("task %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	done()
}

// BenchmarkSubmit is one call for all tasks.
func BenchmarkSubmit(b *testing.B) {
	srv := redistest.Start(b)
	w := newWorld(b, srv.Client())
	s := w.state(b, srv.Client())
	payload := strings.Repeat("p", 200)
	tasks := make([]actors.Submission, b.N)
	for i := range tasks {
		id := fmt.Sprintf("task-%08d", i)
		tasks[i] = actors.Submission{ID: id, Work: "0123456789abcdef", Fields: []messages.Pair{
			{Name: "task_id", Value: id}, {Name: "type", Value: "noop"}, {Name: "payload", Value: payload},
		}}
	}
	b.ReportAllocs()
	b.ResetTimer()
	got, err := s.Submit(context.Background(), tasks)
	require.NoError(b, err)
	require.Len(b, got, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkRawScripts is the same two scripts in plain pipelines of 128, a call a run, without a State.
func BenchmarkRawScripts(b *testing.B) {
	srv := redistest.Start(b)
	w := newWorld(b, srv.Client())
	reqs := seed(b, w, b.N)
	ctx := context.Background()
	begin, commit := beginScript.flagged, commitScript.flagged
	for _, t := range []text{begin, commit} {
		require.NoError(b, w.rdb.ScriptLoad(ctx, t.source).Err())
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	done := measure(b, w)
	for range 2 {
		wg.Go(func() {
			for from := next.Add(MaxBatch) - MaxBatch; from < int64(len(reqs)); from = next.Add(MaxBatch) - MaxBatch {
				part := reqs[from:min(from+MaxBatch, int64(len(reqs)))]
				for _, sc := range []text{begin, commit} {
					pipe := w.rdb.Pipeline()
					for _, r := range part {
						keys := []string{w.keys.Task(r.Task.GetTaskId()), r.Entry.Stream}
						me := run(r.Incarnation, r.Activation)
						if sc == begin {
							pipe.EvalSha(ctx, sc.sha, append(keys, w.keys.Node(r.Incarnation)), 1, 8, w.keys.Prefix, w.names.Group, r.Entry.ID,
								"c", r.Incarnation, me, messages.WorkHash("noop", r.Task.GetPayload()), "noop")
						} else {
							pipe.EvalSha(ctx, sc.sha, keys, 1, 7, w.keys.Prefix, me, "1", r.Entry.ID, "604800000", "", "")
						}
					}
					if _, err := pipe.Exec(ctx); err != nil {
						b.Errorf("pipeline: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	done()
}

// measure starts the clock; its return reports tasks a second, and what a task costs Redis: that number does not depend
// on who else uses the machine.
func measure(b *testing.B, w *world) (done func()) {
	b.Helper()
	cpu := func() float64 {
		info, err := w.rdb.InfoMap(b.Context(), "cpu").Result()
		require.NoError(b, err)
		var user, sys float64
		_, err = fmt.Sscan(info["CPU"]["used_cpu_user_main_thread"]+" "+info["CPU"]["used_cpu_sys_main_thread"], &user, &sys)
		require.NoError(b, err)
		return user + sys
	}
	before := cpu()
	b.ReportAllocs()
	b.ResetTimer()
	return func() {
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		b.ReportMetric((cpu()-before)*1e6/float64(b.N), "redis-µs/task")
		size, err := w.rdb.MemoryUsage(b.Context(), w.keys.Task("task-00000000")).Result()
		require.NoError(b, err)
		b.ReportMetric(float64(size), "bytes/task")
	}
}
