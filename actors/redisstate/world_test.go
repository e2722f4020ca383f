package redisstate

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/statetest"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

// world is a statetest.World on a real Redis: what the stream adapter and the operator would do, by hand.
type world struct {
	rdb   *redis.Client
	names actors.Names
	keys  messages.Keys
}

// newWorld makes a group of its own on the server of the client.
func newWorld(t testing.TB, rdb *redis.Client) *world {
	t.Helper()
	names := actors.Names{Stream: redistest.Name(t), Group: "g:{1}"}.WithDefaults()
	keys, err := messages.NewKeys(names)
	require.NoError(t, err)
	w := &world{rdb: rdb, names: names, keys: keys}
	w.groups(t)
	return w
}

func (w *world) groups(t testing.TB) {
	t.Helper()
	for _, stream := range []string{w.keys.Stream, w.keys.Inbox()} {
		require.NoError(t, w.rdb.XGroupCreateMkStream(t.Context(), stream, w.names.Group, "0").Err())
	}
}

// state makes a State bound to the world's group, closed with the test.
func (w *world) state(t testing.TB, rdb redis.UniversalClient) *State {
	t.Helper()
	s := New(rdb)
	require.NoError(t, s.Bind(w.names))
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func (w *world) Deliver(t testing.TB, inbox bool, consumer string, fields []messages.Pair) messages.Ref {
	t.Helper()
	stream := w.keys.Stream
	if inbox {
		stream = w.keys.Inbox()
	}
	values := make([]any, 0, 2*len(fields))
	for _, f := range fields {
		values = append(values, f.Name, f.Value)
	}
	id, err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: values}).Result()
	require.NoError(t, err)
	for { // what others added before stays with whoever reads it: read until ours came
		got := w.read(t, stream, consumer)
		for _, d := range got {
			if d.Ref.ID == id {
				return d.Ref
			}
		}
		require.NotEmpty(t, got, "entry %s was not handed out", id)
	}
}

func (w *world) read(t testing.TB, stream, consumer string) []statetest.Delivery {
	t.Helper()
	reply, err := w.rdb.Do(t.Context(), "XREADGROUP", "GROUP", w.names.Group, consumer, "COUNT", 1000, "STREAMS", stream, ">").Result()
	if err == redis.Nil { //nolint:errorlint // go-redis returns the sentinel itself
		return nil
	}
	require.NoError(t, err)
	return deliveries(t, stream, reply.(map[any]any)[stream].([]any)) // RESP3
}

func deliveries(t testing.TB, stream string, entries []any) []statetest.Delivery {
	t.Helper()
	var got []statetest.Delivery
	for _, e := range entries {
		pair := e.([]any)
		d := statetest.Delivery{Ref: messages.Ref{Stream: stream, ID: pair[0].(string)}}
		flat := pair[1].([]any)
		for i := 0; i+1 < len(flat); i += 2 {
			d.Fields = append(d.Fields, messages.Pair{Name: flat[i].(string), Value: flat[i+1].(string)})
		}
		got = append(got, d)
	}
	return got
}

func (w *world) Claim(t testing.TB, ref messages.Ref, consumer string) {
	t.Helper()
	require.NoError(t, w.rdb.XClaim(t.Context(), &redis.XClaimArgs{
		Stream: ref.Stream, Group: w.names.Group, Consumer: consumer, Messages: []string{ref.ID},
	}).Err())
}

func (w *world) Gate(t testing.TB, lag, limit int, hint time.Duration) {
	t.Helper()
	if limit == 0 {
		require.NoError(t, w.rdb.Del(t.Context(), w.keys.Gate()).Err())
		return
	}
	require.NoError(t, w.rdb.HSet(t.Context(), w.keys.Gate(), "state", "shut", "what", messages.GateLag, "value", lag, "limit", limit,
		"hint", hint.Milliseconds()).Err())
	require.NoError(t, w.rdb.Expire(t.Context(), w.keys.Gate(), time.Minute).Err())
}

func (w *world) TakeInbox(t testing.TB, consumer string) []statetest.Delivery {
	t.Helper()
	return w.read(t, w.keys.Inbox(), consumer)
}

func (w *world) Ack(t testing.TB, ref messages.Ref) {
	t.Helper()
	require.NoError(t, w.rdb.XAck(t.Context(), ref.Stream, w.names.Group, ref.ID).Err())
}

func (w *world) Pending(t testing.TB, ref messages.Ref) bool {
	t.Helper()
	got, err := w.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{
		Stream: ref.Stream, Group: w.names.Group, Start: ref.ID, End: ref.ID, Count: 1,
	}).Result()
	require.NoError(t, err)
	return len(got) == 1
}

func (w *world) Trim(t testing.TB, ref messages.Ref) {
	t.Helper()
	require.NoError(t, w.rdb.XDel(t.Context(), ref.Stream, ref.ID).Err())
}

