package schedule_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/streambridge/memstream"
)

func newClient(t *testing.T) (*schedule.Client, *memstate.State) {
	t.Helper()
	state := memstate.New(memstream.New())
	c, err := schedule.NewClient(state, actors.Names{})
	require.NoError(t, err)
	return c, state
}

func TestClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock begins at midnight UTC
		ctx := t.Context()
		c, state := newClient(t)
		hourly := schedule.Schedule{Name: "s", Cron: "@hourly", Task: actors.NewTask{Type: "noop", Payload: map[string]int{"n": 1}}}
		for _, want := range []schedule.Added{schedule.New, schedule.Known} {
			got, err := c.Add(ctx, hourly)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		time.Sleep(90 * time.Minute)
		hourly.Cron = "30 * * * *"
		got, err := c.Add(ctx, hourly)
		require.NoError(t, err)
		require.Equal(t, schedule.Changed, got)
		list, err := c.List(ctx)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "30 * * * *", list[0].Schedule.Cron)
		require.Equal(t, "02:30", list[0].Next.Format("15:04"), "the next tick of the new pattern, and not this one")

		require.NoError(t, c.Pause(ctx, "s"))
		time.Sleep(24 * time.Hour)
		task, err := c.RunNow(ctx, "s")
		require.NoError(t, err)
		require.Equal(t, "s@2000-01-02T01:30:00Z", task.ID)
		require.NoError(t, c.Resume(ctx, "s"))
		list, err = c.List(ctx, "s")
		require.NoError(t, err)
		require.Equal(t, "02:30", list[0].Next.Format("15:04"))
		require.Zero(t, list[0].Fired)

		inCode, err := c.Remove(ctx, "s")
		require.NoError(t, err)
		require.False(t, inCode)
		list, err = c.List(ctx)
		require.NoError(t, err)
		require.Empty(t, list)
		for _, err := range []error{c.Pause(ctx, "s"), c.Resume(ctx, "s"), second(c.Remove(ctx, "s")), second(c.RunNow(ctx, "s"))} {
			require.ErrorIs(t, err, actors.ErrNoSchedule)
		}
		require.NoError(t, state.Close())
	})
}

func second[T any](_ T, err error) error { return err }

func TestWhatAClientRefuses(t *testing.T) {
	c, state := newClient(t)
	ctx := t.Context()
	task := actors.NewTask{Type: "noop"}
	for _, s := range []schedule.Schedule{
		{Name: "zone", Cron: "@daily", Zone: "Europe/Atlantis", Task: task},
		{Name: "past", At: time.Now().Add(-time.Hour), Task: task},
		{Name: "type", Every: time.Hour, Task: actors.NewTask{Type: "a/b/c"}},
		{Name: "field", Every: time.Hour, Task: actors.NewTask{Type: "a", Fields: []actors.Field{{Name: "task_id"}}}},
		{Name: "due", Every: time.Hour, Task: actors.NewTask{Type: "a", Fields: []actors.Field{{Name: "due", Value: "1"}}}},
		{Name: "when", Every: time.Hour, Task: task, When: func(context.Context, time.Time) (bool, error) { return true, nil }},
	} {
		_, err := c.Add(ctx, s)
		require.ErrorIs(t, err, schedule.ErrInvalid, s.Name)
		require.Contains(t, err.Error(), s.Name)
	}
	declared, err := schedule.Compile(schedule.Schedule{
		Name: "code", Every: time.Hour, Task: task, When: func(context.Context, time.Time) (bool, error) { return true, nil },
	})
	require.NoError(t, err)
	_, err = state.DeclareSchedule(ctx, actors.ScheduleDeclaration{
		Name: "code", Definition: declared.Data, Hash: declared.Hash, InCode: true, Start: true, Next: declared.Next(time.Now()),
	})
	require.NoError(t, err)
	_, err = c.Add(ctx, schedule.Schedule{Name: "code", Every: time.Minute, Task: task})
	require.ErrorIs(t, err, schedule.ErrInCode)
	list, err := c.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].HasWhen)
	require.NoError(t, list[0].Err)
	require.NoError(t, c.Pause(ctx, "code"))
	require.NoError(t, c.Resume(ctx, "code"))
	_, err = c.RunNow(ctx, "code")
	require.NoError(t, err)
	inCode, err := c.Remove(ctx, "code")
	require.NoError(t, err)
	require.True(t, inCode)
}
