package redisstream_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/streambridge/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Fixture { return newFixture(t, redistest.Start(t).Client()) })
}

// fixture is a group on a real server. Time passes by making all that the server keeps older.
type fixture struct {
	t     *testing.T
	rdb   *redis.Client
	names messages.Names
	keys  messages.Keys
}

func newFixture(t *testing.T, rdb *redis.Client) *fixture {
	// Names that need escaping, so that every key is built in Go and in Lua alike.
	names := messages.Names{Stream: redistest.Name(t), Group: "work:{ers}"}.WithDefaults()
	keys, err := messages.NewKeys(names)
	require.NoError(t, err)
	return &fixture{t: t, rdb: rdb, names: names, keys: keys}
}

var ctx = context.Background()

func (f *fixture) Names() messages.Names { return f.names }

func (f *fixture) New() streamtest.Stream {
	s := redisstream.New(f.rdb)
	f.t.Cleanup(func() { s.Close() })
	return s
}

var ageScript = redis.NewScript(`
local P, group, d, who = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
for _, key in ipairs(KEYS) do
  local rows = redis.pcall('XPENDING', key, group, '-', '+', 200000)
  if not rows.err then
    for _, r in ipairs(rows) do
      if (who == '' or r[2] == who) and #redis.call('XRANGE', key, r[1], r[1]) > 0 then
        redis.call('XCLAIM', key, group, r[2], 0, r[1], 'IDLE', string.format('%.0f', r[3] + d), 'RETRYCOUNT', r[4], 'JUSTID')
      end
    end
  end
end
if who ~= '' then return end
local function shift(key, field)
  local v = redis.call('HGET', key, field)
  if v then redis.call('HSET', key, field, string.format('%.0f', v - d)) end
end
for _, key in ipairs(redis.call('KEYS', '*')) do
  if string.match(key, ':delayed$') then
    for _, m in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -d, m) end
  end
  if string.sub(key, 1, #P) == P then
    local rest, ttl = string.sub(key, #P + 1), redis.call('PTTL', key)
    if ttl > d then redis.call('PEXPIRE', key, ttl - d) elseif ttl >= 0 then redis.call('DEL', key) end
    if rest == 'meta' then shift(key, 'pulse') shift(key, 'calm_until') shift(key, 'gate_at') end
    if string.sub(rest, 1, 7) == 'called:' then
      for _, m in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -d, m) end
    end
    if rest == 'gate' then shift(key, 'since') end
    if string.sub(rest, 1, 5) == 'life:' then shift(key, 'tick') end
    if string.sub(rest, 1, 9) == 'consumer:' then shift(key, 'beat') end
    if rest == 'due' or rest == 'nodes' then
      for _, m in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -d, m) end
    end
  end
end
`)

func (f *fixture) streams() []string { return []string{f.keys.Stream, f.keys.Inbox()} }

func (f *fixture) age(d time.Duration, consumer string) {
	f.t.Helper()
	err := ageScript.Run(ctx, f.rdb, f.streams(), f.keys.Prefix, f.names.Group, d.Milliseconds(), consumer).Err()
	if !errors.Is(err, redis.Nil) {
		require.NoError(f.t, err)
	}
}

func (f *fixture) Pass(d time.Duration) { f.t.Helper(); f.age(d, "") }

func (f *fixture) Kill(node messages.Node) {
	f.t.Helper()
	require.NoError(f.t, f.rdb.Del(ctx, f.keys.Node(node.Incarnation)).Err())
	f.age(node.Lease, node.Consumer)
}

func (f *fixture) Add(fields ...messages.Pair) string {
	f.t.Helper()
	var flat []string
	for _, p := range fields {
		flat = append(flat, p.Name, p.Value)
	}
	id, err := f.rdb.XAdd(ctx, &redis.XAddArgs{Stream: f.keys.Stream, Values: flat}).Result()
	require.NoError(f.t, err)
	return id
}

func (f *fixture) Delete(ref messages.Ref) {
	f.t.Helper()
	n, err := f.rdb.XDel(ctx, ref.Stream, ref.ID).Result()
	require.NoError(f.t, err)
	require.EqualValues(f.t, 1, n, "there was nothing to delete at %v", ref)
}

func (f *fixture) Trim(n int) {
	f.t.Helper()
	require.NoError(f.t, f.rdb.XTrimMaxLen(ctx, f.keys.Stream, int64(n)).Err())
}

