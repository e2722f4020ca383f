package memstate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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
		if m.Work != t.Work {
			return actors.Submitted{EntryID: m.EntryID, Err: actors.ErrConflict}
		}
		return actors.Submitted{EntryID: m.EntryID, Known: true}
	}
	if t.MaxLen > 0 && tx.Length() >= t.MaxLen {
		return actors.Submitted{Err: actors.ErrBacklogFull}
	}
	id := tx.Add(t.Fields)
	tx.SetMark(t.ID, t.Unit, memstream.Mark{EntryID: id, Work: t.Work, Type: kind}, cmp.Or(t.TTL, markerTTL))
	return actors.Submitted{EntryID: id}
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
				record.Units = append(record.Units, pending(name, marks[name]))
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
			r.Created = submittedAt(r.Created, marks, u.Name)
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
			u.Created = submittedAt(u.Created, tx.Marks(id), unit)
			record = &u
			return nil
		}
		if m, ok := tx.Marks(id)[unit]; ok {
			u := pending(unit, m)
			record = &u
			return nil
		}
		return fmt.Errorf("read unit %q: %w", unit, actors.ErrNoTask)
	})
	return record, err
}

// pending is a unit that was submitted and not yet begun.
func pending(name string, m memstream.Mark) actors.UnitRecord {
	ms, _, _ := strings.Cut(m.EntryID, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return actors.UnitRecord{Unit: name, State: messages.State_STATE_PENDING, Type: m.Type, Created: at(n), Updated: at(n)}
}

// submittedAt is when a unit was created: its submission, where there was one, and not its first begin, which is all that
// the record knows. A submission after the begin added nothing to a task that a producer's own entry had made.
func submittedAt(created time.Time, marks map[string]memstream.Mark, unit string) time.Time {
	submitted := pending(unit, marks[unit]).Created // zero without a mark
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
	if ms, ok := tx.Due(t.ID, u.Name); ok && u.State == messages.State_STATE_RETRYING {
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
