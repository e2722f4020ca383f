package memstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// perTick is how many due members, and how many entries of agent types, one tick moves; More says that there are more.
const perTick = 200

// perTickBytes is about how many bytes of delayed tasks one tick moves.
const perTickBytes = 4 << 20

// Tick is one turn of the clock; see streambridge.Upkeep.
func (s *Stream) Tick(ctx context.Context, req streambridge.TickRequest) (t streambridge.Tick, err error) {
	err = s.bound(ctx, "tick", func(w *world, now int64) error {
		t = streambridge.Tick{}
		if s.usurped(w) {
			return fmt.Errorf("tick as %q: %w", s.open.node.Consumer, streambridge.ErrUsurped)
		}
		if req.DeadTTL > 0 {
			s.deadTTL, w.deadTTL = req.DeadTTL, req.DeadTTL
		}
		s.notice(w)
		s.pulse(w, now, &t)
		w.life(s.open.node.Incarnation, now).Stuck = req.Stuck
		s.hear(w, &t)
		w.trim(now, &t)
		w.promoteDue(now, &t)
		joined, more := w.joinStream(now)
		t.Joined, t.More = joined, t.More || more
		s.drainTypes(w, now, req.Room, &t)
		w.forgetSaved()
		dead := s.roll(w, now, &t)
		w.lookAtGate(now, s.server.memory, req.Gate)
		t.Gate = w.gateNow(now)
		req.Room -= len(t.Drained)
		room := req.Room - s.sweep(w, now, req, &t)
		s.reap(w, now, room, dead, &t)
		return nil
	})
	return t, err
}

// pulse says that somebody ticks, and that we do. After half a lease without any tick, everybody counts as alive for one
// lease: idle time ran on while nobody could beat.
func (s *Stream) pulse(w *world, now int64, t *streambridge.Tick) {
	me := s.open.node
	if w.claims[me.Consumer] == nil { // forgotten when somebody emptied the server
		s.claim(w)
		w.keepAlive(me.Incarnation, now, me.Lease)
	}
	lease := me.Lease.Milliseconds()
	if w.pulse > 0 && now-w.pulse > lease/2 {
		w.calmUntil = now + lease
	}
	w.pulse = now
	life := w.life(me.Incarnation, now)
	life.TickMS, life.Types = now, me.Types
	t.Calm = now < w.calmUntil
	for incarnation, l := range w.lives {
		if incarnation == me.Incarnation || w.live(incarnation) && now-l.TickMS <= lease {
			t.Nodes++
		}
	}
}

// roll calls the roll: it returns the consumers that are dead and hold something, and removes those that hold nothing. One
// that left in order is dead, calm or no calm.
func (s *Stream) roll(w *world, now int64, t *streambridge.Tick) (dead []string) {
	names := map[string]bool{}
	for _, stream := range w.streams() {
		for name := range w.read(stream).consumers {
			names[name] = true
		}
	}
	for _, name := range sortedKeys(names) {
		if name == s.open.node.Consumer || w.consumerLive(name, now) {
			continue
		}
		if n := w.pendingWith(name); n > 0 {
			dead = append(dead, name)
			t.Orphans += n
		} else {
			w.dropConsumer(name)
		}
	}
	return dead
}

// sweep reports our own entries that nobody has renewed: a reply was lost, or an earlier incarnation left them. It returns
// how many it handed out.
func (s *Stream) sweep(w *world, now int64, req streambridge.TickRequest, t *streambridge.Tick) (n int) {
	after := max(req.StrayAfter, time.Millisecond) // nothing that was renewed a moment ago is a stray
	me := s.open.node.Consumer
	for _, stream := range w.streams() {
		for _, id := range w.read(stream).idle(now, after, req.Room-n, me) {
			if e := w.handOut(stream, id, me, 0, now, t); e != nil {
				n++
				t.Strays = append(t.Strays, *e)
			}
		}
	}
	return n
}

// reap takes our share of what dead nodes held. A share is one of the crowd, and each node takes one in its turn: one of
// what the others left would halve from tick to tick.
func (s *Stream) reap(w *world, now int64, room int, dead []string, t *streambridge.Tick) {
	share, turn, life := (t.Orphans+t.Nodes-1)/max(t.Nodes, 1), now, w.life(s.open.node.Incarnation, now)
	n := share
	if w.turn > 0 && now-w.turn < s.open.node.Lease.Milliseconds()/2 {
		turn = w.turn
		if life.turn != turn {
			n = max(n, w.share)
		}
	}
	n = min(n, room)
	before := t.Orphans
	for _, name := range dead {
		for _, stream := range w.streams() {
			for _, id := range w.read(stream).idle(now, s.open.node.Lease, n, name) {
				n--
				t.Orphans--
				if e := w.handOut(stream, id, s.open.node.Consumer, 1, now, t); e != nil {
					t.Claimed = append(t.Claimed, *e)
				}
			}
		}
	}
	if t.Orphans == before {
		return
	}
	if w.turn != turn {
		w.share, w.turn = share, turn
	}
	life.turn = turn
}

