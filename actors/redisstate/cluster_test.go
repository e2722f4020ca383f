package redisstate

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

// On a cluster a script may touch the keys of one slot only: every key of a task's life is in its stream's.
func TestCluster(t *testing.T) {
	srv := redistest.Start(t, redistest.Args("--cluster-enabled", "yes"))
	ctx := t.Context()
	require.NoError(t, srv.Client().ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := srv.Client().ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, 30*time.Second, 10*time.Millisecond)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	w := newWorld(t, srv.Client())
	s := w.state(t, rdb)

	got, err := s.Submit(ctx, []actors.Submission{{ID: "a{x}", Work: "1", Fields: []messages.Pair{{Name: "task_id", Value: "a{x}"}, {Name: "type", Value: "noop"}}}})
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	req, b := begun(t, w, s, "a{x}")
	require.NoError(t, s.Checkpoint(ctx, actors.Checkpoint{TaskID: "a{x}", Fence: b.Fence, Step: messages.Step{Name: "s{y}", Status: messages.StepDone, Value: make([]byte, 99)}}))
	again := completion(req, b, "")
	again.Outcome, again.Charge, again.Error = messages.Outcome_OUTCOME_RETRY, messages.Charge_CHARGE_FAILURE, "no"
	require.NoError(t, s.Commit(ctx, again))
	w.Promote(t, "a{x}", "")
	in := w.TakeInbox(t, "c")
	req.Entry, req.Wake, req.Activation = in[0].Ref, 1, 2
	b, err = s.Begin(ctx, req)
	require.NoError(t, err)
	steps, err := s.Steps(ctx, "a{x}", "")
	require.NoError(t, err)
	require.Len(t, steps, 1)
	no := completion(req, b, "")
	no.Outcome, no.Reason = messages.Outcome_OUTCOME_REJECTED, messages.Reason_REASON_REJECTED
	require.NoError(t, s.Commit(ctx, no))
	rec, err := s.Task(ctx, "a{x}")
	require.NoError(t, err)
	require.Equal(t, messages.State_STATE_FAILED, rec.Units[0].State)
	require.NoError(t, s.Publish(ctx, "a{x}", actors.Chunk{Data: []byte("x")}))
	chunks, err := s.Follow(ctx, "a{x}", "", 0)
	require.NoError(t, err)
	require.Len(t, chunks, 1)

	req, b = begun(t, w, s, "family")
	c := completion(req, b, "")
	c.Spawns = []actors.Spawning{child("k{}", "k{x}", "p")}
	wait := actors.Wait{Name: "all", Kind: actors.WaitJoin, For: -1, Children: []string{"k{}"}}
	require.NoError(t, s.Commit(ctx, parking(c, wait)))
	in = w.TakeInbox(t, "c")
	require.Len(t, in, 1)
	kid := actors.BeginRequest{
		Task: &messages.Task{TaskId: "k{x}", Type: "noop", Payload: []byte("p")}, Entry: in[0].Ref, Deliveries: 1,
		Consumer: "c", Incarnation: node, Activation: 2,
	}
	b, err = s.Begin(ctx, kid)
	require.NoError(t, err)
	require.NoError(t, s.CanEmit("{"+w.keys.Stream+"}:next"))
	c = completion(kid, b, "ok")
	c.Emits = []actors.Emission{{Stream: "{" + w.keys.Stream + "}:next", Task: child("", "x{y}", "p").Task}}
	require.NoError(t, s.Commit(ctx, c))
	require.Len(t, w.Stream(t, "{"+w.keys.Stream+"}:next"), 1)
	require.Len(t, w.TakeInbox(t, "c"), 1, "the parent is woken")
	require.Error(t, s.CanEmit("elsewhere"))

	tick := time.UnixMilli(1)
	_, err = s.DeclareSchedule(ctx, actors.ScheduleDeclaration{Name: "s{z}", Definition: []byte("{}"), Hash: "h", Next: tick})
	require.NoError(t, err)
	due, err := s.DueSchedules(ctx, actors.ScheduleQuery{Limit: 1})
	require.NoError(t, err)
	require.Len(t, due.Due, 1)
	fired, err := s.FireSchedule(ctx, actors.ScheduleFire{Name: "s{z}", Hash: "h", Tick: tick, Overlap: actors.OverlapSkipped, Runs: []actors.ScheduleRun{
		{Tick: tick, Task: actors.Submission{ID: "s{z}@1", Fields: []messages.Pair{{Name: "task_id", Value: "s{z}@1"}}}},
	}})
	require.NoError(t, err)
	require.Equal(t, actors.ScheduleMoved, fired.Outcome)
	list, err := s.Schedules(ctx)
	require.NoError(t, err)
	require.Equal(t, "s{z}@1", list.Schedules[0].LastTask)
	_, err = s.RemoveSchedule(ctx, "s{z}")
	require.NoError(t, err)
}

// Large calls do not all go into one pipeline, and all of them arrive.
func TestLargeCallsAreSplit(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	payload := strings.Repeat("p", 1<<20)
	var tasks []actors.Submission
	for i := range 10 {
		tasks = append(tasks, actors.Submission{ID: strings.Repeat("x", i+1), Work: "1", Fields: []messages.Pair{{Name: "payload", Value: payload}}})
	}
	require.Equal(t, 4, fitting([]*call{{size: 1 << 20}, {size: 1 << 20}, {size: 1 << 20}, {size: 1 << 20}, {size: 1}}))
	require.Equal(t, 1, fitting([]*call{{size: 1 << 30}, {}}))
	require.Equal(t, MaxBatch, fitting(make200()))
	require.Zero(t, fitting(nil))
	got, err := s.Submit(t.Context(), tasks)
	require.NoError(t, err)
	public := w.Public(t)
	require.Len(t, public, len(tasks))
	for i, a := range got {
		require.NoError(t, a.Err)
		require.Equal(t, public[i].Ref.ID, a.EntryID)
	}
}

func make200() []*call {
	calls := make([]*call, 200)
	for i := range calls {
		calls[i] = &call{}
	}
	return calls
}
