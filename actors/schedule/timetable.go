package schedule

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // for machines that have no zones

	"github.com/netresearch/go-cron"
)

// timetable is when a schedule fires, and nothing else: pure.
type timetable interface {
	// next is the first tick after t; the zero time for none.
	next(t time.Time) time.Time
}

// searchYears is how far ahead a pattern is looked for: from one 29 February to the next it can be 8 years.
const searchYears = 12

var cronParser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.Extended | cron.DowOrDom).WithMaxSearchYears(searchYears)

func newTimetable(s Schedule) (timetable, error) {
	switch {
	case s.Cron != "":
		return newCronTable(s.Cron, s.Zone)
	case s.Every != 0:
		anchor := s.Anchor
		if anchor.IsZero() {
			anchor = time.Unix(0, 0)
		}
		return everyTable{anchorMS: anchor.UnixMilli(), everyMS: s.Every.Milliseconds()}, nil
	default:
		return onceTable(s.At.UnixMilli()), nil
	}
}

// everyTable is a fixed distance.
type everyTable struct{ anchorMS, everyMS int64 }

func (e everyTable) next(t time.Time) time.Time {
	n := (t.UnixMilli() - e.anchorMS) / e.everyMS
	if t.UnixMilli() < e.anchorMS+n*e.everyMS { // the division went up, towards zero
		n--
	}
	return time.UnixMilli(e.anchorMS + (n+1)*e.everyMS).UTC()
}

// onceTable is one tick, in Unix ms.
type onceTable int64

func (o onceTable) next(t time.Time) time.Time {
	if t.UnixMilli() < int64(o) {
		return time.UnixMilli(int64(o)).UTC()
	}
	return time.Time{}
}

// cronTable matches a pattern against the wall clock of a zone. The parser's own arithmetic is only used in UTC, where
// there are no gaps: a wall clock's time is written as if it were UTC.
type cronTable struct {
	spec  cron.Schedule
	zone  *time.Location
	hours bool // the pattern names its hours; otherwise it goes by elapsed time
}

func newCronTable(pattern, zone string) (timetable, error) {
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		rest, found := strings.CutPrefix(pattern, prefix)
		if !found {
			continue
		}
		name, rest, _ := strings.Cut(rest, " ")
		if zone != "" && zone != name {
			return nil, fmt.Errorf("Cron (%q) and Zone (%q) name different zones", pattern, zone)
		}
		pattern, zone = strings.TrimSpace(rest), name
		if zone == "" {
			return nil, fmt.Errorf("Cron: %s names no zone", prefix)
		}
	}
	if zone == "Local" {
		return nil, fmt.Errorf("Zone (%q) is not the same on every machine: name it, such as Europe/Berlin", zone)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("Zone (%q): %w", zone, err)
	}
	if strings.HasPrefix(pattern, "@every") {
		return nil, fmt.Errorf("Cron (%q): use Every", pattern)
	}
	spec, err := cronParser.Parse(pattern)
	if err != nil {
		return nil, fmt.Errorf("Cron (%q): %w", pattern, err)
	}
	c := cronTable{spec: spec, zone: loc, hours: namesHours(pattern)}
	if c.next(time.Unix(0, 0)).IsZero() && c.next(time.Now()).IsZero() {
		return nil, fmt.Errorf("Cron (%q) never comes", pattern)
	}
	return c, nil
}

// namesHours reports whether a pattern that parses says which hours it means.
func namesHours(pattern string) bool {
	fields := strings.Fields(pattern)
	if len(fields) == 1 {
		return pattern != "@hourly"
	}
	hour := fields[len(fields)-4]
	return hour != "*" && hour != "?"
}

func (c cronTable) next(t time.Time) time.Time {
	if c.hours {
		return c.nextNamed(t)
	}
	return c.nextElapsed(t)
}

// nextNamed takes the wall clock's times in turn, each at the first instant at which the clock shows it, or has just left
// it out. Going from one to the next never goes back in time.
func (c cronTable) nextNamed(t time.Time) time.Time {
	for wall := wallClock(t, c.zone); ; {
		wall = c.spec.Next(wall)
		if wall.IsZero() {
			return wall
		}
		if at := instant(wall, c.zone); at.After(t) {
			return at
		}
	}
}

// nextElapsed looks for the next time under the offset that is in force, and where the clock is changed before that, goes
// on under the new one.
func (c cronTable) nextElapsed(t time.Time) time.Time {
	offset, until := offsetAt(t, c.zone)
	for {
		wall := c.spec.Next(t.UTC().Add(offset))
		if wall.IsZero() {
			return wall
		}
		if at := wall.Add(-offset); until.IsZero() || at.Before(until) {
			return at
		}
		t = until.Add(-time.Nanosecond) // the moment of the change itself may be a tick
		offset, until = offsetAt(until, c.zone)
	}
}

// wallClock is what the clock of a zone shows, written in UTC.
func wallClock(t time.Time, zone *time.Location) time.Time {
	offset, _ := offsetAt(t, zone)
	return t.UTC().Add(offset)
}

// offsetAt is what the zone's clock is ahead of UTC, and when that changes next; the zero time for never.
func offsetAt(t time.Time, zone *time.Location) (offset time.Duration, until time.Time) {
	local := t.In(zone)
	_, seconds := local.Zone()
	_, until = local.ZoneBounds()
	return time.Duration(seconds) * time.Second, until
}

// instant is when the clock of a zone first shows a wall clock's time; for one that it leaves out, the moment at which it
// does.
func instant(wall time.Time, zone *time.Location) time.Time {
	y, m, d := wall.Date()
	near := time.Date(y, m, d, wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), zone)
	start, end := near.ZoneBounds()
	// The change before and the one after: only they can make the time come twice or not at all.
	for _, change := range []time.Time{start, end} {
		if change.IsZero() {
			continue
		}
		before, _ := offsetAt(change.Add(-time.Nanosecond), zone)
		after, _ := offsetAt(change, zone)
		from, to := change.UTC().Add(before), change.UTC().Add(after) // the clock is set from one to the other
		switch {
		case !wall.Before(from) && wall.Before(to):
			return change.UTC() // left out
		case wall.Before(from) && !wall.Before(to):
			return wall.Add(-before) // comes twice: the first time
		}
	}
	offset, _ := offsetAt(near, zone)
	return wall.Add(-offset)
}
