package memstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge/memstream"
)

var _ actors.ScheduleDesk = (*State)(nil)

// removedTTL is how long a removed schedule of the code is refused to nodes that had declared it before: they ask within
// hours.
const removedTTL = 7 * 24 * time.Hour

// DeclareSchedule writes a definition, or finds the same one there; see actors.ScheduleDesk.
func (s *State) DeclareSchedule(ctx context.Context, d actors.ScheduleDeclaration) (answer actors.ScheduleDeclared, err error) {
	err = s.script(ctx, "declare schedule", func(tx *memstream.Tx) error {
		answer = declare(tx, d)
		return nil
	})
	return answer, err
}

func declare(tx *memstream.Tx, d actors.ScheduleDeclaration) actors.ScheduleDeclared {
	all := tx.Schedules()
	one := all[d.Name]
	if one != nil && one.Removed {
		if d.InCode && !d.Start {
			tx.ExpireSchedule(one, d.TTL)
			return actors.ScheduleRemoved
		}
		delete(all, d.Name)
		one = nil
	}
	switch {
	case one == nil:
	case !d.InCode && one.InCode:
		return actors.ScheduleTaken
	case !d.InCode && one.Hash == d.Hash:
		return actors.ScheduleKnown
	case d.InCode && !one.InCode && (!d.Start || d.Broken != ""):
		return actors.ScheduleOther
	}
	answer := actors.ScheduleNew
	if d.Broken != "" {
		if one == nil {
			one = &memstream.Schedule{Name: d.Name, DeclaredMS: tx.NowMS}
			all[d.Name] = one
		} else {
			answer = actors.ScheduleKnown
		}
		one.InCode, one.Broken = true, d.Broken
		tx.ExpireSchedule(one, d.TTL)
		return answer
	}
	if d.InCode && one != nil && one.Hash != "" {
		if one.Hash == d.Hash {
			one.InCode = true
			if d.Start {
				one.Broken = ""
			}
			tx.ExpireSchedule(one, d.TTL)
			return actors.ScheduleKnown
		}
		if !d.Start {
			return actors.ScheduleOther
		}
	}
	switch {
	case one == nil:
		one = &memstream.Schedule{Name: d.Name}
		all[d.Name] = one
	case one.Hash != "":
		answer = actors.ScheduleChanged
	}
	one.Definition, one.Hash, one.DeclaredMS, one.InCode = slices.Clone(d.Definition), d.Hash, tx.NowMS, d.InCode
	one.Broken, one.Moved = "", memstream.ScheduleMove{}
	if one.NextMS = ms(d.Next); one.Paused {
		one.NextMS = 0
	}
	ttl := d.TTL
	if !d.InCode {
		ttl = 0
	}
	tx.ExpireSchedule(one, ttl)
	return answer
}

// DueSchedules lists what is due; see actors.ScheduleDesk.
func (s *State) DueSchedules(ctx context.Context, q actors.ScheduleQuery) (due actors.SchedulesDue, err error) {
	err = s.script(ctx, "due schedules", func(tx *memstream.Tx) error {
		due.Now = tick(tx.NowMS)
		var ready []*memstream.Schedule
		for _, one := range tx.Schedules() {
			if one.Removed {
				continue
			}
			due.Known++
			switch {
			case one.NextMS == 0 || one.Hash == "":
			case one.NextMS > tx.NowMS:
				if due.Soonest.IsZero() || one.NextMS < due.Soonest.UnixMilli() {
					due.Soonest = tick(one.NextMS)
				}
			case !one.InCode || slices.Contains(q.Hashes, one.Hash):
				ready = append(ready, one)
			}
		}
		slices.SortFunc(ready, func(a, b *memstream.Schedule) int {
			return cmp.Or(cmp.Compare(a.NextMS, b.NextMS), cmp.Compare(a.Name, b.Name))
		})
		if due.More = len(ready) > q.Limit; due.More {
			ready = ready[:q.Limit]
		}
		for _, one := range ready {
			found := actors.ScheduleDue{Name: one.Name, Tick: tick(one.NextMS), Hash: one.Hash}
			if !one.InCode {
				found.Definition = slices.Clone(one.Definition)
			}
			due.Due = append(due.Due, found)
		}
		return nil
	})
	return due, err
}

// FireSchedule goes on from one tick to another; see actors.ScheduleDesk.
func (s *State) FireSchedule(ctx context.Context, f actors.ScheduleFire) (fired actors.ScheduleFired, err error) {
	err = s.script(ctx, "fire schedule", func(tx *memstream.Tx) error {
		fired = s.fire(tx, f)
		return nil
	})
	return fired, err
}

