package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// A task that nothing has begun has no record: its entry may stand in the stream of an agent type that nobody runs, or may
// have become a dead letter. Neither place can be asked by task id, so a look reads no more than this of each stream.
const (
	lookMost  = 3000
	lookBytes = 64 << 20
	lookPage  = 100
)

// standing is an entry in the stream of its agent type.
type standing struct {
	Unit  string    `json:"unit,omitempty"`
	Type  string    `json:"type"`
	Since time.Time `json:"since"`
	// Served says that a live node runs the type: it is about to take the entry.
	Served bool `json:"served"`

	taskType string    // with the handler
	created  time.Time // when its producer added it
}

func (s standing) String() string {
	why := "no live node runs it"
	if s.Served {
		why = "a live node is about to take it"
	}
	return fmt.Sprintf("waits since %s in the stream of type %s: %s", clock(s.Since), s.Type, why)
}

// standings finds which of the tasks wait for their agent types.
func (d *desk) standings(ctx context.Context, ids ...string) (map[string][]standing, error) {
	keys, err := messages.NewKeys(d.names)
	if err != nil {
		return nil, err
	}
	w, err := d.openWindow()
	if err != nil {
		return nil, err
	}
	st, err := w.Status(ctx)
	if err != nil {
		return nil, err
	}
	meant := map[string]bool{}
	for _, id := range ids {
		meant[id] = true
	}
	found := map[string][]standing{}
	for _, t := range st.Waiting {
		from := func(after string) *redis.XMessageSliceCmd {
			if after == "" {
				return d.rdb.XRangeN(ctx, keys.Type(t.Type), "-", "+", lookPage)
			}
			return d.rdb.XRangeN(ctx, keys.Type(t.Type), "("+after, "+", lookPage)
		}
		err := look(from, func(m redis.XMessage) (more bool) {
			id := text(m, messages.ControlID)
			if meant[id] {
				found[id] = append(found[id], standing{
					Unit: text(m, d.names.Fields.Step), Type: t.Type, Since: idTime(m.ID), Served: t.Served,
					taskType: text(m, d.names.Fields.Type), created: idTime(text(m, messages.ControlOrigin)),
				})
			}
			return true
		})
		if err != nil {
			return nil, fmt.Errorf("look for entries that wait for type %q: %w", t.Type, err)
		}
	}
	return found, nil
}

// letterOf finds the newest dead letter of a task among the newest ones, nil when there is none.
func (d *desk) letterOf(ctx context.Context, id string) (*letterView, error) {
	keys, err := messages.NewKeys(d.names)
	if err != nil {
		return nil, err
	}
	w, err := d.openWindow()
	if err != nil {
		return nil, err
	}
	from := func(after string) *redis.XMessageSliceCmd {
		if after == "" {
			return d.rdb.XRevRangeN(ctx, keys.Dead(), "+", "-", lookPage)
		}
		return d.rdb.XRevRangeN(ctx, keys.Dead(), "("+after, "-", lookPage)
	}
	letter := ""
	err = look(from, func(m redis.XMessage) (more bool) {
		if d.isAbout(m, id) {
			letter = m.ID
		}
		return letter == ""
	})
	if err != nil {
		return nil, fmt.Errorf("look for task %q among the dead letters: %w", id, err)
	}
	if letter == "" {
		return nil, nil
	}
	l, err := w.Letter(ctx, letter)
	if err != nil {
		return nil, letterError(letter, err)
	}
	v := newLetterView(l, false)
	return &v, nil
}

// isAbout says whether a dead letter is the task's. One that could not be decoded as far as its task id has the field
// among its own, and an entry without one is a task by the entry's id.
func (d *desk) isAbout(letter redis.XMessage, id string) bool {
	if task := text(letter, "task_id"); task != "" {
		return task == id
	}
	if text(letter, "entry") == id {
		return true
	}
	fields, err := messages.UnpackFields(text(letter, "fields"))
	if err != nil {
		return false
	}
	for _, f := range fields {
		if f.Name == d.names.Fields.TaskID && f.Value == id {
			return true
		}
	}
	return false
}

// look reads a stream page by page until f has enough or the bounds are reached.
func look(from func(after string) *redis.XMessageSliceCmd, f func(redis.XMessage) (more bool)) error {
	after, seen, size := "", 0, 0
	for seen < lookMost && size < lookBytes {
		page, err := from(after).Result()
		if err != nil {
			return err
		}
		for _, m := range page {
			if !f(m) {
				return nil
			}
			after = m.ID
			for name := range m.Values {
				size += len(name) + len(text(m, name))
			}
		}
		if seen += len(page); len(page) < lookPage {
			return nil
		}
	}
	return nil
}

func text(m redis.XMessage, field string) string {
	s, _ := m.Values[field].(string)
	return s
}

// idTime is the time half of an entry's id.
func idTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// unbegun says whether the record leaves it open where the task is: there is none, or a unit was never begun and does not
// wait for its time.
func unbegun(r *actors.TaskRecord) bool {
	if r == nil {
		return true
	}
	for _, u := range r.Units {
		if u.Began.IsZero() && u.State != messages.State_STATE_SCHEDULED {
			return true
		}
	}
	return false
}

// pendingUnits are the units of a task without a record, as the entries that wait tell of them.
func pendingUnits(waits []standing) []actors.UnitRecord {
	var units []actors.UnitRecord
	known := map[string]bool{}
	for _, s := range waits {
		if known[s.Unit] {
			continue
		}
		known[s.Unit] = true
		units = append(units, actors.UnitRecord{
			Unit: s.Unit, State: messages.State_STATE_PENDING, Type: s.taskType, Created: s.created, Updated: s.created,
		})
	}
	return units
}
