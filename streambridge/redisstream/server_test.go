package redisstream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

func TestCluster(t *testing.T) {
	srv := redistest.Start(t, redistest.Args("--cluster-enabled", "yes"))
	require.NoError(t, srv.Client().ClusterAddSlotsRange(ctx, 0, 16383).Err())
	require.Eventually(t, func() bool {
		info, err := srv.Client().ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, 10*time.Second, 10*time.Millisecond)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	defer cluster.Close()

	f := newFixture(t, srv.Client())
	node := newNode("a", streamtest.Lease)
	s := open(t, cluster, f.names, node)
	for i := range 3 {
		f.Add(x(fmt.Sprint(i))...)
	}
	f.Retry("r", "", 0, x("r"))
	f.Pass(time.Millisecond)
	tick, err := s.Tick(ctx, request(10))
	require.NoError(t, err)
	require.Equal(t, 1, tick.Promoted)
	got, err := s.Read(ctx, 10, 0)
	require.NoError(t, err)
	require.Len(t, got, 4)
	var held []streambridge.Held
	for _, e := range got[1:] {
		held = append(held, streambridge.Held{Ref: e.Ref, TaskID: e.Fields[0].Value})
	}
	f.Begin(node, "0", "")
	b, err := s.Beat(ctx, held)
	require.NoError(t, err)
	require.Len(t, b.Saved, 1)
	require.NoError(t, s.Ack(ctx, []messages.Ref{got[0].Ref, held[0].Ref}))
	require.NoError(t, s.Bury(ctx, []streambridge.Burial{{Ref: held[1].Ref, Reason: messages.Reason_REASON_REJECTED, TaskID: "1", Type: "t", Fail: true}}))
	require.NoError(t, s.Move(ctx, "u", held[2:]))
	ls, err := s.Letters(ctx, "", 10)
	require.NoError(t, err)
	require.NoError(t, s.Settle(ctx, ls[0].GetId(), streambridge.Drop))
	_, err = s.Status(ctx)
	require.NoError(t, err)

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err = s.Read(short, 1, 2*time.Second)
	require.NoError(t, err)
	require.Less(t, time.Since(started), time.Second)

	// A process that was killed: its name is free at once.
	require.NoError(t, s.Close())
	open(t, cluster, f.names, newNode("a", streamtest.Lease))
}

func TestAMasterThatIsDemotedIsLeft(t *testing.T) {
	srv, second := redistest.Start(t), redistest.Start(t)
	f := newFixture(t, srv.Client())
	s := open(t, srv.Client(), f.names, newNode("a", streamtest.Lease))
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Read(ctx, 1, 2*time.Second); err != nil {
				failed <- err
				return
			}
		}
	}()
	require.Eventually(t, func() bool { return blocked(t, f.rdb) == 1 }, 10*time.Second, time.Millisecond)
	host, port, _ := net.SplitHostPort(second.Addr())
	require.NoError(t, srv.Client().ReplicaOf(ctx, host, port).Err())
	select {
	case err := <-failed:
		require.NotErrorIs(t, err, streambridge.ErrGroupLost)
		t.Log(err)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the read goes on")
	}
	_, err := s.Read(ctx, 1, time.Second)
	require.Error(t, err)
	_, err = s.Tick(ctx, request(1))
	require.Error(t, err)
	require.NoError(t, srv.Client().ReplicaOf(ctx, "no", "one").Err())
	// What the other master did not have is gone.
	require.Eventually(t, func() bool {
		_, err = s.Read(ctx, 1, time.Millisecond)
		return err == nil || errors.Is(err, streambridge.ErrGroupLost)
	}, 10*time.Second, time.Millisecond)
	f.Add(x("x")...)
	got, err := s.Read(ctx, 1, time.Second)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestWhatIsAcknowledgedGoesFromBehindASlowEntry(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	f.Group("audit")()
	s := open(t, f.rdb, f.names, newNode("a", streamtest.Lease))
	for i := range 1000 {
		require.NoError(t, f.rdb.XAdd(ctx, &redis.XAddArgs{Stream: f.keys.Stream, ID: fmt.Sprintf("%d-0", i+1), Values: []string{"a", "b"}}).Err())
	}
	got, err := s.Read(ctx, 1000, 0)
	require.NoError(t, err)
	var done []messages.Ref
	for i, e := range got {
		if i%100 != 0 {
			done = append(done, e.Ref)
		}
	}
	require.NoError(t, s.Ack(ctx, done))
	ticks := func() (trimmed int64) {
		for {
			tick, err := s.Tick(ctx, request(0))
			require.NoError(t, err)
			trimmed += tick.Trimmed
			if !tick.More {
				return trimmed
			}
		}
	}
	require.Zero(t, ticks(), "the other group has read nothing")
	read, err := f.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "audit", Consumer: "c", Streams: []string{f.keys.Stream, ">"}, Count: 500}).Result()
	require.NoError(t, err)
	f.Pass(time.Minute)
	require.Zero(t, ticks(), "it has acknowledged nothing")
	var ids []string
	for _, m := range read[0].Messages[:400] {
		ids = append(ids, m.ID)
	}
	require.NoError(t, f.rdb.XAck(ctx, f.keys.Stream, "audit", ids...).Err())
	require.NoError(t, f.rdb.HSet(ctx, f.keys.Meta(), "pass", 0).Err())
	require.EqualValues(t, 396, ticks())
	require.Len(t, f.Pending(f.keys.Stream), 10)
	require.Equal(t, 604, f.Len(f.keys.Stream))
	require.Zero(t, ticks())
}