// handOut makes a pending entry ours with that many deliveries more. One without a body is settled instead.
func (w *world) handOut(stream string, id entryID, to string, more, now int64, t *streambridge.Tick) *streambridge.Entry {
	ref := messages.Ref{Stream: stream, ID: id.String()}
	fields, ok := w.data.log(stream).body(id)
	if !ok {
		if w.gone(ref, nil, now) {
			t.Buried = append(t.Buried, ref)
		}
		return nil
	}
	e := entry(stream, id, fields, w.read(stream).claim(id, to, more, now))
	return &e
}

// promoteDue moves due retries to the inbox, ends waits whose time is over, and looks after the lists of entries that wait for a dead owner.
func (w *world) promoteDue(now int64, t *streambridge.Tick) {
	members, more := w.nextDue(now, perTick)
	t.More = t.More || more
	for _, m := range members {
		kind, rest, _ := strings.Cut(m, ":")
		if kind != "w" { // whose time stands nowhere else
			delete(w.due, m)
		}
		switch kind {
		case "r":
			task, unit, _ := strings.Cut(rest, ":")
			if w.promote(messages.Unescape(task), messages.Unescape(unit), now) {
				t.Promoted++
			}
		case "w":
			if w.ripen(m, rest, now) {
				t.Promoted++
			}
		case "q":
			w.checkQueue(messages.Unescape(rest), now)
		case "c":
			w.cancelDue(rest, now)
		}
	}
}

// ripen ends the time of a wait and lets its unit go on. It reports whether that one does.
func (w *world) ripen(member, rest string, now int64) bool {
	id, rest, _ := strings.Cut(rest, ":")
	unit, name, _ := strings.Cut(rest, ":")
	key := WaitKey{messages.Unescape(unit), messages.Unescape(name)}
	defer delete(w.due, member)
	t := w.task(messages.Unescape(id))
	return t != nil && w.lookAt(t, key, now) && w.wakeUnit(t, key.Unit, now)
}

// promote puts the copy of a RETRYING or SCHEDULED unit's entry into the inbox, under the unit's wake number. The unit keeps
// its state until it is begun.
func (w *world) promote(task, unit string, now int64) bool {
	u := w.task(task).unit(unit)
	if u == nil || u.State != messages.State_STATE_RETRYING && u.State != messages.State_STATE_SCHEDULED {
		return false
	}
	c := w.copies[unitKey{task, unit}]
	if c == nil {
		what := "to be retried"
		if u.State == messages.State_STATE_SCHEDULED {
			what = "to be run at its time"
		}
		b := streambridge.Burial{
			Reason: messages.Reason_REASON_BODY_GONE, TaskID: task, Unit: unit, Type: u.Type,
			Detail: what + ", and the copy of its entry is gone",
		}
		w.bury(now, w.deadTTL, Letter{Reason: b.Reason, Detail: b.Detail, TaskID: task, Unit: unit, Type: u.Type, Ends: true})
		w.fail(b, now, w.deadTTL)
		return false
	}
	w.toInbox(now, withControl(c.Fields, task, c.Origin, u.Wake))
	return true
}

// checkQueue moves the oldest entry of a waiting list on when the task's owner is gone, and keeps looking while the list
// is not empty.
func (w *world) checkQueue(task string, now int64) {
	t := w.task(task)
	if t == nil || len(t.Waiting) == 0 {
		return
	}
	if !w.ownerLive(t, now) {
		w.disown(t, now)
	}
	if len(t.Waiting) > 0 {
		w.due["q:"+messages.Escape(task)] = now + w.lease.Milliseconds()
	}
}

// forgetSaved forgets copies whose entries were settled by somebody who did not know of them.
func (w *world) forgetSaved() {
	for ref := range w.saved {
		if g := w.read(ref.Stream); g == nil || g.pending.get(mustID(ref.ID)) == nil {
			delete(w.saved, ref)
		}
	}
}

// drainTypes hands out entries that waited for one of our agent types, by way of the inbox, and names the types that no live
// node runs. They are ours at once: whoever reads the inbox next may be one that lacks the type again, and so on for ever.
func (s *Stream) drainTypes(w *world, now int64, room int, t *streambridge.Tick) {
	own, left := s.open.node.Types, min(perTick, room)
	drained := 0
	for _, name := range sortedKeys(w.types) {
		l := w.data.log(w.keys.Type(name))
		if l != nil && slices.Contains(own, name) {
			for id, r := l.entries.first(); r != nil && drained < left; id, r = l.entries.first() {
				w.toInbox(now, r.fields)
				l.entries.remove(id)
				drained++
			}
		}
		switch {
		case l == nil || l.entries.len() == 0:
			delete(w.types, name)
			delete(w.data.logs, w.keys.Type(name))
		case slices.Contains(own, name):
			t.More = t.More || drained >= perTick
		case !w.served(name, now):
			t.Unserved = append(t.Unserved, name)
		}
	}
	inbox := w.keys.Inbox()
	l, g := w.data.log(inbox), w.read(inbox)
	for id, r := range l.entries.from(g.delivered.next()) {
		if drained--; drained < 0 {
			break
		}
		t.Drained = append(t.Drained, entry(inbox, id, r.fields, g.deliver(id, s.open.node.Consumer, now)))
	}
}

// served reports whether a live node runs the agent type.
func (w *world) served(agentType string, now int64) bool {
	for incarnation, l := range w.lives {
		if w.live(incarnation) && now-l.TickMS <= w.lease.Milliseconds() && slices.Contains(l.Types, agentType) {
			return true
		}
	}
	return false
}
