package memstream

import (
	"context"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Release gives back all that is pending with this consumer, and leaves the group; see streambridge.Stream.
func (s *Stream) Release(ctx context.Context, held []streambridge.Held) (n int, err error) {
	err = s.bound(ctx, "release", func(w *world, now int64) error {
		me := s.open.node
		n = 0
		for _, h := range held {
			w.giveUp(h, me.Incarnation, now)
		}
		s.connected = false
		if s.usurped(w) {
			return nil // what is pending under the name is another's now
		}
		for _, stream := range w.streams() {
			n += w.release(stream, me.Consumer, now)
		}
		s.depart(w)
		return nil
	})
	return n, err
}

// giveUp ends an incarnation's ownership of a task: what it ran is interrupted, free of charge.
func (w *world) giveUp(h streambridge.Held, incarnation string, now int64) {
	t := w.task(h.TaskID)
	if t == nil {
		return
	}
	if u := t.Units[h.Unit]; u != nil && u.State == messages.State_STATE_RUNNING && u.Run.Incarnation == incarnation {
		u.Interruptions++
		w.become(t, u, messages.State_STATE_PENDING, now, false)
		w.giveBack(t, u, now)
	}
	if t.Owner == incarnation {
		w.disown(t, now)
	}
}

// release makes what is pending with the consumer free to be taken at once. What was given back before stays as it is, so
// that the delivery count goes back once.
func (w *world) release(stream, consumer string, now int64) (n int) {
	g := w.read(stream)
	if g == nil {
		return 0
	}
	for _, id := range g.idle(now, 0, g.pending.len(), consumer) {
		d := g.pending.get(id)
		if now-d.atMS >= (released - time.Minute).Milliseconds() {
			continue
		}
		n++
		if _, ok := w.data.log(stream).body(id); !ok {
			w.gone(messages.Ref{Stream: stream, ID: id.String()}, nil, now)
			continue
		}
		d.atMS, d.count = now-released.Milliseconds(), max(d.count-1, 0)
	}
	return n
}

// depart ends our liveness. The consumer goes when nothing is pending on it; else others may take what it gave back even
// while a calm counts everybody as alive.
func (s *Stream) depart(w *world) {
	me := s.open.node
	delete(w.alive, me.Incarnation)
	if l := w.lives[me.Incarnation]; l != nil {
		l.Trial, l.TrialUntilMS = "", 0
	}
	if w.pendingWith(me.Consumer) > 0 {
		if c := w.claims[me.Consumer]; c != nil {
			c.left = true
		}
		return
	}
	w.dropConsumer(me.Consumer)
}

// pendingWith is how many entries of both streams are pending with the consumer.
func (w *world) pendingWith(consumer string) (n int) {
	for _, stream := range w.streams() {
		if g := w.read(stream); g != nil && g.consumers[consumer] != nil {
			n += g.consumers[consumer].pending
		}
	}
	return n
}

// dropConsumer takes a consumer with nothing pending out of the group.
func (w *world) dropConsumer(name string) {
	for _, stream := range w.streams() {
		if g := w.read(stream); g != nil {
			delete(g.consumers, name)
		}
	}
	delete(w.claims, name)
}
