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

func child(name, id, payload string) actors.Spawning {
	return actors.Spawning{Name: name, Task: actors.Submission{
		ID: id, Work: messages.WorkHash("noop", []byte(payload)),
		Fields: []messages.Pair{{Name: "task_id", Value: id}, {Name: "type", Value: "noop"}, {Name: "payload", Value: payload}},
	}}
}

func parking(c actors.Commit, waits ...actors.Wait) actors.Commit {
	c.Outcome, c.Waits = messages.Outcome_OUTCOME_PARKED, waits
	return c
}

// family parks a unit that waits for n children with payloads of that size.
func family(t *testing.T, w *world, s *State, n, size int) actors.Commit {
	t.Helper()
	req, b := begun(t, w, s, "a")
	c := completion(req, b, "")
	wait := actors.Wait{Name: "all", Kind: actors.WaitJoin, For: time.Hour}
	payload := strings.Repeat("p", size)
	for i := range n {
		c.Spawns = append(c.Spawns, child(fmt.Sprint("k", i), fmt.Sprint("a/k", i), payload))
		wait.Children = append(wait.Children, fmt.Sprint("k", i))
	}
	c = parking(c, wait)
	require.NoError(t, s.Commit(t.Context(), c))
	return c
}

// What one activation may start goes into one script: in number, and in bytes.
func TestTheLargestCommit(t *testing.T) {
	srv := redistest.Shared(t)
	rdb := srv.NewClient(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute })
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	for _, size := range []struct{ n, bytes int }{{10_000, 100}, {1000, 63 << 10}} {
		t.Run(fmt.Sprint(size.n), func(t *testing.T) {
			w := newWorld(t, srv.Client())
			s := w.state(t, rdb)
			began := time.Now()
			c := family(t, w, s, size.n, size.bytes)
			t.Logf("%d children of %d bytes: %v", size.n, size.bytes, time.Since(began))
			began = time.Now()
			require.NoError(t, s.Commit(t.Context(), c))
			t.Logf("again: %v", time.Since(began))
			require.EqualValues(t, size.n, srv.Client().XLen(t.Context(), w.keys.Inbox()).Val())
			require.EqualValues(t, size.n, srv.Client().SCard(t.Context(), w.keys.Task("a")+":join::all").Val())
			_, err := s.Cancel(t.Context(), actors.Cancellation{ID: "a"})
			require.NoError(t, err)
			require.Len(t, w.Due(t), size.n)
		})
	}
}

// A child's end costs the same whether its parent waits for three children or for three thousand.
func TestAChildsEndCostsTheSame(t *testing.T) {
	srv := redistest.Start(t)
	end := func(n int) map[string]int {
		w := newWorld(t, srv.Client())
		s := w.state(t, srv.Client())
		family(t, w, s, n, 10)
		d := w.TakeInbox(t, "c")[0]
		req := actors.BeginRequest{
			Task: &messages.Task{TaskId: d.Field("task_id"), Type: "noop", Payload: []byte(d.Field("payload"))}, Entry: d.Ref, Deliveries: 1,
			Consumer: "c", Incarnation: node, Activation: 2,
		}
		b, err := s.Begin(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, actors.Run, b.Answer)
		require.NoError(t, srv.Client().ConfigResetStat(t.Context()).Err())
		require.NoError(t, s.Commit(t.Context(), completion(req, b, "ok")))
		return commands(t, srv.Client())
	}
	few := end(3)
	require.Equal(t, 1, few["srem"])
	require.Zero(t, few["smembers"])
	require.Equal(t, few, end(3000))
}

// commands is how often the server ran each command.
func commands(t *testing.T, rdb *redis.Client) map[string]int {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	found := map[string]int{}
	for line := range strings.Lines(info) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || name == "info" || strings.HasPrefix(name, "config") {
			continue
		}
		var n int
		_, err := fmt.Sscan(strings.SplitN(stats, ",", 2)[0], &n)
		require.NoError(t, err)
		found[name] = n
	}
	return found
}

// A foreign key in the place of a child, of a parent or of a stream spoils nothing else.
func TestForeignKeysAmongFamily(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	ctx := t.Context()
	require.NoError(t, srv.Client().Set(ctx, w.keys.Task("foreign"), "x", 0).Err())
	req, b := begun(t, w, s, "a")
	c := completion(req, b, "")
	c.Spawns = []actors.Spawning{child("k", "foreign", "p"), child("l", "l", "p")}
	wait := actors.Wait{Name: "all", Kind: actors.WaitJoin, For: -1, Children: []string{"k", "l"}, KeepGoing: true}
	require.NoError(t, s.Commit(ctx, parking(c, wait)))
	rec, err := s.Task(ctx, "a")
	require.NoError(t, err)
	require.Contains(t, rec.Units[0].Children(), actors.ChildRecord{
		Name: "k", State: messages.State_STATE_FAILED, Error: "FAILED bad_state: the key " + w.keys.Task("foreign") + " is no record of Weir",
	})

	in := w.TakeInbox(t, "c")
	require.Len(t, in, 1)
	kid := actors.BeginRequest{
		Task: &messages.Task{TaskId: "l", Type: "noop", Payload: []byte("p")}, Entry: in[0].Ref, Deliveries: 1,
		Consumer: "c", Incarnation: node, Activation: 7,
	}
	kb, err := s.Begin(ctx, kid)
	require.NoError(t, err)
	require.NoError(t, srv.Client().Del(ctx, w.keys.Task("a")).Err())
	require.NoError(t, srv.Client().Set(ctx, w.keys.Task("a"), "x", 0).Err())
	require.NoError(t, s.Commit(ctx, completion(kid, kb, "ok")))
	require.Equal(t, "x", srv.Client().Get(ctx, w.keys.Task("a")).Val())

	require.NoError(t, srv.Client().Set(ctx, w.keys.Stream+":next", "x", 0).Err())
	req, b = begun(t, w, s, "b")
	c = completion(req, b, "")
	c.Emits = []actors.Emission{
		{Stream: w.keys.Stream + ":fine", Task: child("", "x", "p").Task}, {Stream: w.keys.Stream + ":next", Task: child("", "x", "p").Task},
	}
	err = s.Commit(ctx, c)
	require.ErrorIs(t, err, actors.ErrNotEmitted)
	require.NotErrorIs(t, err, actors.ErrConflict)
	require.ErrorContains(t, err, "the key is a string and no stream")
	require.Zero(t, srv.Client().Exists(ctx, w.keys.Stream+":fine").Val())
}

// Only a client that shards its keys has to be asked which streams share a slot.
func TestCanEmit(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, single.Close()) })

	require.NoError(t, New(single).CanEmit("anywhere"))
	require.ErrorIs(t, New(cluster).CanEmit("x"), errUnbound)
	for _, c := range []struct {
		ours, theirs string
		can          bool
	}{
		{"{agent}:tasks", "{agent}:tools", true},
		{"{agent}:tasks", "{agent}", true},
		{"agent", "{agent}:tools", true},
		{"agent:tasks", "agent:tasks", true},
		{"agent:tasks", "agent:tools", false},
		{"{agent}:tasks", "{other}:tools", false},
		{"{agent}:tasks", "agent:tools", false},
	} {
		s := New(cluster)
		require.NoError(t, s.Bind(actors.Names{Stream: c.ours}))
		err := s.CanEmit(c.theirs)
		if c.can {
			require.NoError(t, err, "%s to %s", c.ours, c.theirs)
			continue
		}
		require.ErrorContains(t, err, "{agent}:tasks and {agent}:tools")
	}
}
