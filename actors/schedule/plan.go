package schedule

import (
	"fmt"
	"time"
)

const (
	// MaxRuns is how many ticks one plan runs.
	MaxRuns = 50
	// MaxCount is up to where missed ticks are counted.
	MaxCount = 1000
)

// Compiled is a schedule that can fire. It never changes.
type Compiled struct {
	Schedule
	// Data is the schedule without its code, as JSON: what the store keeps.
	Data []byte
	// Hash names what the schedule says: equal ones fire the same.
	Hash string

	table timetable
}

// Compile checks a schedule and gives it its defaults. The error wraps ErrInvalid and names field and value.
func Compile(s Schedule) (*Compiled, error) {
	s = s.WithDefaults()
	fail := func(err error) (*Compiled, error) {
		return nil, fmt.Errorf("schedule %q: %w: %w", clip(s.Name), ErrInvalid, err)
	}
	if err := s.check(); err != nil {
		return fail(err)
	}
	table, err := newTimetable(s)
	if err != nil {
		return fail(err)
	}
	data, err := encode(s)
	if err != nil {
		return fail(err)
	}
	return &Compiled{Schedule: s, Data: data, Hash: hashOf(data), table: table}, nil
}

// Next is the first tick after t, in UTC; the zero time where there is none any more.
func (c *Compiled) Next(t time.Time) time.Time { return c.table.next(t) }

// Plan is what a node does about a schedule that is due.
type Plan struct {
	// Runs are the ticks to run, oldest first.
	Runs []time.Time
	// Missed are the first and the last tick that are passed over since they were missed; zero times for none.
	Missed [2]time.Time
	// Count is how many they are, up to MaxCount.
	Count int
	// Next is the tick after all of them; the zero time for none.
	Next time.Time
	// More says that Next is due already.
	More bool
}

// Plan decides what becomes of a schedule at the time now whose oldest tick that has not been fired is fire. It is pure: the
// same on every node, whatever its clock.
func (c *Compiled) Plan(fire, now time.Time) Plan {
	from := fire
	var p Plan
	if fire.Before(now.Add(-c.Grace)) {
		switch c.Missed {
		case RunAll:
		case Skip:
			last := c.latest(fire, now.Add(-c.Grace).Add(-time.Millisecond))
			p.pass(c, fire, last)
			from = c.Next(last)
		default:
			from = c.latest(fire, now)
			if before := c.latest(fire, from.Add(-time.Millisecond)); from.After(fire) {
				p.pass(c, fire, before)
			}
		}
	}
	for p.Next = from; !p.Next.IsZero() && !p.Next.After(now); p.Next = c.Next(p.Next) {
		if len(p.Runs) == MaxRuns {
			p.More = true
			break
		}
		p.Runs = append(p.Runs, p.Next)
	}
	return p
}

// pass notes the ticks from first to last as missed.
func (p *Plan) pass(c *Compiled, first, last time.Time) {
	p.Missed = [2]time.Time{first, last}
	for t := first; !t.IsZero() && !t.After(last) && p.Count < MaxCount; t = c.Next(t) {
		p.Count++
	}
}

// latest is the last tick that is not after limit, known to be first or later. It takes a few dozen looks, however many
// ticks lie between.
func (c *Compiled) latest(first, limit time.Time) time.Time {
	low, high := first, limit // no tick after high counts, and low is one that does
	for high.Sub(low) >= time.Millisecond {
		middle := low.Add(high.Sub(low) / 2)
		next := c.Next(middle)
		if next.IsZero() || next.After(limit) {
			// Nothing after the middle, but perhaps between.
			if next = c.Next(low); next.IsZero() || next.After(middle) {
				return low
			}
			high = middle
			continue
		}
		low = next
	}
	return low
}
