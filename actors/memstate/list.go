package memstate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/pages"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// Tasks lists units by what they do; see actors.StateOps.
func (s *State) Tasks(ctx context.Context, q actors.TaskQuery) (page actors.TaskPage, err error) {
	q.Limit = pages.Limit(q.Limit)
	err = s.script(ctx, "tasks", func(tx *memstream.Tx) error {
		var all []listed
		switch {
		case q.Doubt:
			q.State = 0
			all = indexed(tx, q, tx.Doubts())
		case q.State == messages.State_STATE_RUNNING || q.State == messages.State_STATE_PENDING:
			all = entries(tx, q, s.bound.Load().names.Fields)
		default:
			all = indexed(tx, q, tx.Indexed())
		}
		page, err = pageOf(all, q)
		return err
	})
	if err != nil {
		return actors.TaskPage{}, fmt.Errorf("list tasks: %w", err)
	}
	return page, nil
}

// listed is an item with its place in the list: by a number, then by two names.
type listed struct {
	actors.TaskItem
	place  int64
	first  string
	second string
}

func (l listed) compare(m listed) int {
	return cmp.Or(cmp.Compare(l.place, m.place), cmp.Compare(l.first, m.first), cmp.Compare(m.second, l.second))
}

func (l listed) cursor() string {
	return pages.Cursor(strconv.FormatInt(l.place, 10), l.first, l.second)
}

// pageOf cuts a page out of all that is meant, in order.
func pageOf(all []listed, q actors.TaskQuery) (page actors.TaskPage, err error) {
	parts, err := pages.Parts(q.After, 3)
	if err != nil {
		return page, err
	}
	if parts != nil {
		after := listed{first: parts[1], second: parts[2]}
		if after.place, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
			return page, fmt.Errorf("%.40q is not where a page of this list ended", q.After)
		}
		all = slices.DeleteFunc(all, func(l listed) bool { return l.compare(after) <= 0 })
	}
	for _, l := range all[:min(q.Limit, len(all))] {
		page.Tasks = append(page.Tasks, l.TaskItem)
	}
	if len(all) > q.Limit {
		page.Next = all[q.Limit-1].cursor()
	}
	return page, nil
}

func ofType(q actors.TaskQuery, kind string) bool {
	return q.Type == "" || kind == q.Type || strings.HasPrefix(kind, q.Type+"/")
}

// indexed lists from the indexes by state, the newest change first.
func indexed(tx *memstream.Tx, q actors.TaskQuery, members iter.Seq[memstream.Indexed]) (all []listed) {
	for m := range members {
		if q.State != 0 && q.State != m.State || !ofType(q, m.Type) || !q.Since.IsZero() && m.AtMS < q.Since.UnixMilli() {
			continue
		}
		t := tx.Task(m.Task)
		if t == nil || t.Units[m.Unit] == nil {
			continue
		}
		all = append(all, listed{
			TaskItem: actors.TaskItem{ID: m.Task, Unit: brief(tx, t, t.Units[m.Unit])},
			place:    -m.AtMS, first: actors.StateName(m.State) + ":" + messages.Escape(m.Type), second: memstream.Member(m.Task, m.Unit),
		})
	}
	if !q.Doubt && (q.State == 0 || q.State == messages.State_STATE_SCHEDULED) {
		all = append(all, delayed(tx, q)...)
	}
	slices.SortFunc(all, listed.compare)
	return all
}

// delayed lists what was submitted for later and has no record: behind the indexes, the next to join the stream first.
func delayed(tx *memstream.Tx, q actors.TaskQuery) (all []listed) {
	for member, ms := range tx.DelayedMembers() {
		id, name, _ := strings.Cut(member, ":")
		id, name = messages.Unescape(id), messages.Unescape(name)
		if t := tx.Task(id); t != nil && t.Units[name] != nil {
			continue // it was cancelled
		}
		m, known := tx.Marks(id)[name]
		u := submitted(tx, id, name, m)
		if !known || !ofType(q, u.Type) || u.Created.Before(q.Since) {
			continue
		}
		all = append(all, listed{TaskItem: actors.TaskItem{ID: id, Unit: u}, place: ms, first: member})
	}
	return all
}

// brief is a unit's record as a list shows it.
func brief(tx *memstream.Tx, t *memstream.Task, u *memstream.Unit) actors.UnitRecord {
	r := unitRecord(tx, t, u)
	r.Result, r.ContentType = nil, ""
	return r
}

// entries lists from the entries that stand for units.
func entries(tx *memstream.Tx, q actors.TaskQuery, names messages.FieldNames) (all []listed) {
	for _, e := range tx.Outstanding() {
		if q.State == messages.State_STATE_RUNNING && e.Consumer == "" {
			continue // another entry of a unit that runs, at most
		}
		agent, _, _ := strings.Cut(q.Type, "/")
		if t, ok := strings.CutPrefix(e.Place, "3 type "); ok && agent != "" && t != agent {
			continue // what stands under its id may be other work
		}
		if !e.Copied {
			e.Task, e.Unit = identity(e, names)
		}
		u := actors.UnitRecord{Unit: e.Unit, State: messages.State_STATE_PENDING, Type: field(e.Fields, names.Type)}
		u.Created = createdAt(e.ID)
		u.Updated = u.Created
		if t := tx.Task(e.Task); t != nil && t.Units[e.Unit] != nil {
			u = brief(tx, t, t.Units[e.Unit])
		}
		if u.State != q.State || !ofType(q, u.Type) || u.Updated.Before(q.Since) {
			continue
		}
		all = append(all, listed{
			TaskItem: actors.TaskItem{ID: e.Task, Unit: u, Entry: e.Ref, Consumer: e.Consumer, Deliveries: e.Deliveries},
			first:    e.Place + " " + inOrder(e.ID),
		})
	}
	return all
}

// createdAt is the time half of an entry's id.
func createdAt(entryID string) time.Time {
	ms, _, _ := strings.Cut(entryID, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return at(n)
}

// identity is whose entry it is, as the decoder says; a HashIdentity is not seen from here.
func identity(e memstream.Outstanding, names messages.FieldNames) (task, unit string) {
	id, origin := "", ""
	if e.Ours {
		id, origin = field(e.Fields, messages.ControlID), field(e.Fields, messages.ControlOrigin)
	}
	return cmp.Or(id, field(e.Fields, names.TaskID), field(e.Fields, names.EventID), origin, e.ID), field(e.Fields, names.Step)
}

// inOrder is an entry id whose order as text is that of the ids.
func inOrder(id string) string {
	ms, seq, _ := strings.Cut(id, "-")
	wide := func(n string) string { return strings.Repeat("0", max(20-len(n), 0)) + n }
	return wide(ms) + "-" + wide(seq)
}
