package memstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// markerTTL is how long Submit stays idempotent by id where the submission does not say: a week.
const markerTTL = 7 * 24 * time.Hour

// Submit adds tasks to the public stream; see actors.StateDesk. Each task is a script of its own. A Submission's TTL of 0
// means 7 days, a negative one for ever.
func (s *State) Submit(ctx context.Context, tasks []actors.Submission) ([]actors.Submitted, error) {
	answers := make([]actors.Submitted, len(tasks))
	for i, t := range tasks {
		kind := ""
		if b := s.bound.Load(); b != nil {
			kind = field(t.Fields, b.names.Fields.Type)
		}
		err := s.script(ctx, "submit", func(tx *memstream.Tx) error {
			answers[i] = submit(tx, t, kind)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("submit %d tasks: %w", len(tasks), err)
		}
	}
	return answers, nil
}

func field(fields []messages.Pair, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func submit(tx *memstream.Tx, t actors.Submission, kind string) actors.Submitted {
	if m, ok := tx.Marks(t.ID)[t.Unit]; ok {
		found := standing(tx, t.ID, t.Unit, m)
		found.Known = m.Work == t.Work
		if !found.Known {
			found.Err = actors.ErrConflict
		}
		return found
	}
	unique := t.Unique != "" && t.For > 0
	if unique {
		if id, unit, taken := tx.Unique(t.Unique); taken {
			found := standing(tx, id, unit, tx.Marks(id)[unit]) // the key may outlive the marker
			found.Known, found.ID, found.Unit = true, id, unit
			return found
		}
	}
	done := enter(tx, t, memstream.Mark{Work: t.Work, Type: kind, CreatedMS: tx.NowMS}, cmp.Or(t.TTL, markerTTL))
	if unique && done.Err == nil {
		tx.Take(t.Unique, t.ID, t.Unit, t.For)
	}
	return done
}

// enter adds a task to the stream, or to what waits for its time.
func enter(tx *memstream.Tx, t actors.Submission, m memstream.Mark, ttl time.Duration) actors.Submitted {
	if reason, after, shut := tx.Shut(); shut {
		return actors.Submitted{Err: &actors.GateError{Reason: reason, RetryAfter: after}}
	}
	var due int64
	switch {
	case t.Delay > 0: // the clock is cut to the ms, and nothing may be early by a part of one
		due = tx.NowMS + 1 + (t.Delay + time.Millisecond - 1).Milliseconds()
	case !t.At.IsZero():
		due = ceilMS(t.At)
	}
	full := tx.Length
	if due > tx.NowMS {
		full = tx.DelayedCount
	}
	if t.MaxLen > 0 && full() >= t.MaxLen {
		return actors.Submitted{Err: actors.ErrBacklogFull}
	}
	if due > tx.NowMS {
		tx.Delay(t.ID, t.Unit, memstream.Delayed{AtMS: due, TTL: ttl, Mark: m, Fields: t.Fields})
		return actors.Submitted{Due: at(due)}
	}
	m.EntryID = tx.Add(t.Fields)
	tx.SetMark(t.ID, t.Unit, m, ttl)
	return actors.Submitted{EntryID: m.EntryID}
}

// ceilMS is a time in Unix ms, the next one where it is between two: never early.
func ceilMS(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// standing says where a submitted unit is: in the stream, or waiting for its time.
func standing(tx *memstream.Tx, id, unit string, m memstream.Mark) actors.Submitted {
	ms, _ := tx.DelayedAt(id, unit)
	return actors.Submitted{EntryID: m.EntryID, Due: at(ms)}
}

// Task reads all of a task; see actors.StateDesk.
func (s *State) Task(ctx context.Context, id string) (record *actors.TaskRecord, err error) {
	err = s.script(ctx, "task", func(tx *memstream.Tx) error {
		t, marks := tx.Task(id), tx.Marks(id)
		if t == nil && len(marks) == 0 {
			return fmt.Errorf("read task: %w", actors.ErrNoTask)
		}
		record = &actors.TaskRecord{ID: id, Unread: tx.Unread(id)}
		for _, name := range slices.Sorted(maps.Keys(marks)) {
			record.EntryID = cmp.Or(record.EntryID, marks[name].EntryID) // that of the task itself sorts first
			if t == nil || t.Units[name] == nil {
				record.Units = append(record.Units, submitted(tx, id, name, marks[name]))
			}
		}
		if t == nil {
			return nil
		}
		record.Owner, record.Fence, record.Queued = t.Owner, t.Fence, int64(len(t.Waiting))
		if t.UntilMS > 0 {
			record.TTL = time.Duration(t.UntilMS-tx.NowMS) * time.Millisecond
		}
		for _, u := range t.Units {
			r := unitRecord(tx, t, u)
			r.Created = submittedAt(r.Created, marks[u.Name])
			r.Steps = readableSteps(u)
			for _, name := range t.SortedWaits(u.Name) {
				key := memstream.WaitKey{Unit: u.Name, Name: name}
				r.Waits = append(r.Waits, actors.Record(name, *t.Waits[key], at(tx.DueWait(id, key))))
			}
			record.Units = append(record.Units, r)
		}
		for _, l := range t.Log {
			record.Log = append(record.Log, actors.LogLine{At: time.UnixMilli(l.AtMS), What: l.What, Detail: l.Detail})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(record.Units, func(a, b actors.UnitRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Unit, b.Unit))
	})
	return record, nil
}

// Unit reads one unit without its steps; see actors.StateDesk.
func (s *State) Unit(ctx context.Context, id, unit string) (record *actors.UnitRecord, err error) {
	err = s.script(ctx, "unit", func(tx *memstream.Tx) error {
		if t := tx.Task(id); t != nil && t.Units[unit] != nil {
			u := unitRecord(tx, t, t.Units[unit])
			u.Created = submittedAt(u.Created, tx.Marks(id)[unit])
			record = &u
			return nil
		}
		if m, ok := tx.Marks(id)[unit]; ok {
			u := submitted(tx, id, unit, m)
			record = &u
			return nil
		}
		return fmt.Errorf("read unit %q: %w", unit, actors.ErrNoTask)
	})
	return record, err
}

// submitted is a unit that was submitted and not yet begun.
func submitted(tx *memstream.Tx, id, name string, m memstream.Mark) actors.UnitRecord {
	u := actors.UnitRecord{
		Unit: name, State: messages.State_STATE_PENDING, Type: m.Type, Created: at(m.CreatedMS), Updated: at(m.CreatedMS),
	}
	if ms, waits := tx.DelayedAt(id, name); waits {
		u.State, u.Due = messages.State_STATE_SCHEDULED, at(ms)
	}
	return u
}

// submittedAt is when a unit was created: its submission, where there was one, and not its first begin, which is all that
// the record knows. A submission after the begin added nothing to a task that a producer's own entry had made.
func submittedAt(created time.Time, m memstream.Mark) time.Time {
	submitted := at(m.CreatedMS) // zero without a mark
	if submitted.IsZero() || created.Before(submitted) {
		return created
	}
	return submitted
}

func unitRecord(tx *memstream.Tx, t *memstream.Task, u *memstream.Unit) actors.UnitRecord {
	r := actors.UnitRecord{
		Unit: u.Name, State: u.State, Type: u.Type, Ledger: ledger(u), Created: at(u.CreatedMS), Began: at(u.BeganMS),
		Updated: at(u.UpdatedMS), ContentType: u.ContentType, Result: slices.Clone(u.Result), Error: u.Error, Reason: u.Reason,
	}
	if u.Line != "" {
		r.Limit = messages.LimitName(u.Line)
	}
	waits := u.State == messages.State_STATE_RETRYING || u.State == messages.State_STATE_SCHEDULED
	if ms, ok := tx.Due(t.ID, u.Name); ok && waits {
		r.Due = at(ms)
	}
	return r
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