func (f *fixture) Group(name string) func() {
	f.t.Helper()
	require.NoError(f.t, f.rdb.XGroupCreateMkStream(ctx, f.keys.Stream, name, "0").Err())
	return func() {
		f.t.Helper()
		got, err := f.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: name, Consumer: "other", Streams: []string{f.keys.Stream, ">"}, Count: 100_000, Block: -1,
		}).Result()
		if errors.Is(err, redis.Nil) {
			return
		}
		require.NoError(f.t, err)
		for _, m := range got[0].Messages {
			require.NoError(f.t, f.rdb.XAck(ctx, f.keys.Stream, name, m.ID).Err())
		}
	}
}

func (f *fixture) DropGroup() {
	f.t.Helper()
	require.NoError(f.t, f.rdb.XGroupDestroy(ctx, f.keys.Stream, f.names.Group).Err())
}

func (f *fixture) Memory(share float64) {
	f.t.Helper()
	info, err := f.rdb.Info(ctx, "memory").Result()
	require.NoError(f.t, err)
	_, rest, _ := strings.Cut(info, "used_memory:")
	used, err := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 64)
	require.NoError(f.t, err)
	require.NoError(f.t, f.rdb.ConfigSet(ctx, "maxmemory", strconv.FormatInt(int64(used/share), 10)).Err())
}

func (f *fixture) Flush() { f.t.Helper(); require.NoError(f.t, f.rdb.FlushAll(ctx).Err()) }

func (f *fixture) Inbox() string { return f.keys.Inbox() }

func (f *fixture) Len(stream string) int {
	f.t.Helper()
	n, err := f.rdb.XLen(ctx, stream).Result()
	require.NoError(f.t, err)
	return int(n)
}

func (f *fixture) Pending(stream string) []streamtest.Pending {
	f.t.Helper()
	rows, err := f.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: stream, Group: f.names.Group, Start: "-", End: "+", Count: 200_000,
	}).Result()
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return nil
	}
	require.NoError(f.t, err)
	var out []streamtest.Pending
	for _, r := range rows {
		out = append(out, streamtest.Pending{ID: r.ID, Consumer: r.Consumer, Idle: r.Idle, Deliveries: r.RetryCount})
	}
	return out
}

func (f *fixture) Consumers() []string {
	f.t.Helper()
	rows, err := f.rdb.XInfoConsumers(ctx, f.keys.Stream, f.names.Group).Result()
	require.NoError(f.t, err)
	var out []string
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return out
}

func unitField(unit, field string) string {
	if unit == "" {
		return field
	}
	return messages.Escape(unit) + "/" + field
}

func (f *fixture) set(taskID, unit string, kv ...any) {
	f.t.Helper()
	for i := 0; i < len(kv); i += 2 {
		kv[i] = unitField(unit, kv[i].(string))
	}
	require.NoError(f.t, f.rdb.HSet(ctx, f.keys.Task(taskID), kv...).Err())
}

func (f *fixture) Begin(node messages.Node, taskID, unit string) {
	f.t.Helper()
	fence, err := f.rdb.HIncrBy(ctx, f.keys.Task(taskID), "fence", 1).Result()
	require.NoError(f.t, err)
	require.NoError(f.t, f.rdb.HSet(ctx, f.keys.Task(taskID), "owner", node.Incarnation).Err())
	f.set(taskID, unit, "state", "RUNNING", "type", "t", "run", node.Incarnation+":1", "fence_at", fence, "created", 1)
}

func (f *fixture) End(taskID, unit string) {
	f.t.Helper()
	f.set(taskID, unit, "state", "SUCCEEDED")
	require.NoError(f.t, f.rdb.HDel(ctx, f.keys.Task(taskID), "owner").Err())
	require.NoError(f.t, f.rdb.HDel(ctx, f.keys.Task(taskID)+":body", messages.Escape(unit)).Err())
}

func (f *fixture) now() int64 {
	f.t.Helper()
	now, err := f.rdb.Time(ctx).Result()
	require.NoError(f.t, err)
	return now.UnixMilli()
}

func member(taskID, unit string) string { return messages.Escape(taskID) + ":" + messages.Escape(unit) }

func (f *fixture) Retry(taskID, unit string, d time.Duration, fields []messages.Pair) {
	f.t.Helper()
	f.due(taskID, unit, "RETRYING", d, fields)
}

func (f *fixture) Schedule(taskID, unit string, d time.Duration, fields []messages.Pair) {
	f.t.Helper()
	f.due(taskID, unit, "SCHEDULED", d, fields)
}

