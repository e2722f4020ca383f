package redisstream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/streambridge/streamtest"
)

func x(id string) []messages.Pair {
	return []messages.Pair{{Name: "task_id", Value: id}, {Name: "payload", Value: "p"}}
}

func TestADeletedConsumerTakesNothingWithIt(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	node := newNode("a", streamtest.Lease)
	s := open(t, f.rdb, f.names, node)
	for _, id := range []string{"runs", "waits", "done", "elsewhere"} {
		f.Add(x(id)...)
	}
	got, err := s.Read(ctx, 10, 0)
	require.NoError(t, err)
	var held []streambridge.Held
	for i, id := range []string{"runs", "waits", "done", "elsewhere"} {
		held = append(held, streambridge.Held{Ref: got[i].Ref, TaskID: id})
	}
	f.Begin(node, "runs", "")
	f.Begin(node, "done", "")
	f.End("done", "")
	f.Begin(newNode("b", streamtest.Lease), "elsewhere", "")
	require.NoError(t, f.rdb.XGroupDelConsumer(ctx, f.keys.Stream, f.names.Group, "a").Err())
	b, err := s.Beat(ctx, held)
	require.NoError(t, err)
	require.Equal(t, []messages.Ref{held[2].Ref, held[3].Ref}, b.Lost)
	var ids []string
	for _, p := range f.Pending(f.keys.Stream) {
		ids = append(ids, p.ID)
		require.Equal(t, "a", p.Consumer)
		require.EqualValues(t, 1, p.Deliveries)
	}
	require.Equal(t, []string{held[0].ID, held[1].ID}, ids)
}

func TestResp2(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.NewClient(func(o *redis.Options) { o.Protocol = 2 })
	defer rdb.Close()
	f := newFixture(t, srv.Client())
	s := open(t, rdb, f.names, newNode("a", streamtest.Lease))
	id := f.Add(x("x")...)
	f.Retry("r", "", 0, x("r"))
	f.Pass(time.Millisecond)
	_, err := s.Tick(ctx, request(1))
	require.NoError(t, err)
	got, err := s.Read(ctx, 10, 0)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, f.keys.Inbox(), got[0].Stream)
	require.Equal(t, id, got[1].ID)
	require.Equal(t, x("x"), got[1].Fields)
}

func TestAWrappedClientIsUsedAsItIs(t *testing.T) {
	srv := redistest.Start(t)
	f := newFixture(t, srv.Client())
	s := open(t, struct{ redis.UniversalClient }{srv.Client()}, f.names, newNode("a", streamtest.Lease))
	id := f.Add(x("x")...)
	got, err := s.Read(ctx, 10, 2*time.Second)
	require.NoError(t, err)
	require.Equal(t, id, got[0].ID)
	got, err = s.Read(ctx, 10, 2*time.Second)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestAFullServerLetsUpkeepGoOn(t *testing.T) {
	srv := redistest.Start(t)
	f := newFixture(t, srv.Client())
	node := newNode("a", streamtest.Lease)
	s := open(t, f.rdb, f.names, node)
	for i := range 20 {
		f.Add(x(fmt.Sprint(i))...)
	}
	got, err := s.Read(ctx, 20, 0)
	require.NoError(t, err)
	f.Retry("r", "", 0, x("r"))
	f.Pass(time.Millisecond)
	require.NoError(t, f.rdb.ConfigSet(ctx, "maxmemory", "1mb").Err())
	require.ErrorContains(t, f.rdb.XAdd(ctx, &redis.XAddArgs{Stream: "other", Values: []string{"a", "b"}}).Err(), "OOM")
	f.Begin0(node, "0")
	_, err = s.Beat(ctx, []streambridge.Held{{Ref: got[0].Ref, TaskID: "0"}})
	require.NoError(t, err)
	require.NoError(t, s.Ack(ctx, []messages.Ref{got[0].Ref, got[1].Ref}))
	require.NoError(t, s.Bury(ctx, []streambridge.Burial{{Ref: got[2].Ref, TaskID: "2", Type: "t", Reason: messages.Reason_REASON_REJECTED, Fail: true}}))
	tick, err := s.Tick(ctx, request(10))
	require.NoError(t, err)
	require.EqualValues(t, 3, tick.Trimmed)
	require.Equal(t, 1, tick.Promoted)
	_, err = s.Read(ctx, 10, 0)
	require.NoError(t, err)
	given, err := s.Release(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, 18, given)
}

// Begin0 is Begin while the server refuses what grows.
func (f *fixture) Begin0(node messages.Node, taskID string) {
	err := redis.NewScript("#!lua flags=allow-oom\nreturn redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'state', 'RUNNING', 'run', ARGV[1] .. ':1', 'fence', 1)").
		Run(ctx, f.rdb, []string{f.keys.Task(taskID)}, node.Incarnation).Err()
	require.NoError(f.t, err)
}

func TestAnEntryOfManyFieldsIsBuriedWhole(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	var fields []messages.Pair
	for i := range 20_000 {
		fields = append(fields, messages.Pair{Name: fmt.Sprint("f", i), Value: "v"})
	}
	f.Add(fields...)
	got, err := s.Read(ctx, 1, 0)
	require.NoError(t, err)
	require.Equal(t, fields, got[0].Fields)
	require.NoError(t, s.Bury(ctx, []streambridge.Burial{{Ref: got[0].Ref, Reason: messages.Reason_REASON_UNDECODABLE}}))
	ls, err := s.Letters(ctx, "", 1)
	require.NoError(t, err)
	require.Len(t, ls[0].GetFields(), 20_000)
	require.ErrorContains(t, s.Settle(ctx, ls[0].GetId(), streambridge.Retry), "fields")
}

func TestLargeBodiesAreHandedOutInTurns(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	old := newNode("old", streamtest.Lease)
	o := open(t, f.rdb, f.names, old)
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	big := strings.Repeat("x", 1<<20)
	for range 20 {
		f.Add(messages.Pair{Name: "payload", Value: big})
	}
	for range 20 {
		_, err := o.Read(ctx, 1, 0)
		require.NoError(t, err)
	}
	_, err := s.Tick(ctx, request(0))
	require.NoError(t, err)
	f.Kill(old)
	total, turns := 0, 0
	for more := true; more; turns++ {
		tick, err := s.Tick(ctx, request(100))
		require.NoError(t, err)
		require.LessOrEqual(t, len(tick.Claimed), 6)
		total += len(tick.Claimed)
		more = tick.More
	}
	require.Equal(t, 20, total)
	require.GreaterOrEqual(t, turns, 4)
}

// What else is idle costs next to nothing: one tick a second, a read every two, a beat every five.
func TestAnIdleNodeSaysLittle(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	calls := func() int64 {
		stats, err := f.rdb.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		var n int64
		for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval", "cmdstat_xreadgroup", "cmdstat_xack"} {
			var calls int64
			fmt.Sscanf(stats["Commandstats"][name], "calls=%d", &calls)
			n += calls
		}
		return n
	}
	tick := func() {
		_, err := s.Tick(ctx, request(100))
		require.NoError(t, err)
		_, err = s.Beat(ctx, nil)
		require.NoError(t, err)
		_, err = s.Read(ctx, 10, time.Millisecond)
		require.NoError(t, err)
	}
	tick()
	before := calls()
	tick()
	require.EqualValues(t, 3, calls()-before)
}

