package redisstate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/statetest"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

const node = "00000000000000aa"

// begun delivers a task to the node's consumer and begins it.
func begun(t *testing.T, w *world, s *State, id string) (actors.BeginRequest, actors.Begun) {
	t.Helper()
	req := request(t, w, id)
	b, err := s.Begin(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, actors.Run, b.Answer)
	return req, b
}

func request(t *testing.T, w *world, id string) actors.BeginRequest {
	t.Helper()
	w.Live(t, node, true)
	ref := w.Deliver(t, false, "c", []messages.Pair{{Name: "task_id", Value: id}, {Name: "type", Value: "noop"}, {Name: "payload", Value: "p"}})
	return actors.BeginRequest{
		Task: &messages.Task{TaskId: id, Type: "noop", Payload: []byte("p")}, Entry: ref, Deliveries: 1,
		Consumer: "c", Incarnation: node, Activation: 1,
	}
}

func completion(req actors.BeginRequest, b actors.Begun, result string) actors.Commit {
	return actors.Commit{
		TaskID: req.Task.GetTaskId(), Type: "noop", Fence: b.Fence, Entry: req.Entry,
		Outcome: messages.Outcome_OUTCOME_COMPLETED, Result: []byte(result), TTL: time.Hour, DeadTTL: time.Hour,
	}
}

// Servers before 7.0 get the scripts without flags; what they do must not depend on it.
func TestConformanceWithoutFlags(t *testing.T) {
	srv := redistest.Start(t)
	statetest.Run(t, func(t *testing.T) statetest.Fixture {
		w := newWorld(t, srv.Client())
		s := w.state(t, srv.Client())
		s.batch.flags.Store(flagsNo)
		return statetest.Fixture{State: s, Other: s, Names: w.names, World: w}
	})
}

