package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-run/weir/actors"
)

// Missed says what becomes of ticks that were missed: see Schedule.Grace.
type Missed string

// Overlap says what a tick does while the task of the tick before has not ended.
type Overlap string

const (
	// RunOne makes up for missed ticks with one run, whose Due is the latest of them. The default.
	RunOne Missed = "one"
	// RunAll runs each missed tick, oldest first.
	RunAll Missed = "all"

	// Allow starts the task whatever the one before does. The default: no tick is lost that nobody asked to lose.
	Allow Overlap = "allow"

	// CancelOld cancels the task before, and starts the new one. Between the two, nothing may run for a moment.
	CancelOld Overlap = "cancel-old"

	// Skip is for both: Missed passes over missed ticks, Overlap passes over a tick while the task before has not ended.
	Skip = "skip"
)

const (
	// DefaultGrace is how late a tick may be and still be on time where Schedule.Grace does not say.
	DefaultGrace = time.Minute
	// Forget is how long a schedule of the code is remembered after the last node that declares it has gone.
	Forget = 90 * 24 * time.Hour
	// MaxBytes is how large a schedule may be as data, its payload included.
	MaxBytes = 64 << 10
	// MaxName is the longest name in bytes.
	MaxName = 200
)

// ErrInvalid: a schedule that can never fire as it is; the message names the field.
var ErrInvalid = errors.New("invalid schedule")

// Schedule is a task that comes by the clock. Exactly one of Cron, Every and At is set.
type Schedule struct {
	// Name is unique on the stream: at most 200 bytes of UTF-8, without control characters. It is part of the tasks' ids.
	Name string
	// Cron is a pattern of five fields, or six with seconds. It may begin with "CRON_TZ=<zone> " in place of Zone.
	Cron string
	// Every is a fixed distance of at least a second, in whole milliseconds.
	Every time.Duration
	// Anchor is a tick of Every, from which all others follow. Default: the beginning of 1970 in UTC, so that "every 24h"
	// is midnight UTC.
	Anchor time.Time
	// At is the one tick of a schedule that fires once.
	At time.Time
	// Zone names the wall clock that Cron is matched against, as IANA does: "Europe/Berlin". Default "UTC".
	Zone string
	// Grace is how late a tick may be and still be on time. Default a minute. What is later was missed.
	Grace time.Duration
	// Missed says what becomes of missed ticks. Default RunOne.
	Missed Missed
	// Overlap says what a tick does while the task of the tick before has not ended, in the group of the node that fires.
	// Default Allow. RunAll goes with Allow only.
	Overlap Overlap
	// Task is what each tick submits. Its ID and Step are empty: the tick gives it its id.
	Task actors.NewTask
	// When is asked on the node that is about to fire; false passes over the tick, and so does an error or a panic. It gets
	// 10 s. Several nodes may ask, one of them fires. It is code: a schedule from a file or a client has none, and only nodes
	// that declare it with a When fire it. A change of its code alone is no change of the schedule.
	When func(ctx context.Context, tick time.Time) (bool, error)

	// broken is why a schedule that was read from a file could not be read.
	broken error
}

// WithDefaults returns a copy in which every zero that has a default has it.
func (s Schedule) WithDefaults() Schedule {
	s.Missed = cmp.Or(s.Missed, RunOne)
	s.Overlap = cmp.Or(s.Overlap, Allow)
	s.Grace = cmp.Or(s.Grace, DefaultGrace)
	return s
}

// Validate says why the schedule cannot fire, or nil. The error wraps ErrInvalid and names field and value.
func (s Schedule) Validate() error {
	_, err := Compile(s)
	return err
}

func (s Schedule) check() error {
	if s.broken != nil {
		return s.broken
	}
	if err := checkName(s.Name); err != nil {
		return err
	}
	kinds := 0
	for _, set := range []bool{s.Cron != "", s.Every != 0, !s.At.IsZero()} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("exactly one of Cron (%q), Every (%s) and At (%s) must be set", s.Cron, s.Every, timeText(s.At))
	case s.Zone != "" && s.Cron == "":
		return fmt.Errorf("Zone (%q) goes with Cron", s.Zone)
	case !s.Anchor.IsZero() && s.Every == 0:
		return fmt.Errorf("Anchor (%s) goes with Every", timeText(s.Anchor))
	case s.Every != 0 && (s.Every < time.Second || s.Every%time.Millisecond != 0):
		return fmt.Errorf("Every (%s) must be at least 1s, in whole milliseconds", s.Every)
	case s.Grace < time.Second:
		return fmt.Errorf("Grace (%s) must be at least 1s", s.Grace)
	case s.Missed != RunOne && s.Missed != RunAll && s.Missed != Skip:
		return fmt.Errorf("Missed (%q) must be one, all or skip", s.Missed)
	case s.Overlap != Allow && s.Overlap != CancelOld && s.Overlap != Skip:
		return fmt.Errorf("Overlap (%q) must be allow, skip or cancel-old", s.Overlap)
	case s.Missed == RunAll && s.Overlap != Allow:
		return fmt.Errorf("Missed (%s) makes tasks overlap, which Overlap (%s) does not let them", s.Missed, s.Overlap)
	case s.Task.ID != "" || s.Task.Step != "":
		return fmt.Errorf("Task.ID (%q) and Task.Step (%q) must be empty: a tick gives its task an id", s.Task.ID, s.Task.Step)
	case s.Task.Delay != 0 || !s.Task.At.IsZero() || s.Task.Unique != "" || s.Task.For != 0:
		return errors.New("Task.Delay, At, Unique and For must be empty: a tick says when its task runs, and there is one of each")
	case s.Task.Type == "":
		return errors.New("Task.Type must be set")
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("Name must be set")
	case len(name) > MaxName:
		return fmt.Errorf("Name (%d bytes) must have at most %d", len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("Name (%q) must be UTF-8 without control characters", name)
	}
	return nil
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return "not set"
	}
	return t.Format(time.RFC3339)
}

// TaskID is the id of a tick's task: "<name>@<tick>", the tick in UTC as RFC 3339, with milliseconds where it has some.
func TaskID(name string, tick time.Time) string {
	return name + "@" + tick.UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