func TestTenThousandOrphansAreTakenOverInSeconds(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	old := newNode("old", streamtest.Lease)
	o := open(t, f.rdb, f.names, old)
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	fill(t, f, o, 10_000)
	_, err := s.Tick(ctx, request(0))
	require.NoError(t, err)
	f.Kill(old)
	started, seen := time.Now(), map[string]bool{}
	for more := true; more; {
		tick, err := s.Tick(ctx, request(10_000))
		require.NoError(t, err)
		for _, e := range tick.Claimed {
			seen[e.ID] = true
		}
		more = tick.More
	}
	require.Len(t, seen, 10_000)
	t.Logf("10,000 orphans in %v", time.Since(started))
	require.Less(t, time.Since(started), 10*time.Second)
}

// fill adds n small entries and reads them with s.
func fill(t testing.TB, f *fixture, s streambridge.Stream, n int) {
	t.Helper()
	for done := 0; done < n; done += 1000 {
		_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 1000 {
				p.XAdd(ctx, &redis.XAddArgs{Stream: f.keys.Stream, Values: []string{"task_id", fmt.Sprint(done + i), "type", "t", "payload", strings.Repeat("x", 200)}})
			}
			return nil
		})
		require.NoError(t, err)
	}
	for got := 0; got < n; {
		e, err := s.Read(ctx, 1000, 0)
		require.NoError(t, err)
		require.NotEmpty(t, e)
		got += len(e)
	}
}

func TestATickIsCheapWithManyPending(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	other := open(t, f.rdb, f.names, newNode("other", streamtest.Lease))
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	fill(t, f, other, 100_000)
	spent := func(tick func()) time.Duration {
		require.NoError(t, f.rdb.ConfigResetStat(ctx).Err())
		for range 10 {
			tick()
		}
		stats, err := f.rdb.InfoMap(ctx, "commandstats").Result()
		require.NoError(t, err)
		var calls, us int64
		fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%d,usec=%d", &calls, &us)
		return time.Duration(us/calls) * time.Microsecond
	}
	one := func(s streambridge.Upkeep) func() {
		return func() {
			_, err := s.Tick(ctx, request(100))
			require.NoError(t, err)
		}
	}
	one(s)()
	one(other)()
	neighbour, own := spent(one(s)), spent(one(other))
	t.Logf("a tick beside 100,000 pending of another: %v; with 100,000 of its own: %v", neighbour, own)
	require.Less(t, neighbour, 5*time.Millisecond)
	require.Less(t, own, 20*time.Millisecond)
}

func TestAMessageToWhatIsNoRecordIsADeadLetter(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	for _, end := range []string{"", ":mail", ":waits"} {
		id := "x" + end
		key := f.keys.Task(id) + end
		require.NoError(t, f.rdb.Set(ctx, key, "foreign", 0).Err())
		f.Add(messages.Pair{Name: "task_id", Value: id}, messages.Pair{Name: "message", Value: "m"})
		got, err := s.Read(ctx, 10, 0)
		require.NoError(t, err)
		receipts, err := s.Deliver(ctx, []streambridge.Mail{{Ref: got[0].Ref, TaskID: id, Name: "m"}})
		require.NoError(t, err)
		require.Equal(t, []messages.Receipt{messages.NoMailbox}, receipts)
		require.Empty(t, f.Pending(f.keys.Stream))
		letters, err := s.Letters(ctx, "", 10)
		require.NoError(t, err)
		last := letters[len(letters)-1]
		require.Equal(t, messages.Reason_REASON_BAD_STATE, last.GetReason())
		require.Equal(t, "the key "+key+" is a string and no record of Weir", last.GetDetail())
		require.Len(t, last.GetFields(), 2)
		require.Equal(t, "foreign", f.rdb.Get(ctx, key).Val())
	}
}