// The reply of each script is lost once: the call fails, the caller makes it again, and nothing is charged, added or
// counted twice.
func TestLostReplies(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	wire := redistest.StartProxy(t, srv.Addr())
	rdb := srv.NewClient(redistest.Via(wire))
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := w.state(t, rdb)
	ctx := t.Context()

	// twice loses the first reply of a script that changed something and makes the call until it succeeds.
	twice := func(sc *script, call func() error) {
		t.Helper()
		lost := wire.LoseReply(func(cmd []string) bool {
			return redistest.Script(sc.plain.source)(cmd) || redistest.Script(sc.flagged.source)(cmd)
		})
		failures := 0
		for call() != nil {
			failures++
			require.Less(t, failures, 10)
		}
		<-lost
		require.Positive(t, failures, "the first reply was lost")
	}
	retry := func(f func(context.Context) error) func() error {
		return func() error { return f(ctx) }
	}

	req := request(t, w, "a")
	var b actors.Begun
	twice(beginScript, retry(func(ctx context.Context) (err error) { b, err = s.Begin(ctx, req); return err }))
	require.Equal(t, actors.Run, b.Answer)
	require.EqualValues(t, 1, b.Fence.Number)
	cp := actors.Checkpoint{TaskID: "a", Fence: b.Fence, Step: messages.Step{Name: "s", Status: messages.StepDone, Value: make([]byte, 99)}}
	twice(checkpointScript, retry(func(ctx context.Context) error { return s.Checkpoint(ctx, cp) }))
	twice(stepsScript, retry(func(ctx context.Context) error { _, err := s.Steps(ctx, "a", ""); return err }))
	again := completion(req, b, "")
	again.Outcome, again.Charge = messages.Outcome_OUTCOME_RETRY, messages.Charge_CHARGE_FAILURE
	twice(commitScript, retry(func(ctx context.Context) error { return s.Commit(ctx, again) }))
	rec, err := s.Task(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, actors.Ledger{Failures: 1}, rec.Units[0].Ledger)
	require.Len(t, rec.Log, 1)
	require.Len(t, w.Due(t), 1)

	req, b = begun(t, w, s, "b")
	twice(commitScript, retry(func(ctx context.Context) error { return s.Commit(ctx, completion(req, b, "ok")) }))
	require.EqualValues(t, 1, w.Count(t, "succeeded"))
	req, b = begun(t, w, s, "c")
	no := completion(req, b, "")
	no.Outcome, no.Reason = messages.Outcome_OUTCOME_REJECTED, messages.Reason_REASON_REJECTED
	twice(commitScript, retry(func(ctx context.Context) error { return s.Commit(ctx, no) }))
	require.Len(t, w.Dead(t), 1)
	require.EqualValues(t, 1, w.Count(t, "failed"))

	req, b = begun(t, w, s, "family")
	family := completion(req, b, "")
	family.Spawns = []actors.Spawning{child("k", "family/k", "p")}
	wait := actors.Wait{Name: "all", Kind: actors.WaitJoin, For: -1, Children: []string{"k"}}
	twice(commitScript, retry(func(ctx context.Context) error { return s.Commit(ctx, parking(family, wait)) }))
	in := w.TakeInbox(t, "c")
	require.Len(t, in, 1, "one child")
	kid := actors.BeginRequest{
		Task: &messages.Task{TaskId: "family/k", Type: "noop", Payload: []byte("p")}, Entry: in[0].Ref, Deliveries: 1,
		Consumer: "c", Incarnation: node, Activation: 2,
	}
	b, err = s.Begin(ctx, kid)
	require.NoError(t, err)
	twice(commitScript, retry(func(ctx context.Context) error { return s.Commit(ctx, completion(kid, b, "ok")) }))
	in = w.TakeInbox(t, "c")
	require.Len(t, in, 1, "the parent is woken once")
	req.Entry, req.Wake, req.Activation = in[0].Ref, 1, 3
	b, err = s.Begin(ctx, req)
	require.NoError(t, err)
	emits := completion(req, b, "ok")
	emits.Emits = []actors.Emission{{Stream: w.keys.Stream + ":next", Task: child("", "x", "p").Task}}
	twice(commitScript, retry(func(ctx context.Context) error { return s.Commit(ctx, emits) }))
	require.Len(t, w.Stream(t, w.keys.Stream+":next"), 1)

	before := len(w.Public(t))
	tasks := []actors.Submission{
		{ID: "x", Work: "1", Fields: []messages.Pair{{Name: "task_id", Value: "x"}}},
		{ID: "y", Work: "1", Fields: []messages.Pair{{Name: "task_id", Value: "y"}}},
	}
	var got []actors.Submitted
	twice(submitScript, retry(func(ctx context.Context) (err error) { got, err = s.Submit(ctx, tasks); return err }))
	require.Len(t, w.Public(t), before+2)
	require.True(t, got[0].Known)
	require.NoError(t, got[0].Err)

	tick := time.UnixMilli(1)
	d := actors.ScheduleDeclaration{Name: "s", Definition: []byte("{}"), Hash: "h", Next: tick}
	twice(scheduleDeclareScript, retry(func(ctx context.Context) error { _, err := s.DeclareSchedule(ctx, d); return err }))
	fire := actors.ScheduleFire{
		Name: "s", Hash: "h", Tick: tick, Next: time.UnixMilli(2), Incarnation: node, Missed: 1,
		Runs: []actors.ScheduleRun{{Tick: tick, Task: actors.Submission{ID: "z", Fields: []messages.Pair{{Name: "task_id", Value: "z"}}}}},
	}
	var fired actors.ScheduleFired
	twice(scheduleFireScript, retry(func(ctx context.Context) (err error) { fired, err = s.FireSchedule(ctx, fire); return err }))
	require.Equal(t, actors.ScheduleMoved, fired.Outcome)
	require.Len(t, w.Public(t), before+3)
	list, err := s.Schedules(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, list.Schedules[0].Fired)
	require.EqualValues(t, 1, list.Schedules[0].Missed)
	twice(scheduleSetScript, retry(func(ctx context.Context) error { return s.PauseSchedule(ctx, "s") }))
	twice(scheduleSetScript, retry(func(ctx context.Context) error { return s.ResumeSchedule(ctx, "s", "h", tick) }))
}