func (w *world) Save(t testing.TB, ref messages.Ref, taskID, unit string) {
	t.Helper()
	got, err := w.rdb.Do(t.Context(), "XRANGE", ref.Stream, ref.ID, ref.ID).Slice()
	require.NoError(t, err)
	d := deliveries(t, ref.Stream, got)
	require.Len(t, d, 1)
	key := w.keys.Task(taskID)
	require.NoError(t, w.rdb.HSet(t.Context(), key+":body", messages.Escape(unit), messages.PackFields(d[0].Fields)).Err())
	require.NoError(t, w.rdb.HSet(t.Context(), w.keys.Prefix+"saved", ref.Stream+"\x00"+ref.ID,
		messages.Escape(taskID)+":"+messages.Escape(unit)).Err())
}

func (w *world) Public(t testing.TB) []statetest.Delivery {
	t.Helper()
	got, err := w.rdb.Do(t.Context(), "XRANGE", w.keys.Stream, "-", "+").Slice()
	require.NoError(t, err)
	return deliveries(t, w.keys.Stream, got)
}

func (w *world) Live(t testing.TB, incarnation string, live bool) {
	t.Helper()
	if live {
		require.NoError(t, w.rdb.Set(t.Context(), w.keys.Node(incarnation), "1", time.Minute).Err())
	} else {
		require.NoError(t, w.rdb.Del(t.Context(), w.keys.Node(incarnation)).Err())
	}
}

func (w *world) Tick(t testing.TB, incarnation string, at time.Time) {
	t.Helper()
	require.NoError(t, w.rdb.HSet(t.Context(), w.keys.Life(incarnation), "tick", at.UnixMilli()).Err())
}

func (w *world) Calm(t testing.TB, until time.Time) {
	t.Helper()
	require.NoError(t, w.rdb.HSet(t.Context(), w.keys.Meta(), "calm_until", max(0, until.UnixMilli())).Err())
}

func (w *world) EndTrial(t testing.TB, incarnation string) {
	t.Helper()
	require.NoError(t, w.rdb.HSet(t.Context(), w.keys.Life(incarnation), "trial_until", 1).Err())
}

func (w *world) Now(t testing.TB) time.Time {
	t.Helper()
	now, err := w.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	return now
}

func (w *world) Wipe(t testing.TB) {
	t.Helper()
	keys := w.all(t)
	require.NotEmpty(t, keys)
	require.NoError(t, w.rdb.Del(t.Context(), keys...).Err())
	w.groups(t)
}

// all lists every key of the world's stream and group.
func (w *world) all(t testing.TB) []string {
	t.Helper()
	var keys []string
	for _, pattern := range []string{w.keys.Stream, "{" + w.keys.Stream + "}*"} {
		found, err := w.rdb.Keys(t.Context(), pattern).Result()
		require.NoError(t, err)
		keys = append(keys, found...)
	}
	return keys
}

func (w *world) Due(t testing.TB) map[string]time.Time {
	t.Helper()
	return w.times(t, w.keys.Due())
}

func (w *world) Delayed(t testing.TB) map[string]time.Time {
	t.Helper()
	return w.times(t, w.keys.Delayed())
}

func (w *world) times(t testing.TB, key string) map[string]time.Time {
	t.Helper()
	got, err := w.rdb.ZRangeWithScores(t.Context(), key, 0, -1).Result()
	require.NoError(t, err)
	due := map[string]time.Time{}
	for _, z := range got {
		due[z.Member.(string)] = time.UnixMilli(int64(z.Score))
	}
	return due
}

func (w *world) Promote(t testing.TB, taskID, unit string) {
	t.Helper()
	key, eunit := w.keys.Task(taskID), messages.Escape(unit)
	packed, err := w.rdb.HGet(t.Context(), key+":body", eunit).Result()
	require.NoError(t, err, "the body of a unit that waits for its retry")
	wake, err := w.rdb.HGet(t.Context(), key, unitPrefix(unit)+"wake").Result()
	require.NoError(t, err)
	fields, err := messages.UnpackFields(packed)
	require.NoError(t, err)
	values := []any{}
	for _, f := range fields {
		if f.Name == messages.ControlWake {
			f.Value = wake
		}
		values = append(values, f.Name, f.Value)
	}
	member := "r:" + messages.Escape(taskID) + ":" + eunit
	require.EqualValues(t, 1, w.rdb.ZRem(t.Context(), w.keys.Due(), member).Val(), "%s is due some time", member)
	require.NoError(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.keys.Inbox(), Values: values}).Err())
}

func (w *world) Pass(t testing.TB, d time.Duration) {
	t.Helper()
	for member := range w.Due(t) {
		require.NoError(t, w.rdb.ZIncrBy(t.Context(), w.keys.Due(), -float64(d.Milliseconds()), member).Err())
	}
}

