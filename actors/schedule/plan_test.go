package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPlan(t *testing.T) {
	const day = "2026-03-02T"
	short := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Format("15:04:05")
	}
	for _, test := range []struct {
		name      string
		s         Schedule
		fire, now string
		runs      string
		missed    string // first, last
		count     int
		next      string
	}{
		{"on time", Schedule{Cron: "0 * * * *"}, "09:00:00", "09:00:00", "09:00:00", "- -", 0, "10:00:00"},
		{"late, and on time", Schedule{Cron: "0 * * * *"}, "09:00:00", "09:01:00", "09:00:00", "- -", 0, "10:00:00"},
		{"late, on time, several", Schedule{Cron: "*/20 * * * * *"}, "09:00:00", "09:00:50", "09:00:00 09:00:20 09:00:40", "- -", 0, "09:01:00"},

		{"one: a single tick runs however late", Schedule{Cron: "0 9 * * *"}, "09:00:00", "20:00:00", "09:00:00", "- -", 0, "09:00:00"},
		{"one: the latest for all", Schedule{Cron: "0 * * * *"}, "09:00:00", "12:30:00", "12:00:00", "09:00:00 11:00:00", 3, "13:00:00"},
		{"one: not the ones on time besides", Schedule{Cron: "*/20 * * * * *"}, "09:00:00", "09:01:01", "09:01:00", "09:00:00 09:00:40", 3, "09:01:20"},
		{"skip: all missed", Schedule{Cron: "0 * * * *", Missed: Skip}, "09:00:00", "12:30:00", "", "09:00:00 12:00:00", 4, "13:00:00"},
		{"skip: those on time run", Schedule{Cron: "0 * * * *", Missed: Skip}, "09:00:00", "12:00:30", "12:00:00", "09:00:00 11:00:00", 3, "13:00:00"},
		{"skip: grace", Schedule{Cron: "0 * * * *", Missed: Skip, Grace: time.Hour}, "09:00:00", "10:30:00", "10:00:00", "09:00:00 09:00:00", 1, "11:00:00"},
		{"all", Schedule{Cron: "0 * * * *", Missed: RunAll}, "09:00:00", "12:30:00", "09:00:00 10:00:00 11:00:00 12:00:00", "- -", 0, "13:00:00"},

		{"every", Schedule{Every: time.Hour}, "09:00:00", "12:30:00", "12:00:00", "09:00:00 11:00:00", 3, "13:00:00"},
		{"once, late", Schedule{At: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)}, "09:00:00", "20:00:00", "09:00:00", "- -", 0, "-"},
		{"once, skipped", Schedule{At: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC), Missed: Skip}, "09:00:00", "20:00:00", "", "09:00:00 09:00:00", 1, "-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := ready(t, test.s).Plan(at(t, day+test.fire+"Z"), at(t, day+test.now+"Z"))
			var runs []string
			for _, r := range p.Runs {
				runs = append(runs, short(r))
			}
			require.Equal(t, test.runs, strings.Join(runs, " "), "runs")
			require.Equal(t, test.missed, short(p.Missed[0])+" "+short(p.Missed[1]), "missed")
			require.Equal(t, test.count, p.Count)
			require.Equal(t, test.next, short(p.Next), "next")
			require.False(t, p.More)
		})
	}
}

// A month of seconds is passed over in no time, and run in batches.
func TestPlanAfterALongTime(t *testing.T) {
	fire, now := at(t, "2026-03-02T09:00:00Z"), at(t, "2026-04-02T09:00:00Z")
	began := time.Now()
	p := ready(t, Schedule{Cron: "* * * * * *"}).Plan(fire, now)
	require.Equal(t, []time.Time{now}, p.Runs)
	require.Equal(t, MaxCount, p.Count)
	require.Equal(t, now.Add(-time.Second), p.Missed[1])
	require.Equal(t, now.Add(time.Second), p.Next)
	require.Less(t, time.Since(began), time.Second)

	all := ready(t, Schedule{Cron: "* * * * * *", Missed: RunAll})
	p = all.Plan(fire, now)
	require.Len(t, p.Runs, MaxRuns)
	require.True(t, p.More)
	require.Equal(t, fire.Add(MaxRuns*time.Second), p.Next)
}

// What a plan runs, passes over and leaves are all ticks from the one that was due, each once.
func TestPlanLosesNoTick(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Schedule{
			Cron: rapid.SampledFrom([]string{"*/7 * * * * *", "* * * * *", "0,30 2 * * *", "0 0 * * 0", "13 1-5 * * *"}).Draw(t, "cron"),
			Zone: rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/Sao_Paulo"}).Draw(t, "zone"),
			Name: "s", Missed: rapid.SampledFrom([]Missed{RunOne, RunAll, Skip}).Draw(t, "missed"),
		}
		s.Task.Type = "noop"
		c, err := Compile(s)
		require.NoError(t, err)
		from := time.Unix(rapid.Int64Range(1540000000, 1545000000).Draw(t, "from"), 0)
		fire := c.Next(from)
		now := fire.Add(time.Duration(rapid.Int64Range(0, 400_000).Draw(t, "late")) * time.Millisecond *
			time.Duration(rapid.SampledFrom([]int{1, 60, 3600}).Draw(t, "unit")))
		p := c.Plan(fire, now)
		tick := fire
		if !p.Missed[0].IsZero() {
			require.Equal(t, fire, p.Missed[0])
			require.NotEqual(t, RunAll, s.Missed)
			n := 0
			for ; !tick.After(p.Missed[1]); tick = c.Next(tick) {
				n++
			}
			require.Equal(t, min(n, MaxCount), p.Count)
		}
		for _, r := range p.Runs {
			require.Equal(t, tick, r)
			require.False(t, r.After(now))
			tick = c.Next(tick)
		}
		require.Equal(t, tick, p.Next)
		require.Equal(t, p.More, !p.Next.After(now))
		if s.Missed == RunOne && fire.Before(now.Add(-c.Grace)) {
			require.Len(t, p.Runs, 1)
		}
	})
}
