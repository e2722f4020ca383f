package redisstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

// The record of a no-op task stays in the small encoding, whatever it went through: a table is 2.7 times as large.
func TestSmallHashStaysSmall(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	req, b := begun(t, w, s, "a")
	require.NoError(t, s.Checkpoint(t.Context(), actors.Checkpoint{TaskID: "a", Fence: b.Fence, Step: messages.Step{Name: "s", Status: messages.StepDone, Value: make([]byte, 999)}}))
	c := completion(req, b, strings.Repeat("r", 999))
	c.Outcome, c.Error, c.After, c.Charge = messages.Outcome_OUTCOME_RETRY, strings.Repeat("e", 999), 0, messages.Charge_CHARGE_FAILURE
	require.NoError(t, s.Commit(t.Context(), c))
	w.Promote(t, "a", "")
	in := w.TakeInbox(t, "c")
	req.Entry, req.Wake, req.Activation = in[0].Ref, 1, 2
	b, err := s.Begin(t.Context(), req)
	require.NoError(t, err)
	c = completion(req, b, strings.Repeat("r", 999))
	c.ContentType = strings.Repeat("c", 99)
	require.NoError(t, s.Commit(t.Context(), c))
	encoding, err := srv.Client().ObjectEncoding(t.Context(), w.keys.Task("a")).Result()
	require.NoError(t, err)
	require.Equal(t, "listpack", encoding)
	u, err := s.Unit(t.Context(), "a", "")
	require.NoError(t, err)
	require.Equal(t, c.ContentType, u.ContentType)
	require.Len(t, u.Result, 999)
}

// Every key that can outlive its use has a time to live. What has none is the group's own: one key each, however many
// tasks there were.
func TestKeysExpire(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	ctx := t.Context()
	for id, how := range map[string]func(*actors.Commit){
		"done":    func(c *actors.Commit) { c.Result = make([]byte, 999) },
		"indexed": func(c *actors.Commit) { c.Index = true },
		"rejected": func(c *actors.Commit) {
			c.Outcome, c.Error = messages.Outcome_OUTCOME_REJECTED, strings.Repeat("e", 999)
		},
		"ended": func(c *actors.Commit) { c.Outcome = messages.Outcome_OUTCOME_CANCELLED },
	} {
		req, b := begun(t, w, s, id)
		w.Save(t, req.Entry, id, "")
		require.NoError(t, s.Publish(ctx, id, actors.Chunk{Data: []byte("x")}))
		require.NoError(t, s.Checkpoint(ctx, actors.Checkpoint{TaskID: id, Fence: b.Fence, Step: messages.Step{Name: "s", Status: messages.StepDone, Value: make([]byte, 999)}}))
		c := completion(req, b, "")
		how(&c)
		require.NoError(t, s.Commit(ctx, c))
	}
	_, err := s.Submit(ctx, []actors.Submission{{ID: "x", Work: "1", Fields: []messages.Pair{{Name: "task_id", Value: "x"}}}})
	require.NoError(t, err)
	w.families(t, s)
	begun(t, w, s, "runs")
	for _, id := range []string{"x", "runs"} {
		_, err = s.Cancel(ctx, actors.Cancellation{ID: id, Reason: strings.Repeat("r", 999)})
		require.NoError(t, err)
	}
	from := []actors.Tokens{{Bucket: "b", N: 1, Rate: actors.Rate{Tokens: 1, Per: time.Minute}}}
	for _, effect := range []string{"goes", "waits"} {
		_, err = s.Take(ctx, actors.Taking{Effect: effect, Run: 1, From: from})
		require.NoError(t, err)
	}
	require.NoError(t, s.Quiet(ctx, []actors.Tokens{{Bucket: "quiet", N: 1, Rate: from[0].Rate}}, time.Minute))
	var forGood []string
	for _, key := range w.all(t) {
		ttl, err := srv.Client().PTTL(ctx, key).Result()
		require.NoError(t, err)
		if ttl < 0 {
			forGood = append(forGood, strings.TrimPrefix(key, w.keys.Prefix))
		}
		if strings.HasSuffix(key, ":live") || strings.HasSuffix(key, ":cancels") {
			require.LessOrEqual(t, ttl, time.Hour)
		}
	}
	next := "{" + w.keys.Stream + "}:next"
	require.ElementsMatch(t, []string{"counts", "inbox", "index:kinds", "meta", "nodes", w.keys.Stream, next}, forGood)
}