func TestCopiesOfWhatOthersSettledAreForgotten(t *testing.T) {
	f := newFixture(t, redistest.Start(t).Client())
	node := newNode("a", streamtest.Lease)
	s := open(t, f.rdb, f.names, node)
	for i := range 300 {
		f.Add(x(fmt.Sprint(i))...)
	}
	got, err := s.Read(ctx, 300, 0)
	require.NoError(t, err)
	var held []streambridge.Held
	var ids []string
	for i, e := range got {
		f.Begin(node, fmt.Sprint(i), "")
		held = append(held, streambridge.Held{Ref: e.Ref, TaskID: fmt.Sprint(i)})
		ids = append(ids, e.ID)
	}
	b, err := s.Beat(ctx, held)
	require.NoError(t, err)
	require.Len(t, b.Saved, 300)
	require.NoError(t, f.rdb.XAck(ctx, f.keys.Stream, f.names.Group, ids[:299]...).Err())
	saved := func() int64 { return f.rdb.HLen(ctx, f.keys.Prefix+"saved").Val() }
	require.EqualValues(t, 300, saved())
	for range 1000 {
		_, err = s.Tick(ctx, request(0))
		require.NoError(t, err)
		if saved() == 1 {
			break
		}
	}
	require.EqualValues(t, 1, saved())
	require.NoError(t, s.Ack(ctx, []messages.Ref{held[299].Ref}))
	require.Zero(t, saved())
}

// A beat of one full script: what it costs the server to renew an entry.
func BenchmarkBeat(b *testing.B) {
	srv, err := redistest.Run(ctx, redistest.Config{})
	require.NoError(b, err)
	defer srv.Close()
	rdb := srv.Client()
	names := messages.Names{Stream: "s", Group: "g"}
	keys, err := messages.NewKeys(names)
	require.NoError(b, err)
	node := newNode("a", time.Hour)
	s := benchOpen(b, rdb, names, node)
	defer s.Close()
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 500 {
			id := fmt.Sprint("task-", i)
			p.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []string{"task_id", id, "payload", strings.Repeat("x", 200)}})
			p.HSet(ctx, keys.Task(id), "state", "RUNNING", "run", node.Incarnation+":1", "owner", node.Incarnation, "fence", 1)
		}
		return nil
	})
	require.NoError(b, err)
	got, err := s.Read(ctx, 500, 0)
	require.NoError(b, err)
	var held []streambridge.Held
	for i, e := range got {
		held = append(held, streambridge.Held{Ref: e.Ref, TaskID: fmt.Sprint("task-", i), Saved: true})
	}
	require.NoError(b, rdb.ConfigResetStat(ctx).Err())
	b.ResetTimer()
	for b.Loop() {
		if _, err := s.Beat(ctx, held); err != nil {
			b.Fatal(err)
		}
	}
	stats, err := rdb.InfoMap(ctx, "commandstats").Result()
	require.NoError(b, err)
	var calls, us float64
	fmt.Sscanf(stats["Commandstats"]["cmdstat_evalsha"], "calls=%f,usec=%f", &calls, &us)
	b.ReportMetric(us/calls/500, "µs-server/entry")
}

// Reading in batches, acknowledged, against the server's own speed.
func BenchmarkReadAck(b *testing.B) {
	srv, err := redistest.Run(ctx, redistest.Config{})
	require.NoError(b, err)
	defer srv.Close()
	rdb := srv.Client()
	names := messages.Names{Stream: "s", Group: "g"}
	s := benchOpen(b, rdb, names, newNode("a", time.Hour))
	defer s.Close()
	for done := 0; done < b.N; done += 1000 {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 1000 {
				p.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: []string{"task_id", "x", "type", "t", "payload", strings.Repeat("x", 200)}})
			}
			return nil
		})
		require.NoError(b, err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		got, err := s.Read(ctx, 128, 0)
		if err != nil || len(got) == 0 {
			b.Fatal(err, len(got))
		}
		refs := make([]messages.Ref, len(got))
		for i := range got {
			refs[i] = got[i].Ref
		}
		if err := s.Ack(ctx, refs); err != nil {
			b.Fatal(err)
		}
		done += len(got)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
