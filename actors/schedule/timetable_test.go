package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

func ready(t testing.TB, s Schedule) *Compiled {
	t.Helper()
	if s.Name == "" {
		s.Name = "s"
	}
	if s.Task.Type == "" {
		s.Task = actors.NewTask{Type: "noop"}
	}
	c, err := Compile(s)
	require.NoError(t, err)
	return c
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return v
}

// ticks lists the first n ticks after a time, in the zone of that time's schedule.
func ticks(c *Compiled, from time.Time, n int, zone *time.Location) []string {
	var out []string
	for t := c.Next(from); len(out) < n && !t.IsZero(); t = c.Next(t) {
		out = append(out, t.In(zone).Format("01-02 15:04:05 -07"))
	}
	return out
}

func TestNext(t *testing.T) {
	for _, test := range []struct {
		name, from string
		s          Schedule
		want       string // comma separated, in the schedule's zone
	}{
		{"five fields", "2026-03-02T00:00:00Z", Schedule{Cron: "30 9 * * 1-5"}, "03-02 09:30:00 +00, 03-03 09:30:00 +00"},
		{"after the tick itself", "2026-03-02T09:30:00Z", Schedule{Cron: "30 9 * * *"}, "03-03 09:30:00 +00"},
		{"seconds", "2026-03-02T00:00:00Z", Schedule{Cron: "*/20 * * * * *"}, "03-02 00:00:20 +00, 03-02 00:00:40 +00, 03-02 00:01:00 +00"},
		{"a fraction of a second before", "2026-03-02T09:29:59.999Z", Schedule{Cron: "30 9 * * *"}, "03-02 09:30:00 +00"},
		{"either day field", "2026-03-02T00:00:00Z", Schedule{Cron: "0 0 13 * FRI"}, "03-06 00:00:00 +00, 03-13 00:00:00 +00, 03-20 00:00:00 +00"},
		{"last day", "2026-02-01T00:00:00Z", Schedule{Cron: "0 0 L * *"}, "02-28 00:00:00 +00, 03-31 00:00:00 +00"},
		{"macro", "2026-03-02T00:00:01Z", Schedule{Cron: "@weekly"}, "03-08 00:00:00 +00"},
		{"a leap day, with a century between that has none", "2096-03-01T00:00:00Z", Schedule{Cron: "0 0 29 2 *"}, "02-29 00:00:00 +00"},
		{"zone", "2026-01-15T00:00:00Z", Schedule{Cron: "0 9 * * *", Zone: "Asia/Tokyo"}, "01-16 09:00:00 +09"},
		{"zone in the pattern", "2026-01-15T00:00:00Z", Schedule{Cron: "CRON_TZ=America/New_York 0 9 * * *"}, "01-15 09:00:00 -05"},

		// Europe/Berlin: 2026-03-29 02:00 becomes 03:00, 2026-10-25 03:00 becomes 02:00.
		{"gap: once, after it", "2026-03-28T12:00:00Z", Schedule{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "03-29 03:00:00 +02, 03-30 02:30:00 +02"},
		{"gap: once for several", "2026-03-28T12:00:00Z", Schedule{Cron: "0,30 2,3 * * *", Zone: "Europe/Berlin"}, "03-29 03:00:00 +02, 03-29 03:30:00 +02, 03-30 02:00:00 +02"},
		{"gap: around it", "2026-03-28T23:30:00Z", Schedule{Cron: "0 1-4 * * *", Zone: "Europe/Berlin"}, "03-29 01:00:00 +01, 03-29 03:00:00 +02, 03-29 04:00:00 +02"},
		{"gap: elapsed time", "2026-03-29T00:15:00Z", Schedule{Cron: "*/30 * * * *", Zone: "Europe/Berlin"}, "03-29 01:30:00 +01, 03-29 03:00:00 +02, 03-29 03:30:00 +02"},
		{"gap: elapsed time makes up for nothing", "2026-03-29T00:15:00Z", Schedule{Cron: "30 * * * *", Zone: "Europe/Berlin"}, "03-29 01:30:00 +01, 03-29 03:30:00 +02"},
		{"twice: the first time", "2026-10-24T12:00:00Z", Schedule{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "10-25 02:30:00 +02, 10-26 02:30:00 +01"},
		{"twice: asked in the second pass", "2026-10-25T01:10:00Z", Schedule{Cron: "30 2 * * *", Zone: "Europe/Berlin"}, "10-26 02:30:00 +01"},
		{"twice: every hour that is named", "2026-10-24T22:30:00Z", Schedule{Cron: "0 1-4 * * *", Zone: "Europe/Berlin"}, "10-25 01:00:00 +02, 10-25 02:00:00 +02, 10-25 03:00:00 +01, 10-25 04:00:00 +01"},
		{"twice: elapsed time", "2026-10-24T23:45:00Z", Schedule{Cron: "0,30 * * * *", Zone: "Europe/Berlin"}, "10-25 02:00:00 +02, 10-25 02:30:00 +02, 10-25 02:00:00 +01, 10-25 02:30:00 +01, 10-25 03:00:00 +01"},
		{"hourly goes by elapsed time", "2026-10-24T23:45:00Z", Schedule{Cron: "@hourly", Zone: "Europe/Berlin"}, "10-25 02:00:00 +02, 10-25 02:00:00 +01, 10-25 03:00:00 +01"},
		{"a second after the change", "2026-10-25T00:59:58Z", Schedule{Cron: "* * * * * *", Zone: "Europe/Berlin"}, "10-25 02:59:59 +02, 10-25 02:00:00 +01, 10-25 02:00:01 +01"},

		// A day without a midnight, and a half hour.
		{"no midnight", "2018-11-03T12:00:00Z", Schedule{Cron: "0 0 * * *", Zone: "America/Sao_Paulo"}, "11-04 01:00:00 -02, 11-05 00:00:00 -02"},
		{"daily without a midnight", "2018-11-03T12:00:00Z", Schedule{Cron: "@daily", Zone: "America/Sao_Paulo"}, "11-04 01:00:00 -02"},
		{"midnight twice", "2018-02-17T12:00:00Z", Schedule{Cron: "30 23 * * *", Zone: "America/Sao_Paulo"}, "02-17 23:30:00 -02, 02-18 23:30:00 -03"},
		{"half an hour", "2026-10-03T12:00:00Z", Schedule{Cron: "15 2 * * *", Zone: "Australia/Lord_Howe"}, "10-04 02:30:00 +11, 10-05 02:15:00 +11"},
		{"a day that was left out", "2011-12-29T12:00:00Z", Schedule{Cron: "0 9 30 12 *", Zone: "Pacific/Apia"}, "12-31 00:00:00 +14, 12-30 09:00:00 +14"},

		{"every", "2026-03-02T00:00:10Z", Schedule{Every: 90 * time.Minute}, "03-02 01:30:00 +00, 03-02 03:00:00 +00"},
		{"every, anchored", "2026-03-02T00:00:00Z", Schedule{Every: 24 * time.Hour, Anchor: at(t, "2026-03-05T07:00:00+01:00")}, "03-02 06:00:00 +00, 03-03 06:00:00 +00"},
		{"once", "2026-03-02T00:00:00Z", Schedule{At: at(t, "2026-03-05T07:00:00+01:00")}, "03-05 06:00:00 +00"},
		{"once, over", "2026-03-05T06:00:00Z", Schedule{At: at(t, "2026-03-05T07:00:00+01:00")}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := ready(t, test.s)
			zone := time.UTC
			if table, ok := c.table.(cronTable); ok {
				zone = table.zone
			}
			n := strings.Count(test.want, ",") + 1
			require.Equal(t, test.want, strings.Join(ticks(c, at(t, test.from), n, zone), ", "))
		})
	}
}

// However a pattern and a moment are chosen, the next tick is later, and asked just before it, it is the same one.
func TestNextNeverGoesBack(t *testing.T) {
	for _, pattern := range []string{"* * * * *", "*/7 1-4 * * *", "30 2 * * *", "0 0 * * *", "59 59 23 * * *", "15 * 25 10 *"} {
		for _, zone := range []string{"Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"} {
			c := ready(t, Schedule{Cron: pattern, Zone: zone})
			from := at(t, "2018-10-01T00:00:00Z")
			last := time.Time{}
			for range 3000 {
				next := c.Next(from)
				require.True(t, next.After(from), "%s in %s: %s after %s", pattern, zone, next, from)
				require.False(t, next.Before(last), "%s in %s: %s, and %s before", pattern, zone, next, last)
				require.Equal(t, next, c.Next(next.Add(-time.Millisecond)), "%s in %s", pattern, zone)
				from, last = from.Add(23*time.Minute), next
			}
		}
	}
}