// Turn is a tick of the real thing, by a node that takes nothing.
func (w *world) Turn(t testing.TB) {
	t.Helper()
	w.as(t, "00000000000000ee", "clock", func(s *redisstream.Stream) error {
		_, err := s.Tick(t.Context(), streambridge.TickRequest{DeadTTL: time.Hour})
		return err
	})
}

// as lets a node do something.
func (w *world) as(t testing.TB, incarnation, consumer string, do func(s *redisstream.Stream) error) {
	t.Helper()
	s := redisstream.New(w.rdb)
	defer func() { require.NoError(t, s.Close()) }()
	node := messages.Node{Incarnation: incarnation, Consumer: consumer, Lease: 24 * time.Hour, Beat: time.Hour, Types: []string{"none"}}
	require.NoError(t, s.Open(t.Context(), w.names, node))
	require.NoError(t, do(s))
}

func (w *world) Release(t testing.TB, incarnation, consumer string, ref messages.Ref, taskID, unit string) {
	t.Helper()
	w.as(t, incarnation, consumer, func(s *redisstream.Stream) error {
		_, err := s.Release(t.Context(), []streambridge.Held{{Ref: ref, TaskID: taskID, Unit: unit}})
		return err
	})
}

func (w *world) Bury(t testing.TB, incarnation, consumer string, ref messages.Ref, taskID, unit, agentType string, reason messages.Reason, fail bool) {
	t.Helper()
	w.as(t, incarnation, consumer, func(s *redisstream.Stream) error {
		return s.Bury(t.Context(), []streambridge.Burial{{
			Ref: ref, Reason: reason, Detail: "set aside", TaskID: taskID, Unit: unit, Type: agentType, Fail: fail,
		}})
	})
}

func (w *world) Settle(t testing.TB, letterID, how string) error {
	t.Helper()
	s := redisstream.New(w.rdb)
	require.NoError(t, s.Bind(w.names))
	return s.Settle(t.Context(), letterID, map[string]streambridge.Settlement{
		"retry": streambridge.Retry, "complete": streambridge.Complete, "drop": streambridge.Drop,
	}[how])
}

func (w *world) Uncopy(t testing.TB, taskID, unit string) {
	t.Helper()
	require.NoError(t, w.rdb.HDel(t.Context(), w.keys.Task(taskID)+":body", messages.Escape(unit)).Err())
}

func (w *world) Standing(t testing.TB, taskID string) map[string]time.Duration {
	t.Helper()
	found := map[string]time.Duration{}
	for _, end := range []string{"", ":long", ":body", ":waiting", ":log", ":waits", ":mail", ":live"} {
		ttl, err := w.rdb.PTTL(t.Context(), w.keys.Task(taskID)+end).Result()
		require.NoError(t, err)
		if ttl != -2 {
			found[end] = max(ttl, 0)
		}
	}
	return found
}

func (w *world) Dead(t testing.TB) []*messages.DeadLetter {
	t.Helper()
	got, err := w.rdb.Do(t.Context(), "XRANGE", w.keys.Dead(), "-", "+").Slice()
	require.NoError(t, err)
	var dead []*messages.DeadLetter
	for _, d := range deliveries(t, w.keys.Dead(), got) {
		n, err := strconv.ParseInt(cmp.Or(d.Field("deliveries"), "0"), 10, 64)
		require.NoError(t, err)
		l := &messages.DeadLetter{
			Id: d.Ref.ID, Reason: reasonFrom(d.Field("reason")), Detail: d.Field("detail"),
			Entry:  &messages.Entry{Stream: d.Field("stream"), Id: d.Field("entry"), Deliveries: n},
			TaskId: d.Field("task_id"), Unit: d.Field("unit"), Type: d.Field("type"),
		}
		fields, err := messages.UnpackFields(d.Field("fields"))
		require.NoError(t, err)
		for _, f := range fields {
			l.Fields = append(l.Fields, &messages.Field{Name: []byte(f.Name), Value: []byte(f.Value)})
		}
		dead = append(dead, l)
	}
	return dead
}

func (w *world) Index(t testing.TB, state messages.State, agentType string) []string {
	t.Helper()
	key := w.keys.Index(strings.TrimPrefix(state.String(), "STATE_"), agentType)
	got, err := w.rdb.ZRange(t.Context(), key, 0, -1).Result()
	require.NoError(t, err)
	return got
}

func (w *world) Count(t testing.TB, name string) int64 {
	t.Helper()
	n, err := w.rdb.HGet(t.Context(), w.keys.Counts(), name).Int64()
	if err == redis.Nil { //nolint:errorlint // go-redis returns the sentinel itself
		return 0
	}
	require.NoError(t, err)
	return n
}