// A server that lost its scripts gets them again, and no call is answered with NOSCRIPT.
func TestScriptsReload(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	for range 5 {
		require.NoError(t, srv.Client().ScriptFlush(t.Context()).Err())
		var reqs []actors.BeginRequest
		for range 300 {
			reqs = append(reqs, request(t, w, redistest.Name(t)))
		}
		var wg sync.WaitGroup
		for i, req := range reqs {
			wg.Go(func() {
				if i == 150 {
					srv.Client().ScriptFlush(t.Context())
				}
				b, err := s.Begin(t.Context(), req)
				if err == nil {
					err = s.Commit(t.Context(), completion(req, b, "ok"))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	require.EqualValues(t, 1500, w.Count(t, "succeeded"))
}

// Over maxmemory nothing new begins, and what runs can still end.
func TestCommitsOverMaxMemory(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	ctx := t.Context()
	req, b := begun(t, w, s, "a")
	req2, b2 := begun(t, w, s, "b")
	next := request(t, w, "c")
	require.NoError(t, srv.Client().ConfigSet(ctx, "maxmemory", "1").Err())

	_, err := s.Begin(ctx, next)
	require.Error(t, err)
	require.True(t, redis.HasErrorPrefix(errors.Unwrap(err), "OOM"), "%v", err)
	got, err := s.Submit(ctx, []actors.Submission{{ID: "x", Work: "1", Fields: []messages.Pair{{Name: "task_id", Value: "x"}}}})
	require.NoError(t, err)
	require.Error(t, got[0].Err)

	require.NoError(t, s.Checkpoint(ctx, actors.Checkpoint{TaskID: "a", Fence: b.Fence, Step: messages.Step{Name: "s", Status: messages.StepDone, Value: make([]byte, 5000)}}))
	require.NoError(t, s.Commit(ctx, completion(req, b, strings.Repeat("r", 5000))))
	again := completion(req2, b2, "")
	again.Outcome = messages.Outcome_OUTCOME_RETRY
	require.NoError(t, s.Commit(ctx, again))
	require.NoError(t, srv.Client().ConfigSet(ctx, "maxmemory", "0").Err())
	u, err := s.Unit(ctx, "a", "")
	require.NoError(t, err)
	require.Len(t, u.Result, 5000)
}

// A server that goes away and comes back empty: calls fail with errors, not with answers, and late commits are refused.
func TestRestartEmpty(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	req, b := begun(t, w, s, "a")
	require.NoError(t, srv.Kill())
	err := s.Commit(t.Context(), completion(req, b, "ok"))
	require.Error(t, err)
	require.NotErrorIs(t, err, actors.ErrLeaseLost)
	require.NoError(t, srv.Start())
	require.Eventually(t, func() bool {
		err = s.Commit(t.Context(), completion(req, b, "ok"))
		return errors.Is(err, actors.ErrLeaseLost)
	}, 10*time.Second, 10*time.Millisecond, "%v", err)
	got, err := s.Begin(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, actors.NotOurs, got.Answer)
}

// What one caller meets is not the others' business: one record is of the wrong type, one caller gives up.
func TestNeighboursInAPipeline(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	rdb := srv.NewClient(func(o *redis.Options) { o.ReadTimeout = time.Minute })
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := w.state(t, rdb)
	begun(t, w, s, "warm")
	var reqs []actors.BeginRequest
	for i := range 101 {
		reqs = append(reqs, request(t, w, fmt.Sprint("t", i)))
	}
	require.NoError(t, srv.Client().Set(t.Context(), w.keys.Task("t7"), "no hash", 0).Err())
	waiting := func() (lanes, calls int) {
		s.batch.mu.Lock()
		defer s.batch.mu.Unlock()
		return s.batch.busy, len(s.batch.waiting)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var wg sync.WaitGroup
	errs := make([]error, len(reqs))
	ask := func(ctx context.Context, i int) {
		wg.Go(func() {
			var b actors.Begun
			b, errs[i] = s.Begin(ctx, reqs[i])
			switch {
			case errs[i] != nil || b.Answer == actors.Run:
			case i == 7 && b.Answer == actors.Unreadable:
				errs[i] = errors.New(b.Detail)
			default:
				t.Errorf("begin %d: %+v", i, b)
			}
		})
	}
	require.NoError(t, srv.Stop()) // the first call occupies a lane, the others meet behind it
	ask(t.Context(), 100)
	require.Eventually(t, func() bool { l, c := waiting(); return l == 1 && c == 0 }, 30*time.Second, time.Millisecond)
	for i := range 100 {
		if i == 13 {
			ask(ctx, i)
		} else {
			ask(t.Context(), i)
		}
	}
	require.Eventually(t, func() bool { _, c := waiting(); return c == 100 }, 30*time.Second, time.Millisecond)
	cancel(errors.New("gave up"))
	require.Eventually(t, func() bool { _, c := waiting(); return c == 99 }, 30*time.Second, time.Millisecond)
	require.NoError(t, srv.Cont())
	wg.Wait()
	for i, err := range errs {
		switch i {
		case 7:
			require.ErrorContains(t, err, "WRONGTYPE")
		case 13:
			require.ErrorContains(t, err, "gave up")
			_, err := s.Task(t.Context(), "t13")
			require.ErrorIs(t, err, actors.ErrNoTask, "what was not sent is never sent")
		default:
			require.NoError(t, err, "t%d", i)
		}
	}
}

// A server that takes calls and does not answer, behind a client without timeouts: who gives up is told, who waits too long
// too, and the replies that come after all are nobody else's.
func TestCallsWithoutReply(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	rdb := srv.NewClient(func(o *redis.Options) { o.ReadTimeout = -1 })
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := w.state(t, rdb)
	var reqs []actors.BeginRequest
	for i := range 40 {
		reqs = append(reqs, request(t, w, fmt.Sprint("t", i)))
	}
	for round := range 3 {
		ask := func(ctx context.Context, i int) error {
			_, err := s.Begin(ctx, reqs[10*round+i])
			return err
		}
		require.NoError(t, ask(t.Context(), 0))
		require.NoError(t, srv.Stop())
		ctx, cancel := context.WithCancelCause(t.Context())
		gone, late := make(chan error, 10), make(chan error, 10)
		flying := func() (n int) {
			s.batch.mu.Lock()
			defer s.batch.mu.Unlock()
			for i := range s.batch.lanes {
				n += len(s.batch.lanes[i].flying)
			}
			return n
		}
		go func() { gone <- ask(ctx, 1) }()
		require.Eventually(t, func() bool { return flying() == 1 }, 30*time.Second, time.Millisecond)
		for i := 2; i < 5; i++ { // these wait behind it
			go func() { gone <- ask(ctx, i) }()
			go func() { late <- ask(t.Context(), i+3) }()
		}
		require.Eventually(t, func() bool {
			s.batch.mu.Lock()
			defer s.batch.mu.Unlock()
			return len(s.batch.waiting) == 6
		}, 30*time.Second, time.Millisecond)
		cancel(errors.New("gave up"))
		for range 4 {
			require.ErrorContains(t, <-gone, "gave up")
		}
		s.batch.mu.Lock()
		require.Len(t, s.batch.waiting, 3)
		for _, c := range s.batch.waiting {
			require.NotErrorIs(t, c.err, errNoReply)
			c.sweeps = int(replyTimeout / sweepEvery) // ten seconds later
		}
		s.batch.mu.Unlock()
		for range 3 {
			require.ErrorIs(t, <-late, errNoReply)
		}
		require.NoError(t, srv.Cont())
		// Whoever asks now gets an answer of its own.
		for i := range 10 {
			b, err := s.Begin(t.Context(), reqs[10*round+i])
			require.NoError(t, err)
			require.Equal(t, actors.Run, b.Answer)
			require.EqualValues(t, 1, b.Fence.Number)
		}
	}
	require.NoError(t, s.Close())
}

func TestClose(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	req, b := begun(t, w, s, "a")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Commit(t.Context(), completion(req, b, "")), ErrClosed)
	_, err := s.Submit(t.Context(), []actors.Submission{{ID: "x"}})
	require.ErrorIs(t, err, ErrClosed)

	never := New(srv.Client())
	require.NoError(t, never.Close())
	_, err = New(srv.Client()).Begin(t.Context(), req)
	require.ErrorContains(t, err, "Bind")
}
