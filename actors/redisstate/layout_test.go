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
	begun(t, w, s, "runs")
	for _, id := range []string{"x", "runs"} {
		_, err = s.Cancel(ctx, actors.Cancellation{ID: id, Reason: strings.Repeat("r", 999)})
		require.NoError(t, err)
	}
	_, err = s.Send(ctx, actors.Mailing{ID: "nobody", Name: "m"})
	require.NoError(t, err)
	for _, id := range []string{"waited", "timed"} { // one gets its message, one its time
		req, b := begun(t, w, s, id)
		parked := completion(req, b, "")
		parked.Outcome = messages.Outcome_OUTCOME_PARKED
		parked.Waits = []actors.Wait{
			{Name: "m", Kind: actors.WaitFirst, For: time.Hour, Closes: true, Slots: []actors.Slot{{Message: "m", Nth: 1}}},
			{Name: "open", Kind: actors.WaitFirst, For: 2 * time.Hour},
		}
		require.NoError(t, s.Commit(ctx, parked))
		if id == "waited" {
			_, err = s.Send(ctx, actors.Mailing{ID: id, Name: "m", Payload: make([]byte, 999)})
			require.NoError(t, err)
		} else {
			w.Pass(t, time.Hour)
			_, err = s.Send(ctx, actors.Mailing{ID: id, Name: "m"})
			require.ErrorIs(t, err, actors.ErrAnswered)
		}
		req.Entry, req.Wake, req.Activation = w.TakeInbox(t, "c")[0].Ref, 1, 2
		b, err = s.Begin(ctx, req)
		require.NoError(t, err)
		require.NoError(t, s.Commit(ctx, completion(req, b, "")))
		_, err = s.Send(ctx, actors.Mailing{ID: id, Name: "other"})
		require.ErrorIs(t, err, actors.ErrEnded)
	}
	require.Empty(t, w.Due(t))
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
	require.ElementsMatch(t, []string{"counts", "inbox", "index:kinds", "meta", w.keys.Stream}, forGood)
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

// What a task waits for, and its mail, are readable too.
func TestWaitsReadAsDocumented(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	req, b := begun(t, w, s, "a")
	c := completion(req, b, "")
	c.Outcome = messages.Outcome_OUTCOME_PARKED
	c.Waits = []actors.Wait{
		{Name: "both: of", Kind: actors.WaitAll, For: time.Hour, Slots: []actors.Slot{{Message: "yes:", Nth: 1}, {Message: "yes:", Nth: 2}}},
		{Name: "own", Kind: actors.WaitFirst, For: -1, Closes: true, Slots: []actors.Slot{{Message: "own", Nth: 1}}},
	}
	require.NoError(t, s.Commit(t.Context(), c))
	_, err := s.Send(t.Context(), actors.Mailing{ID: "a", Name: "yes:", MessageID: "m{1}", ContentType: "text/plain", Payload: []byte("by ada")})
	require.NoError(t, err)
	key := w.keys.Task("a")
	open, err := srv.Client().HGetAll(t.Context(), key+":waits").Result()
	require.NoError(t, err)
	since := open[":own"][len("5:since,13:"):][:13]
	require.Equal(t, map[string]string{
		":both%3A of": "5:since,13:" + since + ",4:kind,3:all,4:slot,8:yes%3A:1,4:slot,8:yes%3A:2,",
		":own":        "5:since,13:" + since + ",4:kind,5:first,4:slot,5:own:1,6:closes,1:1,",
	}, open)
	mail, err := srv.Client().HGetAll(t.Context(), key+":mail").Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"n:yes%3A": "1", "m:yes%3A:1": "1 text/plain\nby ada", "i:yes%3A:m%7B1%7D": "1", "arrivals": "1", "unread": "1",
	}, mail)
	require.Contains(t, w.Due(t), "w:a::both%3A of")
	ties, err := srv.Client().HGet(t.Context(), key, "ties").Result()
	require.NoError(t, err)
	require.Equal(t, "1", ties)
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
