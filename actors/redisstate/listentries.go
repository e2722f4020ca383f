package redisstate

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/pages"
	"github.com/weir-run/weir/messages"
)

// place is where entries stand for units that run, or have not begun.
type place struct {
	name   string // in cursors; in this order
	stream string
	which  string
}

// places are those that a state is listed from, in order.
func (l *lister) places(ctx context.Context) ([]place, error) {
	all := []place{
		{"0 pending", l.b.keys.Stream, "pending"},
		{"1 pending", l.b.keys.Inbox(), "pending"},
	}
	if l.q.State == messages.State_STATE_RUNNING {
		return all, nil
	}
	all = append(all, place{"2 inbox", l.b.keys.Inbox(), "new"})
	types, err := l.s.rdb.SMembers(ctx, l.b.keys.Types()).Result()
	if err != nil {
		return nil, err
	}
	slices.Sort(types)
	for _, t := range types {
		if l.ofAgent(t) {
			all = append(all, place{"3 type " + t, l.b.keys.Type(t), "all"})
		}
	}
	return append(all, place{"4 public", l.b.keys.Stream, "new"}), nil
}

// ofAgent says whether an agent's stream may hold what is meant.
func (l *lister) ofAgent(agent string) bool {
	mine, _, _ := strings.Cut(l.q.Type, "/")
	return mine == "" || mine == agent
}

// entries lists from the entries that stand for units.
func (l *lister) entries(ctx context.Context) error {
	all, err := l.places(ctx)
	if err != nil {
		return err
	}
	parts, err := pages.Parts(l.q.After, 2)
	if err != nil {
		return err
	}
	after := ""
	if parts != nil {
		after = parts[1]
		all = slices.DeleteFunc(all, func(p place) bool { return p.name < parts[0] })
		if len(all) > 0 && all[0].name != parts[0] {
			after = "" // that one is empty by now
		}
	}
	for reads := 0; len(all) > 0; reads++ {
		if l.room() == 0 || reads == maxReads {
			l.page.Next = pages.Cursor(all[0].name, after)
			return nil
		}
		n := l.room()
		rows, err := l.read(ctx, all[0], after, n)
		if err != nil {
			return err
		}
		if err := l.addRows(ctx, rows); err != nil {
			return err
		}
		if len(rows) < n {
			all, after = all[1:], ""
		} else {
			after = rows[n-1].entry.ID
		}
	}
	return nil
}

// standing is an entry that stands for a unit.
type standing struct {
	entry      messages.Ref
	consumer   string
	deliveries int64
	member     string
	kind       string
}

func (l *lister) read(ctx context.Context, p place, after string, n int) ([]standing, error) {
	f := l.b.fields
	reply, err := l.s.batch.do(ctx, entriesScript, []string{p.stream}, l.b.keys.Prefix, l.b.group, p.which, after, strconv.Itoa(n),
		f.TaskID, f.EventID, f.Type, f.Step)
	if err != nil {
		return nil, err
	}
	r := replyReader{list: asList(reply)}
	rows := make([]standing, 0, len(r.list)/5)
	for len(r.list) > 0 {
		rows = append(rows, standing{
			entry: messages.Ref{Stream: p.stream, ID: r.string()}, consumer: r.string(), deliveries: r.int(), member: r.string(), kind: r.string(),
		})
	}
	return rows, r.err
}

// addRows adds those whose units are in the state that is meant. A unit without a record has not begun.
func (l *lister) addRows(ctx context.Context, rows []standing) error {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.member
	}
	units, err := l.s.units(ctx, l.b, names)
	if err != nil {
		return err
	}
	for i, r := range rows {
		u := units[i]
		if u == nil {
			u = unbegun(r)
		}
		if r.member == "" || u.State != l.q.State || !l.ofType(u.Type) || u.Updated.Before(l.q.Since) {
			continue
		}
		l.page.Tasks = append(l.page.Tasks, actors.TaskItem{
			ID: taskOf(r.member), Unit: *u, Entry: r.entry, Consumer: r.consumer, Deliveries: r.deliveries,
		})
	}
	return nil
}

// unbegun is what an entry tells of its unit.
func unbegun(r standing) *actors.UnitRecord {
	_, unit, _ := strings.Cut(r.member, ":")
	ms, _, _ := strings.Cut(r.entry.ID, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	u := &actors.UnitRecord{Unit: messages.Unescape(unit), State: messages.State_STATE_PENDING, Type: r.kind}
	if err == nil {
		u.Created, u.Updated = time.UnixMilli(n), time.UnixMilli(n)
	}
	return u
}
