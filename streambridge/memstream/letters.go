package memstream

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Letter is an entry to be set aside.
type Letter struct {
	messages.Ref
	Reason             messages.Reason
	Detail             string
	Deliveries         int64
	Wake               uint64
	TaskID, Unit, Type string
	Fields             []messages.Pair
	// Ends says that the unit has FAILED with it, and is its to bring back.
	Ends bool
}

// letters are the dead letters of a group, oldest first.
type letters struct {
	list byID[Letter]
	last entryID
}

// bury writes a dead letter that is kept for ttl (≤ 0 keeps it).
func (w *world) bury(now int64, ttl time.Duration, l Letter) {
	id := entryID{ms: now}
	if id.compare(w.dead.last) <= 0 {
		id = w.dead.last.next()
	}
	w.dead.last = id
	w.dead.list.put(id, &l)
	w.counts["dead"]++
	if ttl <= 0 {
		return
	}
	w.data.expiry.at(now+ttl.Milliseconds(), func(int64) int64 {
		w.dead.list.remove(id)
		return 0
	})
}

// Letters lists dead letters, oldest first. See streambridge.Upkeep.
func (s *Stream) Letters(ctx context.Context, after string, n int) (found []*messages.DeadLetter, err error) {
	var start entryID
	if after != "" {
		id, ok := parseID(after)
		if !ok {
			return nil, fmt.Errorf("memstream letters after %q: not an id", after)
		}
		start = id.next()
	}
	err = s.bound(ctx, "letters", func(w *world, _ int64) error {
		for id, l := range w.dead.list.from(start) {
			if len(found) >= n {
				break
			}
			found = append(found, l.message(id))
		}
		return nil
	})
	return found, err
}

// Letter reads one dead letter. See streambridge.Upkeep.
func (s *Stream) Letter(ctx context.Context, id string) (found *messages.DeadLetter, err error) {
	err = s.bound(ctx, "letter", func(w *world, _ int64) error {
		at, l := w.letter(id)
		if l == nil {
			return fmt.Errorf("letter %q: %w", id, streambridge.ErrNoLetter)
		}
		found = l.message(at)
		return nil
	})
	return found, err
}

// letter finds a dead letter, or nil.
func (w *world) letter(id string) (entryID, *Letter) {
	at, ok := parseID(id)
	if !ok {
		return entryID{}, nil
	}
	return at, w.dead.list.get(at)
}

func (l *Letter) message(id entryID) *messages.DeadLetter {
	m := &messages.DeadLetter{
		Id: id.String(), Reason: l.Reason, Detail: l.Detail, TaskId: l.TaskID, Unit: l.Unit, Type: l.Type, AtMs: id.ms,
		Entry: &messages.Entry{Stream: l.Stream, Id: l.ID, Deliveries: l.Deliveries, Wake: l.Wake},
	}
	for _, f := range messages.ProducerFields(l.Fields) {
		m.Fields = append(m.Fields, &messages.Field{Name: []byte(f.Name), Value: []byte(f.Value)})
		m.Entry.Size += int64(len(f.Name) + len(f.Value))
	}
	return m
}
