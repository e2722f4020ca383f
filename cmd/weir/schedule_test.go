package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type scheduleRow struct {
	Name       string          `json:"name"`
	State      string          `json:"state"`
	InCode     bool            `json:"in_code"`
	When       string          `json:"when"`
	Next       *time.Time      `json:"next"`
	LastTask   string          `json:"last_task_id"`
	Fired      int64           `json:"fired"`
	Broken     string          `json:"broken"`
	How        string          `json:"how"`
	Definition json.RawMessage `json:"definition"`
}

type scheduleRows struct {
	Schedules []scheduleRow `json:"schedules"`
	Failed    []struct {
		ID    string `json:"id"`
		Error string `json:"error"`
	} `json:"failed"`
}

type scheduleDone struct {
	Done   string `json:"done"`
	InCode bool   `json:"in_code"`
	TaskID string `json:"task_id"`
}

// The life of a schedule, live: no worker is started anew.
func TestScheduleCommands(t *testing.T) {
	s := newSite(t)
	s.worker("--consumer", "w1", "--lease", "3s")
	require.Equal(t, "no schedules\n", s.ok("schedule", "list"))

	added := data[scheduleRows](s, "schedule", "add", "tick:1", "--every", "1s", "--type", "echo", "--payload", `{"a":1}`, "--task-field", "k=v")
	require.Len(t, added.Schedules, 1)
	require.Equal(t, "new", added.Schedules[0].How)
	require.NotNil(t, added.Schedules[0].Next)
	row := func() scheduleRow { return data[scheduleRows](s, "schedule", "list", "tick:1").Schedules[0] }
	eventually(t, "it fires", func() bool { return row().Fired >= 2 })
	eventually(t, "its task runs", func() bool { return s.state(row().LastTask) == "SUCCEEDED" })
	require.Regexp(t, `^tick:1@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`, row().LastTask)
	require.JSONEq(t, `{"name":"tick:1","every":"1s","grace":"1m0s","missed":"one","overlap":"allow","task":{"type":"echo","payload":{"a":1},"fields":{"k":"v"}}}`,
		string(row().Definition))

	require.Equal(t, "schedule tick:1: paused\n", s.ok("schedule", "pause", "tick:1"))
	require.Equal(t, "paused", row().State)
	fired := row().Fired
	now := data[scheduleDone](s, "schedule", "run-now", "tick:1")
	eventually(t, "its task runs now", func() bool { return s.state(now.TaskID) == "SUCCEEDED" })
	require.Equal(t, fired, row().Fired)
	require.Contains(t, s.ok("schedule", "resume", "tick:1"), "resumed, next 2")
	eventually(t, "it goes on", func() bool { return row().Fired > fired })

	// A change counts at once, and leaves one next tick.
	require.Regexp(t, `^schedule tick:1: changed, next `, s.ok("schedule", "add", "tick:1", "--cron", "0 9 1 1 *", "--zone", "Asia/Tokyo", "--type", "echo"))
	require.Equal(t, "0 9 1 1 * Asia/Tokyo", row().When)
	require.Equal(t, "00:00", row().Next.Format("15:04"))
	require.Contains(t, s.ok("schedule", "add", "tick:1", "--cron", "0 9 1 1 *", "--zone", "Asia/Tokyo", "--type", "echo"), "known")
	text := s.ok("schedule", "list")
	for _, want := range []string{"NAME", "tick:1", "0 9 1 1 * Asia/Tokyo", "on", "client"} {
		require.Contains(t, text, want)
	}
	require.Equal(t, "schedule tick:1: removed\n", s.ok("schedule", "remove", "tick:1"))
	for _, verb := range []string{"pause", "resume", "remove", "run-now"} {
		o := s.run("schedule", verb, "tick:1")
		require.Equal(t, 1, o.code)
		require.Contains(t, o.err, `there is no schedule "tick:1"`)
	}
}

func TestScheduleFiles(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "schedules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
schedules:
  - {name: good, every: 1s, task: {type: noop}}
  - {name: bad, cron: "* * * * *", zone: Europe/Atlantis, task: {type: noop}}
`), 0o600))
	w := s.worker("--consumer", "w1", "--lease", "3s", "--schedules", file)
	rows := func() map[string]scheduleRow {
		out := map[string]scheduleRow{}
		for _, r := range data[scheduleRows](s, "schedule", "list").Schedules {
			out[r.Name] = r
		}
		return out
	}
	eventually(t, "the good one fires", func() bool { return rows()["good"].Fired > 0 })
	require.True(t, rows()["good"].InCode)
	require.Equal(t, "broken", rows()["bad"].State)
	require.Contains(t, rows()["bad"].Broken, "Europe/Atlantis")
	require.Contains(t, w.stderr(), "a schedule cannot be used")
	require.Contains(t, s.ok("schedule", "list"), "bad is broken")

	o := s.run("schedule", "add", "good", "--every", "1m", "--type", "noop")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "declared in code")
	removed := data[scheduleDone](s, "schedule", "remove", "good")
	require.True(t, removed.InCode)
	require.NotContains(t, rows(), "good")

	other := newSite(t)
	o = other.run("schedule", "add", "--file", file, "--json")
	require.Equal(t, 1, o.code)
	var got scheduleRows
	require.NoError(t, json.Unmarshal([]byte(o.out), &got))
	require.Len(t, got.Schedules, 1)
	require.Equal(t, "bad", got.Failed[0].ID)
	require.Equal(t, "good", data[scheduleRows](other, "schedule", "list").Schedules[0].Name)
}

func TestScheduleUsage(t *testing.T) {
	s := newSite(t)
	for want, args := range map[string]string{
		"name of one schedule":     "add --every 1s --type noop",
		"--type is missing":        "add x --every 1s",
		"--payload is not JSON":    "add x --every 1s --type noop --payload {",
		"exactly one of Cron":      "add x --type noop",
		"such as 2026":             "add x --at tomorrow --type noop",
		"has passed":               "add x --at 2020-01-01T00:00:00Z --type noop",
		"unknown time zone":        "add x --cron @daily --zone Mars --type noop",
		"either a name or --file":  "add x --file y",
		"--every does not go with": "add --file y --every 1s",
		"Missed":                   "add x --every 1s --missed some --type noop",
		"give the name of one":     "pause",
		"unknown command":          "stop",
	} {
		o := s.run(append([]string{"schedule"}, strings.Fields(args)...)...)
		require.Equal(t, 2, o.code, "%s: %s", args, o.err)
		require.Contains(t, o.err, want, args)
		require.Equal(t, 1, strings.Count(o.err, "\n"), o.err)
	}
	require.Equal(t, 1, s.run("schedule", "add", "--file", "none.yaml").code)
	require.Equal(t, 2, s.run("worker", "--schedules", "none.yaml").code)
}