func (f *fixture) Delay(taskID, unit string, d time.Duration, fields []messages.Pair) {
	f.t.Helper()
	now, m := f.now(), member(taskID, unit)
	flat := messages.PackFields([]messages.Pair{{Name: "3600000", Value: strconv.FormatInt(now, 10)}, {Name: "w", Value: "t"}}) + messages.PackFields(fields)
	require.NoError(f.t, f.rdb.HSet(ctx, f.keys.DelayedEntries(), m, flat).Err())
	require.NoError(f.t, f.rdb.ZAdd(ctx, f.keys.Delayed(), redis.Z{Score: float64(now + d.Milliseconds()), Member: m}).Err())
	marker := f.keys.Submitted(taskID)
	require.NoError(f.t, f.rdb.HSet(ctx, marker, messages.Escape(unit), strconv.FormatInt(now, 10)+"@ w t").Err())
	require.NoError(f.t, f.rdb.PExpire(ctx, marker, d+time.Hour).Err())
}

func (f *fixture) Submitted(taskID, unit string) string {
	f.t.Helper()
	marker, err := f.rdb.HGet(ctx, f.keys.Submitted(taskID), messages.Escape(unit)).Result()
	require.NoError(f.t, err)
	ttl, err := f.rdb.PTTL(ctx, f.keys.Submitted(taskID)).Result()
	require.NoError(f.t, err)
	require.Positive(f.t, ttl)
	first, _, _ := strings.Cut(marker, " ")
	_, id, _ := strings.Cut(first, "@")
	return id
}

func (f *fixture) due(taskID, unit, state string, d time.Duration, fields []messages.Pair) {
	f.t.Helper()
	task := f.keys.Task(taskID)
	require.NoError(f.t, f.rdb.HIncrBy(ctx, task, unitField(unit, "wake"), 1).Err())
	f.set(taskID, unit, "state", state, "type", "t")
	require.NoError(f.t, f.rdb.HDel(ctx, task, "owner").Err())
	require.NoError(f.t, f.rdb.HSet(ctx, task+":body", messages.Escape(unit), messages.PackFields(fields)).Err())
	at := f.now() + d.Milliseconds()
	require.NoError(f.t, f.rdb.ZAdd(ctx, f.keys.Due(), redis.Z{Score: float64(at), Member: "r:" + member(taskID, unit)}).Err())
	require.NoError(f.t, f.rdb.ZAdd(ctx, f.keys.Index(state, "t"), redis.Z{Score: float64(at), Member: member(taskID, unit)}).Err())
	require.NoError(f.t, f.rdb.SAdd(ctx, f.keys.Prefix+"index:kinds", "t").Err())
}

func (f *fixture) Park(taskID, unit, wait string, d time.Duration, fields []messages.Pair) {
	f.t.Helper()
	task := f.keys.Task(taskID)
	require.NoError(f.t, f.rdb.HIncrBy(ctx, task, unitField(unit, "wake"), 1).Err())
	f.set(taskID, unit, "state", "WAITING", "type", "t")
	require.NoError(f.t, f.rdb.HSet(ctx, task, "ties", 1).Err())
	require.NoError(f.t, f.rdb.HDel(ctx, task, "owner").Err())
	require.NoError(f.t, f.rdb.HSet(ctx, task+":body", messages.Escape(unit), messages.PackFields(fields)).Err())
	field := messages.Escape(unit) + ":" + messages.Escape(wait)
	open := messages.EncodeWait(messages.Wait{Kind: messages.WaitTimer, SinceMS: f.now()})
	require.NoError(f.t, f.rdb.HSet(ctx, task+":waits", field, open).Err())
	if d >= 0 {
		at := f.now() + d.Milliseconds()
		require.NoError(f.t, f.rdb.ZAdd(ctx, f.keys.Due(), redis.Z{Score: float64(at), Member: "w:" + messages.Escape(taskID) + ":" + field}).Err())
	}
	require.NoError(f.t, f.rdb.ZAdd(ctx, f.keys.Index("WAITING", "t"), redis.Z{Score: float64(f.now()), Member: member(taskID, unit)}).Err())
	require.NoError(f.t, f.rdb.SAdd(ctx, f.keys.Prefix+"index:kinds", "t").Err())
}

func (f *fixture) Queue(taskID string, fields []messages.Pair) {
	f.t.Helper()
	task := f.keys.Task(taskID)
	require.NoError(f.t, f.rdb.RPush(ctx, task+":waiting", messages.PackFields(fields)).Err())
	require.NoError(f.t, f.rdb.HIncrBy(ctx, task, "queued", 1).Err())
	at := f.now() + streamtest.Lease.Milliseconds()
	require.NoError(f.t, f.rdb.ZAdd(ctx, f.keys.Due(), redis.Z{Score: float64(at), Member: "q:" + messages.Escape(taskID)}).Err())
}

