package memstream

import (
	"context"
	"slices"
	"time"

	"github.com/weir-run/weir/messages"
)

// Tx is what a script may touch: the world of one group. It stands for the text of messages/task.lua, and like that it
// runs as one atomic piece: nobody else sees its middle, and no time passes in it. It ends with the function it was given to.
type Tx struct {
	// NowMS is the server's clock, Unix ms.
	NowMS int64
	w     *world
}

// Script runs f atomically in the group's world. op names the script in errors. f must not block, must not call the handle
// and must not keep what it gets from the Tx. The error is f's own, or says why the server was not reached: then f did not run.
func (s *Stream) Script(ctx context.Context, op string, keys messages.Keys, group string, f func(tx *Tx) error) error {
	return s.run(ctx, op, func(now int64) error {
		return f(&Tx{NowMS: now, w: s.server.data.world(keys, group)})
	})
}

// Task returns a task's record, or nil.
func (tx *Tx) Task(id string) *Task { return tx.w.task(id) }

// MakeTask returns a task's record, made when it is missing.
func (tx *Tx) MakeTask(id string) *Task { return tx.w.makeTask(id) }

// Become moves a unit to another state and keeps the indexes by state true; always also indexes a state that usually is not.
func (tx *Tx) Become(t *Task, u *Unit, to messages.State, always bool) {
	tx.w.become(t, u, to, tx.NowMS, always)
}

// Expire gives a task and what stands beside it a time to live; ≤ 0 keeps it.
func (tx *Tx) Expire(t *Task, ttl time.Duration) { tx.w.expire(t, tx.NowMS, ttl) }

// Note appends a line to a task's timeline, of which the newest 200 are kept.
func (tx *Tx) Note(t *Task, what, detail string) { t.note(tx.NowMS, what, detail) }

// OwnerLive reports whether the task has an owner that is live, or counts as live while claims wait.
func (tx *Tx) OwnerLive(t *Task) bool { return tx.w.ownerLive(t, tx.NowMS) }

// Disown ends ownership of a task and moves the oldest entry that waited for it to the inbox.
func (tx *Tx) Disown(t *Task) { tx.w.disown(t, tx.NowMS) }

// Wait puts fields on the list of what waits for the task's owner, and has the list looked at when the owner's liveness
// would end.
func (tx *Tx) Wait(t *Task, fields []messages.Pair) {
	t.Waiting = append(t.Waiting, fields)
	m := "q:" + messages.Escape(t.ID)
	if _, ok := tx.w.due[m]; !ok {
		until := tx.w.calmUntil
		if tx.w.live(t.Owner) {
			until = tx.w.alive[t.Owner]
		}
		tx.w.due[m] = until
	}
}

// PendingWith reports whether the entry is pending with that consumer.
func (tx *Tx) PendingWith(ref messages.Ref, consumer string) bool {
	id, ok := parseID(ref.ID)
	return ok && tx.w.read(ref.Stream).owned(id, consumer) != nil
}

// Body returns an entry's fields and the id of the producer's entry; ok is false when somebody removed it.
func (tx *Tx) Body(ref messages.Ref) (fields []messages.Pair, origin string, ok bool) {
	return tx.w.body(ref)
}

// BodyOrCopy is Body, or the copy beside the task where there is no body any more.
func (tx *Tx) BodyOrCopy(ref messages.Ref, task, unit string) (fields []messages.Pair, origin string, ok bool) {
	return tx.w.bodyOrCopy(ref, task, unit)
}

// Settle acknowledges an entry (one of the inbox goes) and reports whether it was pending.
func (tx *Tx) Settle(ref messages.Ref) bool { return tx.w.settle(ref) }

// Save keeps a copy of an entry's fields beside its task, unless there is one.
func (tx *Tx) Save(ref messages.Ref, task, unit string) {
	if fields, _, ok := tx.w.body(ref); ok {
		tx.w.copyEntry(task, unit, ref, fields)
	}
}

// Unsave drops the copy of a unit's entry.
func (tx *Tx) Unsave(ref messages.Ref, task, unit string) {
	delete(tx.w.copies, unitKey{task, unit})
	delete(tx.w.saved, ref)
}

// Bury writes a dead letter that is kept for ttl.
func (tx *Tx) Bury(ttl time.Duration, l Letter) { tx.w.bury(tx.NowMS, ttl, l) }

// DueAt lets the unit's copied entry come back into the inbox at that time.
func (tx *Tx) DueAt(task, unit string, atMS int64) { tx.w.due["r:"+member(task, unit)] = atMS }

// Due is when the unit's copied entry comes back, Unix ms; ok is false when it is not due or was promoted.
func (tx *Tx) Due(task, unit string) (atMS int64, ok bool) {
	atMS, ok = tx.w.due["r:"+member(task, unit)]
	return atMS, ok
}

// Keep replaces the copy of a unit's entry; the entry itself needs none any more.
func (tx *Tx) Keep(ref messages.Ref, task, unit string, fields []messages.Pair, origin string) {
	delete(tx.w.saved, ref)
	tx.w.copies[unitKey{task, unit}] = &Copy{Fields: fields, Origin: origin}
}

// Deliveries is how often a pending entry was handed out, 0 when it is not pending.
func (tx *Tx) Deliveries(ref messages.Ref) int64 {
	if g := tx.w.read(ref.Stream); g != nil {
		if d := g.pending.get(mustID(ref.ID)); d != nil {
			return d.count
		}
	}
	return 0
}

// EndTrial takes the unit off the trial of the node that runs it.
func (tx *Tx) EndTrial(t *Task, u *Unit) { tx.w.endTrial(t, u) }

// Close gives the task a time to live if none of its units is open any more.
func (tx *Tx) Close(t *Task, ttl time.Duration) { tx.w.close(t, tx.NowMS, ttl) }

// WithControl puts the control fields of an inbox entry in front of the fields and drops old ones.
func WithControl(fields []messages.Pair, id, origin string, wake uint64) []messages.Pair {
	return withControl(fields, id, origin, wake)
}

// Count adds to a running total of the group.
func (tx *Tx) Count(name string, n int64) { tx.w.counts[name] += n }

// Live reports whether the incarnation's liveness key stands.
func (tx *Tx) Live(incarnation string) bool { return tx.w.live(incarnation) }

// Life is what outlives the incarnation by a day, or nil.
func (tx *Tx) Life(incarnation string) *Life { return tx.w.lives[incarnation] }

// KeepLife is Life, made when it is missing and kept for another day.
func (tx *Tx) KeepLife(incarnation string) *Life { return tx.w.life(incarnation, tx.NowMS) }

// Member names a unit in the due set, the indexes and a trial: "<escaped id>:<escaped unit>".
func Member(task, unit string) string { return member(task, unit) }

// body finds an entry's fields in its stream.
func (w *world) body(ref messages.Ref) (fields []messages.Pair, origin string, ok bool) {
	if l := w.data.log(ref.Stream); l != nil {
		if fields, ok := l.body(mustID(ref.ID)); ok {
			return slices.Clone(fields), w.origin(ref, fields), true
		}
	}
	return nil, "", false
}

// bodyOrCopy finds an entry's fields in its stream, else in the copy beside its task.
func (w *world) bodyOrCopy(ref messages.Ref, task, unit string) (fields []messages.Pair, origin string, ok bool) {
	if fields, origin, ok = w.body(ref); ok {
		return fields, origin, ok
	}
	if c := w.copies[unitKey{task, unit}]; c != nil {
		return slices.Clone(c.Fields), c.Origin, true
	}
	return nil, "", false
}
