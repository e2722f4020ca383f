package memstream

import (
	"fmt"
	"iter"

	"github.com/weir-run/weir/messages"
)

// Indexed is a unit in an index by state.
type Indexed struct {
	State      messages.State
	Type       string
	Task, Unit string
	AtMS       int64 // of the change of state
}

// Indexed lists the members of all indexes, in no order.
func (tx *Tx) Indexed() iter.Seq[Indexed] {
	return func(yield func(Indexed) bool) {
		for k, members := range tx.w.index {
			for m, ms := range members {
				task, unit := unitOfMember(m)
				if !yield(Indexed{State: k.state, Type: k.kind, Task: task, Unit: unit, AtMS: ms}) {
					return
				}
			}
		}
	}
}

// Outstanding is an entry that stands for a unit that runs, or has not begun.
type Outstanding struct {
	messages.Ref
	// Place sorts the places where entries stand; within one they are in order of ids.
	Place string
	// Ours says that Weir added the entry: its control fields are believed.
	Ours bool
	// Consumer has it in hand, after so many Deliveries; empty where nobody has.
	Consumer   string
	Deliveries int64
	Fields     []messages.Pair // none where somebody removed them
	// Task and Unit are known of an entry that was copied beside its task; Copied says so.
	Task, Unit string
	Copied     bool
}

// Outstanding lists those entries: what was handed out, of the public stream and then of the inbox; what was not, of the inbox,
// of the agent types, of the public stream; the oldest first in each.
func (tx *Tx) Outstanding() (found []Outstanding) {
	w := tx.w
	for i, stream := range w.streams() {
		g := w.read(stream)
		if g == nil {
			continue
		}
		for id, d := range g.pending.from(entryID{}) {
			ref := messages.Ref{Stream: stream, ID: id.String()}
			s := Outstanding{Ref: ref, Place: fmt.Sprint(i, " pending"), Ours: i > 0, Consumer: d.consumer, Deliveries: d.count}
			s.Fields, _ = w.data.log(stream).body(id)
			if k, ok := w.saved[ref]; ok {
				s.Task, s.Unit, s.Copied = k.task, k.unit, true
			}
			if s.Fields != nil || s.Copied {
				found = append(found, s)
			}
		}
	}
	add := func(place, stream string, from entryID) {
		if l := w.data.log(stream); l != nil {
			for id, r := range l.entries.from(from) {
				ref := messages.Ref{Stream: stream, ID: id.String()}
				found = append(found, Outstanding{Ref: ref, Place: place, Ours: stream != w.keys.Stream, Fields: r.fields})
			}
		}
	}
	fresh := func(place, stream string) {
		from := entryID{}
		if g := w.read(stream); g != nil {
			from = g.delivered.next()
		}
		add(place, stream, from)
	}
	fresh("2 inbox", w.keys.Inbox())
	for _, name := range sortedKeys(w.types) {
		add("3 type "+name, w.keys.Type(name), entryID{})
	}
	fresh("4 public", w.keys.Stream)
	return found
}
