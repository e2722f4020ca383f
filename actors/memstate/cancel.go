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

// cancelledTTL is how long the record of a task that was cancelled from outside is kept where nobody says.
const cancelledTTL = 7 * 24 * time.Hour

// Cancel ends a task, or one unit of it, before its time; see actors.StateDesk.
func (s *State) Cancel(ctx context.Context, c actors.Cancellation) (ended []actors.CancelledUnit, err error) {
	c.TTL = cmp.Or(c.TTL, cancelledTTL)
	c.Reason, c.By = clip(cmp.Or(c.Reason, "no reason was given")), clip(c.By)
	err = s.script(ctx, "cancel", func(tx *memstream.Tx) error {
		ended, err = cancelUnits(tx, c, s.bound.Load().names.Fields)
		return err
	})
	return ended, err
}

func cancelUnits(tx *memstream.Tx, c actors.Cancellation, names messages.FieldNames) (ended []actors.CancelledUnit, err error) {
	units := unitsOf(tx, c, names)
	if len(units) == 0 {
		return nil, fmt.Errorf("task %.80q: %w", c.ID, actors.ErrNoTask)
	}
	// What joins the stream later does so all the same, for other groups may want it: the record must be there when it comes.
	if c.TTL > 0 {
		var longest int64
		for name := range tx.Marks(c.ID) {
			if ms, waits := tx.DelayedAt(c.ID, name); waits {
				longest = max(longest, ms-tx.NowMS)
			}
		}
		c.TTL += time.Duration(longest) * time.Millisecond
	}
	var before messages.State
	for _, name := range slices.Sorted(maps.Keys(units)) {
		was, over := tx.CancelUnit(c.ID, name, c.TTL, c.Reason, c.By, units[name])
		switch {
		case !over:
			ended = append(ended, actors.CancelledUnit{Unit: name, Was: was})
		case before == 0 || actors.StateName(was) < actors.StateName(before): // CANCELLED, FAILED, SUCCEEDED
			before = was
		}
	}
	if len(ended) == 0 {
		return nil, &actors.EndedError{ID: c.ID, Unit: c.Unit, State: before}
	}
	return ended, nil
}

// unitsOf finds the units that are meant, with what is known of those that have no record.
func unitsOf(tx *memstream.Tx, c actors.Cancellation, names messages.FieldNames) map[string]memstream.Known {
	units := map[string]memstream.Known{}
	add := func(name string, what memstream.Known) {
		if _, known := units[name]; !known && (c.Unit == "" || c.Unit == name) {
			units[name] = what
		}
	}
	t := tx.Task(c.ID)
	if t != nil {
		for name := range t.Units {
			add(name, memstream.Known{})
		}
	}
	for name, m := range tx.Marks(c.ID) {
		add(name, memstream.Known{Type: m.Type, Work: m.Work, CreatedMS: m.CreatedMS, State: submitted(tx, c.ID, name, m).State})
	}
	if t != nil {
		// What waits with the task for its turn was acknowledged, and may have no record.
		for _, fields := range t.Waiting {
			add(field(fields, names.Step), memstream.Known{Type: field(fields, names.Type)})
		}
	}
	if len(units) == 0 && c.Type != "" {
		units[c.Unit] = memstream.Known{Type: c.Type}
	}
	return units
}