func (f *fixture) Hold(limit, taskID string, ref messages.Ref) {
	f.t.Helper()
	place := "p"
	if ref.Stream == f.keys.Inbox() {
		place = "i"
	}
	f.lua(`redis.call('SADD', ARGV[1] .. 'limit:' .. ARGV[2], ARGV[3] .. ':')
		redis.call('HSET', ARGV[1] .. 'task:' .. ARGV[3], 'slots', pack_fields({ARGV[4], ARGV[2]}), 'ties', '1')`,
		f.keys.Prefix, limit, messages.Escape(taskID), place+ref.ID)
}

func (f *fixture) Line(limit string, most int, taskID string, fields []messages.Pair) {
	f.t.Helper()
	f.lua(`local task, number = ARGV[1] .. 'task:' .. ARGV[4], redis.call('HINCRBY', ARGV[1] .. 'meta', 'lined', 1)
		redis.call('HSET', task, 'fence', '0', 'state', 'PENDING', 'type', 't', 'wake', '1', 'line', number .. ' ' .. ARGV[2], 'ties', '1')
		redis.call('HSET', task .. ':body', '', ARGV[5])
		limit_join(ARGV[1], ARGV[2], ARGV[3], ARGV[4] .. ':', number, now_ms())`,
		f.keys.Prefix, limit, most, messages.Escape(taskID), messages.PackFields(fields))
}

func (f *fixture) Uncopy(taskID string) {
	f.t.Helper()
	require.NoError(f.t, f.rdb.Del(ctx, f.keys.Task(taskID)+":body").Err())
}

func (f *fixture) Held(limit string) (ids []string) {
	f.t.Helper()
	for _, m := range f.rdb.SMembers(ctx, f.keys.Prefix+"limit:"+limit).Val() {
		ids = append(ids, messages.Unescape(strings.TrimSuffix(m, ":")))
	}
	slices.Sort(ids)
	return ids
}

func (f *fixture) Cancel(taskID, unit, reason string) {
	f.t.Helper()
	f.lua(`cancel_unit(ARGV[1], ARGV[2], ARGV[3], now_ms(), 3600000, ARGV[4], 'a test', {})`,
		f.keys.Prefix, messages.Escape(taskID), messages.Escape(unit), reason)
}

func (f *fixture) CancelLater(taskID, unit string) {
	f.t.Helper()
	f.lua(`cancel_later(ARGV[1], ARGV[2], now_ms())`, f.keys.Prefix, messages.Escape(taskID)+":"+messages.Escape(unit))
}

// lua calls what the scripts share, as a script of the state store does.
func (f *fixture) lua(call string, args ...any) {
	f.t.Helper()
	require.NoError(f.t, f.rdb.Eval(ctx, messages.TaskLua+call+" return 1", []string{f.keys.Stream}, args...).Err())
}

func (f *fixture) Forget(taskID string) {
	f.t.Helper()
	task := f.keys.Task(taskID)
	require.NoError(f.t, f.rdb.Del(ctx, task, task+":long", task+":body", task+":waits", task+":log", task+":mail").Err())
}

func (f *fixture) Unit(taskID, unit string) streamtest.Unit {
	f.t.Helper()
	task := f.keys.Task(taskID)
	h, err := f.rdb.HGetAll(ctx, task).Result()
	require.NoError(f.t, err)
	waiting, err := f.rdb.LLen(ctx, task+":waiting").Result()
	require.NoError(f.t, err)
	copied, err := f.rdb.HExists(ctx, task+":body", messages.Escape(unit)).Result()
	require.NoError(f.t, err)
	number := func(name string) int64 { n, _ := strconv.ParseInt(h[name], 10, 64); return n }
	u := streamtest.Unit{
		Owner: h["owner"], Fence: uint64(number("fence")), Waiting: int(waiting), Copied: copied,
		Interruptions: number(unitField(unit, "interruptions")), Deaths: number(unitField(unit, "deaths")),
		Failures: number(unitField(unit, "failures")), Reason: h[unitField(unit, "reason")],
	}
	for _, name := range f.rdb.HKeys(ctx, task+":waits").Val() {
		if rest, ok := strings.CutPrefix(name, messages.Escape(unit)+":"); ok {
			u.Waits = append(u.Waits, messages.Unescape(rest))
		}
	}
	for name := range h {
		if rest, ok := strings.CutPrefix(name, unitField(unit, "step:")); ok {
			u.Steps = append(u.Steps, messages.Unescape(rest))
		}
	}
	if s := h[unitField(unit, "state")]; s != "" {
		v, ok := messages.State_value["STATE_"+s]
		require.True(f.t, ok, "state %q", s)
		u.State = messages.State(v)
	}
	return u
}
