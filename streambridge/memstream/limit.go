package memstream

import (
	"slices"
	"strings"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Times of a limit in ms: how long one that was called is waited for, how long it is known, and how often a line is looked at.
const (
	calledSoon = 5000
	calledKeep = 60_000
	lineEach   = 1000
)

// limit is a limit of how many units run at once; see messages/layout.go. Members are those of the due set.
type limit struct {
	held   map[string]bool
	line   map[string]int64 // member → its number
	called map[string]int64 // member → ms
	most   int
}

// limit returns the limit of that name, made when it is missing.
func (w *world) limit(name string) *limit {
	l := w.limits[name]
	if l == nil {
		l = &limit{held: map[string]bool{}, line: map[string]int64{}, called: map[string]int64{}}
		w.limits[name] = l
	}
	return l
}

// room is how many more may begin. Those that were called a moment ago are on their way and count.
func (l *limit) room(most int, now int64) int {
	room := most - len(l.held)
	for _, at := range l.called {
		if at >= now-calledSoon {
			room--
		}
	}
	return room
}

// head takes the first out of the line.
func (l *limit) head() (member string, ok bool) {
	for m, n := range l.line {
		if !ok || n < l.line[member] {
			member, ok = m, true
		}
	}
	delete(l.line, member)
	return member, ok
}

// advance calls as many from the head of a limit's line as there is room for: copies of their entries go to the inbox.
func (w *world) advance(name string, now int64) {
	l := w.limit(name)
	for range min(l.room(l.most, now), perTick) {
		m, ok := l.head()
		if !ok {
			break
		}
		w.call(l, m, now)
	}
	if len(l.line) == 0 {
		delete(w.due, "l:"+name)
	}
}

// call lets a unit come out of a line. One that has ended meanwhile is passed over; one without a copy has FAILED.
func (w *world) call(l *limit, m string, now int64) {
	id, unit := unitOfMember(m)
	t := w.task(id)
	u := t.unit(unit)
	if u == nil || u.State != messages.State_STATE_PENDING {
		return
	}
	if c := w.copies[unitKey{id, unit}]; c != nil {
		w.toInbox(now, withControl(c.Fields, id, c.Origin, u.Wake))
		for m, at := range l.called {
			if at <= now-calledKeep {
				delete(l.called, m)
			}
		}
		l.called[m] = now
		return
	}
	b := streambridge.Burial{
		Reason: messages.Reason_REASON_BODY_GONE, TaskID: id, Unit: unit, Type: u.Type,
		Detail: "its turn under a limit had come, and the copy of its entry is gone",
	}
	w.bury(now, w.deadTTL, Letter{Reason: b.Reason, Detail: b.Detail, Wake: u.Wake, TaskID: id, Unit: unit, Type: u.Type})
	w.fail(b, now, w.deadTTL)
}

// leaveLine takes a unit out of the line that it stands in, or was called from.
func (w *world) leaveLine(t *Task, u *Unit, now int64) {
	if u.Line == "" {
		return
	}
	name, m := u.Line, member(t.ID, u.Name)
	u.Line = ""
	l := w.limit(name)
	delete(l.line, m)
	delete(l.called, m)
	w.advance(name, now)
}

// giveBack frees a unit's slots, and calls the next ones in the lines.
func (w *world) giveBack(t *Task, u *Unit, now int64) {
	slots := u.Slots
	u.Slots = nil
	for _, name := range slots {
		if l, m := w.limit(name), member(t.ID, u.Name); l.held[m] {
			delete(l.held, m)
			w.advance(name, now)
		}
	}
}

// checkLimit heals a limit's slots and calls who has room; it keeps looking while somebody waits.
func (w *world) checkLimit(name string, now int64) {
	l := w.limit(name)
	for m := range l.held {
		id, unit := unitOfMember(m)
		t := w.task(id)
		u := t.unit(unit)
		there := u != nil && u.State == messages.State_STATE_RUNNING && slices.Contains(u.Slots, name)
		if there && !w.live(u.Run.Incarnation) && now >= w.calmUntil && w.read(u.SlotRef.Stream).at(u.SlotRef.ID) == nil {
			there, u.Slots = false, nil
			t.note(now, "slot_lost", "its node is gone, and its entry is nobody's")
		}
		if !there {
			delete(l.held, m)
		}
	}
	w.advance(name, now)
	if len(l.line) > 0 {
		w.due["l:"+name] = now + lineEach
	}
}

// at is a pending entry of the group, or nil; also of a nil group.
func (g *group) at(id string) *delivery {
	if g == nil {
		return nil
	}
	return g.pending.get(mustID(id))
}

// Limit is a limit that a unit runs under.
type Limit struct {
	Name string
	Most int
}

// Full is the first of the limits that has no slot for the unit.
func (tx *Tx) Full(id, unit string, limits []Limit) (full Limit, ok bool) {
	m := member(id, unit)
	for _, x := range limits {
		l := tx.w.limit(x.Name)
		if l.held[m] {
			continue
		}
		if _, called := l.called[m]; called {
			if len(l.held) >= x.Most {
				return x, true
			}
		} else if l.room(x.Most, tx.NowMS) < 1 || len(l.line) > 0 {
			return x, true
		}
	}
	return Limit{}, false
}

// Line puts a unit into the line of a limit. It keeps its number from one line to the next: who was there first goes first.
func (tx *Tx) Line(t *Task, u *Unit, full Limit) {
	w := tx.w
	if u.LineAt == 0 || u.Line == "" {
		w.lined++
		u.LineAt = w.lined
	}
	t.Ties = true
	u.Line = full.Name
	l, m := w.limit(full.Name), member(t.ID, u.Name)
	delete(l.called, m)
	l.line[m], l.most = u.LineAt, full.Most
	if _, looked := w.due["l:"+full.Name]; !looked {
		w.due["l:"+full.Name] = tx.NowMS + lineEach
	}
	w.advance(full.Name, tx.NowMS)
}

// PassOn lets the next in a line have the call of a unit that does not take the slot now.
func (tx *Tx) PassOn(id, unit string, limits []Limit) {
	m := member(id, unit)
	for _, x := range limits {
		if l := tx.w.limit(x.Name); l.called[m] > 0 {
			delete(l.called, m)
			tx.w.advance(x.Name, tx.NowMS)
		}
	}
}

// Slots gives a unit that begins its slots; one that has slots keeps them. ref is the entry that it begins with.
func (tx *Tx) Slots(t *Task, u *Unit, limits []Limit, ref messages.Ref) {
	m := member(t.ID, u.Name)
	u.Line, u.LineAt = "", 0
	if len(u.Slots) > 0 {
		u.SlotRef = ref
		return
	}
	for _, x := range limits {
		l := tx.w.limit(x.Name)
		l.held[m] = true
		delete(l.called, m)
		u.Slots = append(u.Slots, x.Name)
	}
	if len(limits) > 0 {
		t.Ties, u.SlotRef = true, ref
	}
}

// GiveBack frees the slots of a unit that has ended running, once its new state is set.
func (tx *Tx) GiveBack(t *Task, u *Unit) { tx.w.giveBack(t, u, tx.NowMS) }

// LeaveLine takes a unit out of the line that it stands in, or was called from.
func (tx *Tx) LeaveLine(t *Task, u *Unit) { tx.w.leaveLine(t, u, tx.NowMS) }

// lines are the limits that somebody waits for.
func (w *world) lines() (out []streambridge.Line) {
	for name, l := range w.limits {
		if len(l.line) > 0 {
			out = append(out, streambridge.Line{
				Limit: messages.LimitName(name), Most: int64(l.most), Running: int64(len(l.held)), Waiting: int64(len(l.line)),
			})
		}
	}
	slices.SortFunc(out, func(a, b streambridge.Line) int { return strings.Compare(a.Limit, b.Limit) })
	return out
}