func (s *State) fire(tx *memstream.Tx, f actors.ScheduleFire) actors.ScheduleFired {
	one := tx.Schedules()[f.Name]
	if one == nil || one.Removed {
		return actors.ScheduleFired{Outcome: actors.ScheduleStale}
	}
	refused := func(why actors.ScheduleOutcome) actors.ScheduleFired {
		return actors.ScheduleFired{Outcome: why, Next: tick(one.NextMS)}
	}
	at := f.Tick.UnixMilli()
	switch {
	case one.NextMS != at && one.Moved.TickMS == at && one.Moved.By == f.Incarnation:
		return actors.ScheduleFired{Outcome: actors.ScheduleOutcome(one.Moved.Outcome), Next: tick(one.NextMS), Task: one.Moved.Busy}
	case one.NextMS != at:
		return refused(actors.ScheduleStale)
	case one.Hash == "" || one.Hash != f.Hash:
		return refused(actors.ScheduleForeign)
	case tx.NowMS < at:
		return refused(actors.ScheduleEarly)
	}
	out := actors.ScheduleFired{Outcome: actors.ScheduleMoved, Next: f.Next}
	if len(f.Runs) > 0 && f.Overlap != actors.OverlapAllowed && one.Task != "" && !ended(tx, one.Task) {
		if f.Overlap == actors.OverlapRefused {
			return actors.ScheduleFired{Outcome: actors.ScheduleBusy, Next: tick(one.NextMS), Task: one.Task}
		}
		out.Outcome, out.Task = actors.ScheduleOverlapped, one.Task
	}
	if out.Outcome == actors.ScheduleMoved && len(f.Runs) > 0 {
		if most := f.Runs[0].Task.MaxLen; most > 0 && tx.Length()+int64(len(f.Runs)) > most {
			return refused(actors.ScheduleFull)
		}
		for _, run := range f.Runs {
			t := run.Task
			t.MaxLen = 0
			submit(tx, t, field(t.Fields, s.bound.Load().names.Fields.Type))
			one.LastMS, one.Task = run.Tick.UnixMilli(), t.ID
		}
		one.Fired += int64(len(f.Runs))
	}
	one.Vetoed += f.Vetoed
	one.Missed += f.Missed
	switch {
	case out.Outcome == actors.ScheduleOverlapped:
		one.Overlapped += int64(len(f.Runs))
		one.PassedMS, one.Why = at, "the task before has not ended"
	case f.Vetoed+f.Missed > 0:
		one.PassedMS, one.Why = at, f.Why
	}
	one.Moved = memstream.ScheduleMove{TickMS: at, By: f.Incarnation, Outcome: int(out.Outcome), Busy: out.Task}
	one.NextMS = ms(f.Next)
	if one.InCode || f.Next.IsZero() {
		tx.ExpireSchedule(one, f.TTL)
	}
	return out
}

// ended reports whether a task has ended in this group, or is forgotten: one that was submitted and not begun has a marker
// and no record.
func ended(tx *memstream.Tx, id string) bool {
	if t := tx.Task(id); t != nil && t.Units[""] != nil {
		return memstream.Ended(t.Units[""].State)
	}
	return tx.Marks(id) == nil
}

// PauseSchedule lets nothing be next; see actors.ScheduleDesk.
func (s *State) PauseSchedule(ctx context.Context, name string) error {
	return s.setSchedule(ctx, "pause", name, func(_ *memstream.Tx, one *memstream.Schedule) error {
		one.Paused, one.NextMS = true, 0
		return nil
	})
}

// ResumeSchedule ends a pause; see actors.ScheduleDesk.
func (s *State) ResumeSchedule(ctx context.Context, name, hash string, next time.Time) error {
	return s.setSchedule(ctx, "resume", name, func(_ *memstream.Tx, one *memstream.Schedule) error {
		switch {
		case !one.Paused:
		case one.Hash != "" && one.Hash != hash:
			return actors.ErrConflict
		case one.Hash == "": // no node could use its definition yet
			one.Paused = false
		default:
			one.Paused, one.NextMS = false, ms(next)
		}
		return nil
	})
}

// RemoveSchedule forgets a schedule; see actors.ScheduleDesk.
func (s *State) RemoveSchedule(ctx context.Context, name string) (inCode bool, err error) {
	err = s.setSchedule(ctx, "remove", name, func(tx *memstream.Tx, one *memstream.Schedule) error {
		all := tx.Schedules()
		delete(all, name)
		if inCode = one.InCode; inCode {
			all[name] = &memstream.Schedule{Name: name, InCode: true, Removed: true}
			tx.ExpireSchedule(all[name], removedTTL)
		}
		return nil
	})
	return inCode, err
}

func (s *State) setSchedule(ctx context.Context, verb, name string, set func(*memstream.Tx, *memstream.Schedule) error) error {
	return s.script(ctx, verb+" schedule", func(tx *memstream.Tx) error {
		one := tx.Schedules()[name]
		err := actors.ErrNoSchedule
		if one != nil && !one.Removed {
			err = set(tx, one)
		}
		if err != nil {
			return fmt.Errorf("%s schedule %q: %w", verb, name, err)
		}
		return nil
	})
}

// Schedules lists schedules; see actors.ScheduleDesk.
func (s *State) Schedules(ctx context.Context, names ...string) (list actors.ScheduleList, err error) {
	err = s.script(ctx, "list schedules", func(tx *memstream.Tx) error {
		list.Now = tick(tx.NowMS)
		for _, one := range tx.Schedules() {
			if one.Removed || len(names) > 0 && !slices.Contains(names, one.Name) {
				continue
			}
			list.Schedules = append(list.Schedules, actors.ScheduleRecord{
				Name: one.Name, Definition: slices.Clone(one.Definition), Hash: one.Hash, InCode: one.InCode, Paused: one.Paused,
				Next: tick(one.NextMS), Broken: one.Broken, Declared: tick(one.DeclaredMS), Last: tick(one.LastMS), LastTask: one.Task,
				Fired: one.Fired, Vetoed: one.Vetoed, Missed: one.Missed, Overlapped: one.Overlapped, Passed: tick(one.PassedMS), Why: one.Why,
			})
		}
		return nil
	})
	slices.SortFunc(list.Schedules, func(a, b actors.ScheduleRecord) int { return cmp.Compare(a.Name, b.Name) })
	return list, err
}

func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func tick(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
