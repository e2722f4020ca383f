package schedule

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-run/weir/actors"
)

type params struct{ Team string }

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The same schedule in code and in a file is the same schedule.
func TestOneScheduleInCodeAndFile(t *testing.T) {
	inCode := ready(t, Schedule{
		Name: "daily-report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Overlap: Skip,
		Task: actors.NewTask{Type: "report", Payload: params{"platform"}, Fields: []actors.Field{{Name: "k", Value: "v"}}},
	})
	for name, text := range map[string]string{
		"s.yaml": `
# comment
schedules:
  - name: daily-report
    cron: "0 9 * * 1-5"
    zone: Europe/Berlin
    missed: one
    overlap: skip
    task:
      type: report
      payload: {Team: platform}
      fields: {k: v}
`,
		"s.json": `{"schedules": [{"name": "daily-report", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "grace": "60s", "overlap": "skip",
			"task": {"type": "report", "payload": {"Team": "platform"}, "fields": {"k": "v"}}}]}`,
	} {
		all, err := Load(write(t, name, text))
		require.NoError(t, err)
		require.Len(t, all, 1)
		inFile := ready(t, all[0])
		require.Equal(t, string(inCode.Data), string(inFile.Data))
		require.Equal(t, inCode.Hash, inFile.Hash)
	}
	var back Schedule
	require.NoError(t, json.Unmarshal(inCode.Data, &back))
	require.Equal(t, inCode.Hash, ready(t, back).Hash, "read back from the store")
}