// families are parents that have ended in every way, with children that have ended too or are cancelled.
func (w *world) families(t *testing.T, s *State) {
	t.Helper()
	ctx := t.Context()
	for id, how := range map[string]messages.Outcome{
		"parent": messages.Outcome_OUTCOME_COMPLETED, "{orphan}": messages.Outcome_OUTCOME_REJECTED, "gone": messages.Outcome_OUTCOME_CANCELLED,
	} {
		req, b := begun(t, w, s, id)
		c := completion(req, b, "")
		for i := range 3 {
			c.Spawns = append(c.Spawns, child(fmt.Sprint("k", i), fmt.Sprint(id, "/", strings.Repeat("k", 99), i), "p"))
		}
		c.Emits = []actors.Emission{{Stream: "{" + w.keys.Stream + "}:next", Task: child("", id, "p").Task}}
		require.ErrorIs(t, s.Commit(ctx, parking(c, actors.Wait{Name: "none", Kind: actors.WaitJoin, For: 0, Children: []string{"k0"}})), actors.ErrResume)
		for i, d := range w.TakeInbox(t, "c")[:2] {
			kid := actors.BeginRequest{
				Task: &messages.Task{TaskId: d.Field("task_id"), Type: "noop", Payload: []byte("p")}, Entry: d.Ref, Deliveries: 1,
				Consumer: "c", Incarnation: node, Activation: uint64(10 + i),
			}
			kb, err := s.Begin(ctx, kid)
			require.NoError(t, err)
			if i == 0 {
				require.NoError(t, s.Commit(ctx, completion(kid, kb, strings.Repeat("r", 999))))
			}
		}
		c.Outcome, c.Reason = how, messages.Reason_REASON_REJECTED
		require.NoError(t, s.Commit(ctx, c))
		for i := range 3 {
			if i > 0 {
				_, err := s.Cancel(ctx, actors.Cancellation{ID: fmt.Sprint(id, "/", strings.Repeat("k", 99), i)})
				require.NoError(t, err)
			}
		}
		w.Turn(t)
	}
	require.Empty(t, w.Due(t))
}

// An index by state forgets the units whose records have expired, whatever ended them, and no others.
func TestIndexForgetsWhatHasExpired(t *testing.T) {
	srv := redistest.Shared(t)
	ctx := t.Context()
	cancel := func(w *world, s *State, id string, ttl time.Duration) {
		begun(t, w, s, id)
		_, err := s.Cancel(ctx, actors.Cancellation{ID: id, TTL: ttl})
		require.NoError(t, err)
	}
	index := func(w *world) []string { return w.Index(t, messages.State_STATE_CANCELLED, "noop") }
	old := func(w *world, id string, age time.Duration) {
		at := float64(w.Now(t).Add(-age).UnixMilli())
		require.NoError(t, srv.Client().ZAdd(ctx, w.keys.Index("CANCELLED", "noop"), redis.Z{Score: at, Member: id + ":"}).Err())
	}
	left := func(w *world) time.Duration {
		return srv.Client().PTTL(ctx, w.keys.Index("CANCELLED", "noop")).Val()
	}

	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	cancel(w, s, "a", time.Hour)
	cancel(w, s, "b", time.Hour)
	old(w, "a", 2*time.Hour)
	cancel(w, s, "c", time.Hour)
	require.Equal(t, []string{"b:", "c:"}, index(w))

	cancel(w, s, "long", 3*time.Hour)
	old(w, "long", 2*time.Hour)
	old(w, "b", 4*time.Hour)
	cancel(w, s, "short", time.Minute)
	require.Equal(t, []string{"long:", "c:", "short:"}, index(w), "a short time to live does not forget what has a long one")
	require.Greater(t, left(w), 2*time.Hour)

	cancel(w, s, "for ever", -1)
	old(w, "for ever", 1000*time.Hour)
	cancel(w, s, "d", time.Minute)
	require.Contains(t, index(w), "for ever:")
	require.Negative(t, left(w))
}

// A record is readable with HGETALL, field by field as messages/layout.go says.
func TestRecordReadsAsDocumented(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	req, b := begun(t, w, s, "a{b}")
	key := "{" + w.names.Stream + "}:g%3A%7B1%7D:task:a%7Bb%7D"
	h, err := srv.Client().HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.Len(t, h["began"], 13)
	delete(h, "began")
	require.Equal(t, map[string]string{
		"owner": node, "fence": "1", "state": "RUNNING", "type": "noop", "work": messages.WorkHash("noop", []byte("p")),
		"run": node + ":1", "fence_at": "1",
	}, h)
	c := completion(req, b, "ok")
	c.ContentType = "text/plain"
	require.NoError(t, s.Commit(t.Context(), c))
	h, err = srv.Client().HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	require.Len(t, h["updated"], 13)
	delete(h, "began")
	delete(h, "updated")
	require.Equal(t, map[string]string{
		"fence": "1", "state": "SUCCEEDED", "type": "noop", "work": messages.WorkHash("noop", []byte("p")),
		"run": node + ":1", "fence_at": "1", "ctype": "text/plain", "result": "ok",
	}, h)
}

// A checkpoint that was damaged is an error of its own task, and the desk shows it.
func TestDamagedCheckpoint(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	begun(t, w, s, "a")
	require.NoError(t, srv.Client().HSet(t.Context(), w.keys.Task("a"), "step:s", "garbage").Err())
	_, err := s.Steps(t.Context(), "a", "")
	require.ErrorIs(t, err, messages.ErrStep)
	rec, err := s.Task(t.Context(), "a")
	require.NoError(t, err)
	require.Contains(t, rec.Units[0].Steps[0].Error, "damaged")
}
