package memstream

import (
	"context"
	"slices"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Beat renews what is held and still ours; see streambridge.Stream.
func (s *Stream) Beat(ctx context.Context, held []streambridge.Held) (beat streambridge.Beat, err error) {
	err = s.bound(ctx, "beat", func(w *world, now int64) error {
		beat = streambridge.Beat{}
		if beat.Usurped = s.usurped(w); beat.Usurped {
			return nil
		}
		c := s.claim(w)
		c.left = false
		c.beat++
		w.keepAlive(s.open.node.Incarnation, now, s.open.node.Lease)
		cancelled := w.counts["cancelled"]
		for _, h := range inOrder(w, held) {
			s.renew(w, now, h, cancelled != s.looked, &beat)
		}
		s.looked = cancelled
		return nil
	})
	return beat, err
}

// inOrder sorts what is held by stream and id, as a pending list is.
func inOrder(w *world, held []streambridge.Held) []streambridge.Held {
	inbox := w.keys.Inbox()
	return slices.SortedStableFunc(slices.Values(held), func(a, b streambridge.Held) int {
		switch a.Stream {
		case b.Stream:
			return mustID(a.ID).compare(mustID(b.ID))
		case inbox:
			return 1
		default:
			return -1
		}
	})
}

// usurped reports whether another incarnation has our consumer name. Called under the lock.
func (s *Stream) usurped(w *world) bool {
	c := w.claims[s.open.node.Consumer]
	return c != nil && c.incarnation != s.open.node.Incarnation
}

// claim is our entry among the consumer names; a server that lost its data gets it again. Called under the lock.
func (s *Stream) claim(w *world) *claimed {
	c := w.claims[s.open.node.Consumer]
	if c == nil {
		c = &claimed{incarnation: s.open.node.Incarnation, client: s}
		w.claims[s.open.node.Consumer] = c
	}
	return c
}

// renew is one entry's part of a beat. Of what was copied before, it looks at the task only where somebody was cancelled
// since the last beat: each cancellation is told once. Called under the lock.
func (s *Stream) renew(w *world, now int64, h streambridge.Held, look bool, beat *streambridge.Beat) {
	g := w.read(h.Stream)
	id, u := mustID(h.ID), w.task(h.TaskID).unit(h.Unit)
	d := g.owned(id, s.open.node.Consumer)
	if d == nil {
		if !s.putBack(w, g, id, h, now) {
			beat.Lost = append(beat.Lost, h.Ref)
		}
		return
	}
	fields, ok := w.data.log(h.Stream).body(id)
	if !ok {
		w.gone(h.Ref, &unitKey{h.TaskID, h.Unit}, now)
		beat.Gone = append(beat.Gone, h.Ref)
		return
	}
	g.consumer(d.consumer, now)
	d.atMS = now
	switch {
	case u == nil || h.Saved && !look:
	case u.State == messages.State_STATE_CANCELLED:
		c := streambridge.Cancelled{TaskID: h.TaskID, Unit: h.Unit, Reason: u.Error}
		if !slices.Contains(beat.Cancelled, c) {
			beat.Cancelled = append(beat.Cancelled, c)
		}
	case u.State == messages.State_STATE_RUNNING && !h.Saved:
		// Only what runs is copied: what has not begun has no record whose end would remove the copy.
		w.copyEntry(h.TaskID, h.Unit, h.Ref, fields)
		beat.Saved = append(beat.Saved, h.Ref)
	}
}

// putBack makes an entry pending with us again that a foreigner's XGROUP DELCONSUMER or XACK dropped without a trace: if
// nobody has it and its unit runs here, or waits here to begin, nobody would ever be given it again.
func (s *Stream) putBack(w *world, g *group, id entryID, h streambridge.Held, now int64) bool {
	if g == nil || h.TaskID == "" || g.pending.get(id) != nil {
		return false
	}
	if _, ok := w.data.log(h.Stream).body(id); !ok {
		return false
	}
	me, t := s.open.node, w.task(h.TaskID)
	u := t.unit(h.Unit)
	running := u != nil && u.State == messages.State_STATE_RUNNING && u.Run.Incarnation == me.Incarnation
	waiting := (u == nil || u.State == messages.State_STATE_PENDING) && (t == nil || t.Owner == "" || t.Owner == me.Incarnation)
	if !running && !waiting {
		return false
	}
	g.consumer(me.Consumer, now).pending++
	g.pending.put(id, &delivery{consumer: me.Consumer, atMS: now, count: 1})
	return true
}

// gone settles a pending entry whose body somebody else trimmed or deleted: from the copy beside its task it goes into the
// inbox, without one it becomes a dead letter that says so. Either way it is acknowledged, never dropped in silence. known
// is its unit where the caller knows it. It reports whether it made a dead letter.
func (w *world) gone(ref messages.Ref, known *unitKey, now int64) (buried bool) {
	if k, ok := w.saved[ref]; ok {
		known = &k
	}
	deliveries := w.read(ref.Stream).pending.get(mustID(ref.ID)).count
	defer w.settle(ref)
	if known == nil || known.task == "" {
		w.buryGone(ref, unitKey{}, deliveries, now)
		return true
	}
	t := w.task(known.task)
	u := t.unit(known.unit)
	_, due := w.due["r:"+member(known.task, known.unit)]
	if due || u != nil && (Ended(u.State) || u.State == messages.State_STATE_WAITING) {
		return false // committed already: only the acknowledgement is missing
	}
	c := w.copies[*known]
	if c == nil {
		w.buryGone(ref, *known, deliveries, now)
		return true
	}
	var wake uint64
	if u != nil {
		wake = u.Wake
		t.note(now, "rebuilt", "somebody removed the body of entry "+ref.ID)
	}
	w.toInbox(now, withControl(c.Fields, known.task, c.Origin, wake))
	return false
}

func (w *world) buryGone(ref messages.Ref, k unitKey, deliveries, now int64) {
	b := streambridge.Burial{
		Ref: ref, Reason: messages.Reason_REASON_BODY_GONE, TaskID: k.task, Unit: k.unit, Deliveries: deliveries,
		Detail: "somebody trimmed or deleted the entry while it was pending, and there was no copy",
	}
	if u := w.task(k.task).unit(k.unit); u != nil {
		b.Type = u.Type
	}
	w.bury(now, w.deadTTL, Letter{
		Ref: ref, Reason: b.Reason, Detail: b.Detail, Deliveries: deliveries, TaskID: k.task, Unit: k.unit, Type: b.Type,
		Ends: k.task != "",
	})
	if k.task != "" {
		w.fail(b, now, w.deadTTL)
	}
}