func TestPayloads(t *testing.T) {
	for name, payload := range map[string]any{
		"none":  nil,
		"json":  map[string]any{"n": 1.5, "html": "<&>"},
		"text":  actors.Raw{ContentType: "text/plain", Bytes: []byte("good morning")},
		"bytes": actors.Raw{Bytes: []byte{0, 255, 1}},
		"proto": wrapperspb.String("x"),
		"typed": actors.Raw{ContentType: "application/octet-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, Schedule{Every: time.Second, Task: actors.NewTask{Type: "x", Payload: payload}})
			var back Schedule
			require.NoError(t, json.Unmarshal(c.Data, &back), "%s", c.Data)
			again := ready(t, back)
			require.Equal(t, string(c.Data), string(again.Data))
			if payload == nil {
				require.Nil(t, back.Task.Payload)
				return
			}
			wantType, want, err := actors.Encode(payload)
			require.NoError(t, err)
			gotType, got, err := actors.Encode(back.Task.Payload)
			require.NoError(t, err)
			require.Equal(t, wantType, gotType)
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestWhatAFileMayHold(t *testing.T) {
	all, err := Load(write(t, "s.yaml", `
schedules:
  - {name: n, every: 90s, anchor: 2026-01-01T00:30:00Z, task: {type: a, payload: {day: 2026-01-02, n: 12345678901234567890, x: 0x10, yes: true, no: null, list: [1, two]}}}
  - {name: once, at: 2026-12-24T18:00:00+01:00, grace: 10m, missed: skip, task: {type: b, content_type: text/plain, payload: hello}}
  - &base {name: c, cron: "@daily", task: {type: c}}
`))
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, s := range all {
		require.NoError(t, s.Validate())
	}
	require.Equal(t, 90*time.Second, all[0].Every)
	//nolint:testifylint // to the byte: a number must keep its digits
	require.Equal(t, `{"day":"2026-01-02","n":12345678901234567890,"x":16,"yes":true,"no":null,"list":[1,"two"]}`, string(all[0].Task.Payload.(actors.Raw).Bytes))
	require.Equal(t, actors.Raw{ContentType: "text/plain", Bytes: []byte("hello")}, all[1].Task.Payload)

	none, err := Load(write(t, "empty.yaml", ""))
	require.NoError(t, err)
	require.Empty(t, none)
	for name, text := range map[string]string{
		"not YAML": "schedules: [", "a list": "- name: x", "another member": "schedules: []\nscheduled: []", "no list": "schedules: {name: x}",
	} {
		_, err := Load(write(t, "bad.yaml", text))
		require.Error(t, err, name)
	}
	_, err = Load(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What is wrong with one schedule says so, names it, and leaves the others alone.
func TestOneBrokenScheduleOfTen(t *testing.T) {
	all, err := Load(write(t, "s.yaml", `
schedules:
  - {name: good-1, cron: "0 9 * * *", task: {type: a}}
  - {name: zone, cron: "0 9 * * *", zone: Europe/Atlantis, task: {type: a}}
  - {name: cron, cron: "0 25 * * *", task: {type: a}}
  - {name: typo, corn: "0 9 * * *", task: {type: a}}
  - {name: every, every: soon, task: {type: a}}
  - {name: both, every: 90s, cron: "@daily", task: {type: a}}
  - {name: never, cron: "0 0 30 2 *", task: {type: a}}
  - {name: when, every: 90s, when: true, task: {type: a}}
  - just text
  - {name: good-2, every: 90s, task: {type: a}}
`))
	require.NoError(t, err)
	require.Len(t, all, 10)
	for _, s := range all {
		err := s.Validate()
		if strings.HasPrefix(s.Name, "good") {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrInvalid)
		t.Log(err)
		if s.Name != "" {
			require.Contains(t, err.Error(), s.Name)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Schedule{Name: "s", Every: time.Minute, Task: actors.NewTask{Type: "a"}}
	require.NoError(t, good.Validate())
	for want, change := range map[string]func(*Schedule){
		"Name must be set":         func(s *Schedule) { s.Name = "" },
		"at most 200":              func(s *Schedule) { s.Name = strings.Repeat("x", 201) },
		"control characters":       func(s *Schedule) { s.Name = "a\nb" },
		"exactly one of":           func(s *Schedule) { s.Every = 0 },
		"at least 1s":              func(s *Schedule) { s.Every = time.Millisecond },
		"Zone (\"UTC\") goes with": func(s *Schedule) { s.Zone = "UTC" },
		"Anchor":                   func(s *Schedule) { s.Every, s.Cron, s.Anchor = 0, "@daily", time.Now() },
		"different zones":          func(s *Schedule) { s.Every, s.Cron, s.Zone = 0, "CRON_TZ=UTC @daily", "Asia/Tokyo" },
		"names no zone":            func(s *Schedule) { s.Every, s.Cron = 0, "CRON_TZ= @daily" },
		"not the same on every":    func(s *Schedule) { s.Every, s.Cron, s.Zone = 0, "@daily", "Local" },
		"use Every":                func(s *Schedule) { s.Every, s.Cron = 0, "@every 1m" },
		"Grace":                    func(s *Schedule) { s.Grace = time.Millisecond },
		"Missed (\"some\")":        func(s *Schedule) { s.Missed = "some" },
		"Overlap (\"some\")":       func(s *Schedule) { s.Overlap = "some" },
		"makes tasks overlap":      func(s *Schedule) { s.Missed, s.Overlap = RunAll, Skip },
		"Task.ID":                  func(s *Schedule) { s.Task.ID = "x" },
		"Task.Delay":               func(s *Schedule) { s.Task.Delay = 1 },
		"Delay, At, Unique and":    func(s *Schedule) { s.Task.Unique, s.Task.For = "k", time.Hour },
		"Task.Type":                func(s *Schedule) { s.Task.Type = "" },
		"Task.Payload":             func(s *Schedule) { s.Task.Payload = func() {} },
		"comes twice":              func(s *Schedule) { s.Task.Fields = []actors.Field{{Name: "a"}, {Name: "a"}} },
		"bytes with its payload":   func(s *Schedule) { s.Task.Payload = strings.Repeat("x", MaxBytes) },
	} {
		s := good
		change(&s)
		err := s.Validate()
		require.ErrorIs(t, err, ErrInvalid, want)
		require.Contains(t, err.Error(), want)
	}
}

// A field that NewTask gets must be a part of a schedule as data, or be refused there.
func TestEveryFieldOfATaskIsKeptOrRefused(t *testing.T) {
	kept := []string{"Type", "Payload", "Fields"}
	refused := []string{"ID", "Step", "Delay", "At", "Unique", "For"}
	for f := range reflect.TypeFor[actors.NewTask]().Fields() {
		require.Contains(t, append(kept, refused...), f.Name, "say in data.go and check what a schedule does with it")
	}
}

func TestTaskID(t *testing.T) {
	tick := time.Date(2026, 3, 2, 9, 0, 0, 0, time.FixedZone("", 3600))
	require.Equal(t, "s@2026-03-02T08:00:00Z", TaskID("s", tick))
	require.Equal(t, "s@2026-03-02T08:00:00.25Z", TaskID("s", tick.Add(250*time.Millisecond)))
}

func FuzzCron(f *testing.F) {
	f.Add("0 9 * * 1-5", "Europe/Berlin")
	f.Add("CRON_TZ=Asia/Tokyo @daily", "")
	f.Add("*/7 22-2 L * MON#3", "UTC")
	f.Fuzz(func(t *testing.T, pattern, zone string) {
		stop := time.AfterFunc(10*time.Second, func() { panic(pattern + " in " + zone + " takes too long") })
		defer stop.Stop()
		c, err := Compile(Schedule{Name: "s", Cron: pattern, Zone: zone, Task: actors.NewTask{Type: "a"}})
		if err != nil {
			return
		}
		from := time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
		for range 20 {
			next := c.Next(from)
			if next.IsZero() {
				return
			}
			if !next.After(from) {
				t.Fatalf("%q in %q: %s is not after %s", pattern, zone, next, from)
			}
			from = next
		}
	})
}
