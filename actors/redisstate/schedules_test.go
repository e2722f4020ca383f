package redisstate

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge/redistest"
)

// Of schedules, only the set itself and what a client added are kept for ever; what is forgotten leaves the set.
func TestSchedulesAreForgotten(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	rdb, ctx := srv.Client(), t.Context()
	past := time.Now().Add(-time.Minute)
	declare := func(d actors.ScheduleDeclaration) {
		d.Hash, d.Definition, d.TTL = "h", []byte("{}"), time.Hour
		_, err := s.DeclareSchedule(ctx, d)
		require.NoError(t, err)
	}
	declare(actors.ScheduleDeclaration{Name: "code", InCode: true, Start: true, Next: past})
	declare(actors.ScheduleDeclaration{Name: "client", Next: past})
	ttl := func(name string) time.Duration { return rdb.PTTL(ctx, w.keys.Schedule(name)).Val() }
	require.InDelta(t, time.Hour, ttl("code"), float64(time.Minute))
	require.EqualValues(t, -1, ttl("client"))
	require.EqualValues(t, -1, rdb.PTTL(ctx, w.keys.Schedules()).Val())

	// Over: a client's is forgotten too.
	fired, err := s.FireSchedule(ctx, actors.ScheduleFire{Name: "client", Hash: "h", Tick: past, TTL: time.Hour})
	require.NoError(t, err)
	require.Equal(t, actors.ScheduleMoved, fired.Outcome)
	require.InDelta(t, time.Hour, ttl("client"), float64(time.Minute))

	_, err = s.RemoveSchedule(ctx, "code")
	require.NoError(t, err)
	require.InDelta(t, removedTTL, ttl("code"), float64(time.Minute))

	// A hash that expired.
	declare(actors.ScheduleDeclaration{Name: "due", InCode: true, Start: true, Next: past})
	require.NoError(t, rdb.Del(ctx, w.keys.Schedule("due"), w.keys.Schedule("client")).Err())
	list, err := s.Schedules(ctx)
	require.NoError(t, err)
	require.Empty(t, list.Schedules)
	for rdb.Exists(ctx, w.keys.Schedules()).Val() == 1 { // the one at random comes in time
		_, err := s.DueSchedules(ctx, actors.ScheduleQuery{Limit: 1})
		require.NoError(t, err)
	}
}

// Many schedules that nobody here may fire do not keep it from the one that it may.
func TestSchedulesOfOthersDoNotHideOurs(t *testing.T) {
	srv := redistest.Shared(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	for i := range 500 {
		_, err := s.DeclareSchedule(t.Context(), actors.ScheduleDeclaration{
			Name: "other-" + time.Duration(i).String(), InCode: true, Start: true, Hash: "theirs", Next: time.Unix(1, 0), TTL: time.Hour,
		})
		require.NoError(t, err)
	}
	_, err := s.DeclareSchedule(t.Context(), actors.ScheduleDeclaration{Name: "ours", InCode: true, Start: true, Hash: "ours", Next: time.Unix(2, 0), TTL: time.Hour})
	require.NoError(t, err)
	due, err := s.DueSchedules(t.Context(), actors.ScheduleQuery{Hashes: []string{"ours"}, Limit: 10})
	require.NoError(t, err)
	require.Len(t, due.Due, 1)
	require.Equal(t, "ours", due.Due[0].Name)
}

// Without memory a fire is refused as a whole, and comes when there is some again.
func TestFireOnAFullServer(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.NewClient()
	t.Cleanup(func() { rdb.Close() })
	w := newWorld(t, rdb)
	s := w.state(t, rdb)
	past := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	_, err := s.DeclareSchedule(t.Context(), actors.ScheduleDeclaration{Name: "a", Hash: "h", Definition: []byte("{}"), Next: past})
	require.NoError(t, err)
	fire := actors.ScheduleFire{Name: "a", Hash: "h", Tick: past, Next: past.Add(time.Hour), Runs: []actors.ScheduleRun{{
		Tick: past, Task: actors.Submission{ID: "a@1", Fields: []actors.Field{{Name: "task_id", Value: "a@1"}, {Name: "type", Value: "x"}}},
	}}}
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = s.FireSchedule(t.Context(), fire)
	require.True(t, redis.HasErrorPrefix(err, "OOM"), "%v", err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	list, err := s.Schedules(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, past.Equal(list.Schedules[0].Next))
	require.Zero(t, list.Schedules[0].Fired)
	fired, err := s.FireSchedule(t.Context(), fire)
	require.NoError(t, err)
	require.Equal(t, actors.ScheduleMoved, fired.Outcome)
	require.EqualValues(t, 1, rdb.XLen(t.Context(), w.keys.Stream).Val())
}
