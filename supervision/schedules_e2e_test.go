package supervision_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/supervision"
)

// A schedule's task runs with its tick; a broken schedule beside it neither stops the node nor keeps it from being ready.
func TestAScheduleRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		type seen struct {
			id  string
			due time.Time
		}
		ran := make(chan seen, 100)
		cfg := b.config("n1", actors.Agents{"report": actors.Func(func(c *actors.Context, m hello) (actors.None, error) {
			ran <- seen{c.ID(), c.Info().Due}
			return nil, nil
		})})
		cfg.Schedules = []schedule.Schedule{
			{Name: "each second", Every: time.Second, Task: actors.NewTask{Type: "report", Payload: hello{"x"}}},
			{Name: "broken", Cron: "0 0 * * *", Zone: "Europe/Atlantis", Task: actors.NewTask{Type: "report"}},
		}
		rt, stop := start(t, cfg)
		first, second := <-ran, <-ran
		require.Equal(t, schedule.TaskID("each second", first.due), first.id)
		require.Equal(t, first.due.Add(time.Second), second.due)
		require.NoError(t, rt.Ready())
		require.EqualValues(t, 1, rt.Stats().SchedulesBroken)
		require.GreaterOrEqual(t, rt.Stats().SchedulesFired, int64(2))
		stop()
		_, state := b.node()
		c, err := schedule.NewClient(state, b.names)
		require.NoError(t, err)
		list, err := c.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.ErrorContains(t, list[0].Err, "Europe/Atlantis")
		require.Equal(t, rt.Stats().SchedulesFired, list[1].Fired)
	})
}

// A state that keeps no schedules is refused where there are some to keep.
func TestSchedulesNeedAStateThatKeepsThem(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		stream, state := b.node()
		cfg := b.configOf("n1", stream, struct{ actors.State }{state}, actors.Agents{
			"a": actors.Func(func(*actors.Context, actors.Raw) (actors.None, error) { return nil, nil }),
		})
		cfg.Schedules = []schedule.Schedule{{Name: "s", Every: time.Second, Task: actors.NewTask{Type: "a"}}}
		_, err := supervision.New(cfg)
		require.ErrorContains(t, err, "Schedules (1)")
		cfg.Schedules = nil
		_, err = supervision.New(cfg)
		require.NoError(t, err)
	})
}
