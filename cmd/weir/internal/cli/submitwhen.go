package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-run/weir/actors"
)

// whenFlags say when a task joins the stream, and what only one task at a time is for. Lines of a file have members of the
// same names.
type whenFlags struct {
	delay  time.Duration
	at     string
	unique string
	period time.Duration
}

func (f *whenFlags) add(fs *pflag.FlagSet) {
	fs.DurationVar(&f.delay, "delay", 0, "let the task join the stream that much later, such as 90s or 2h30m")
	fs.StringVar(&f.at, "at", "", "let it join the stream at that time, such as 2031-05-04T15:00:00+02:00 (RFC 3339)")
	fs.StringVar(&f.unique, "unique", "", "add nothing while another task has this key, and answer with that one; goes with --for")
	fs.DurationVar(&f.period, "for", 0, "how long the --unique key is taken, from the submission on")
}

// check finds what does not fit together before anything is sent.
func (f whenFlags) check() error {
	switch _, err := parseAt(f.at); {
	case err != nil:
		return usagef("--at: %v", err)
	case f.delay < 0:
		return usagef("--delay (%v) must not be negative", f.delay)
	case f.delay != 0 && f.at != "":
		return usagef("--delay and --at exclude each other")
	case f.unique != "" && f.period <= 0:
		return usagef("--unique needs --for, how long the key is taken")
	case f.unique == "" && f.period != 0:
		return usagef("--for goes with --unique")
	}
	return nil
}

// apply gives a task what it does not say itself.
func (f whenFlags) apply(t *actors.NewTask) {
	if t.Delay == 0 && t.At.IsZero() {
		t.Delay = f.delay
		t.At, _ = parseAt(f.at) // checked before
	}
	if t.Unique == "" {
		t.Unique, t.For = f.unique, f.period
	}
}

// parseAt reads a time; the zero time for none.
func parseAt(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time in RFC 3339, such as 2031-05-04T15:00:00Z", s)
	}
	return at, nil
}

// parseDuration reads a duration; 0 for none.
func parseDuration(member, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s %q is not a duration, such as 90s", member, s)
	}
	return d, nil
}

// when reads the members of a line that say when.
func (in *taskLine) when(t *actors.NewTask) (err error) {
	if t.Delay, err = parseDuration("delay", in.Delay); err != nil {
		return err
	}
	if t.For, err = parseDuration("for", in.For); err != nil {
		return err
	}
	t.Unique = in.Unique
	if t.At, err = parseAt(in.At); err != nil {
		return fmt.Errorf("at: %w", err)
	}
	return nil
}

// dueText says when a task that waits for its time goes on.
func dueText(due time.Time) string {
	if due.IsZero() {
		return "is due now"
	}
	return fmt.Sprintf("is due %s (in %s)", clock(due), age(max(0, time.Until(due))))
}
