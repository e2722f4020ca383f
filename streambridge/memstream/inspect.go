package memstream

import (
	"maps"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// What tests and simulations look at, and do in a node's place. Adapters do not need it.

// Entries lists what the public stream or the inbox holds, oldest first.
func (tx *Tx) Entries(inbox bool) (found []streambridge.Entry) {
	stream := tx.stream(inbox)
	l := tx.w.data.log(stream)
	if l == nil {
		return nil
	}
	for id, r := range l.entries.from(entryID{}) {
		found = append(found, entry(stream, id, r.fields, &delivery{}))
	}
	return found
}

// AddTo appends an entry to the public stream or the inbox.
func (tx *Tx) AddTo(inbox bool, fields []messages.Pair) messages.Ref {
	stream := tx.stream(inbox)
	return messages.Ref{Stream: stream, ID: tx.w.data.make(stream).add(tx.NowMS, fields).String()}
}

// HandOut hands every new entry of the public stream or the inbox to a consumer, as a read does.
func (tx *Tx) HandOut(inbox bool, consumer string) (found []streambridge.Entry) {
	tx.w.ensure()
	stream := tx.stream(inbox)
	g := tx.w.read(stream)
	for id, r := range tx.w.data.log(stream).entries.from(g.delivered.next()) {
		found = append(found, entry(stream, id, r.fields, g.deliver(id, consumer, tx.NowMS)))
	}
	return found
}

// Claim makes a pending entry pending with another consumer, as a reaper does. It reports whether it was pending.
func (tx *Tx) Claim(ref messages.Ref, consumer string) bool {
	g, id := tx.w.read(ref.Stream), mustID(ref.ID)
	if g == nil || g.pending.get(id) == nil {
		return false
	}
	g.claim(id, consumer, 1, tx.NowMS)
	return true
}

// Pending lists what the group has not acknowledged of the public stream or the inbox, in order of ids.
func (tx *Tx) Pending(inbox bool) (found []Pending) {
	g := tx.w.read(tx.stream(inbox))
	if g == nil {
		return nil
	}
	for id, d := range g.pending.from(entryID{}) {
		found = append(found, Pending{
			ID: id.String(), Consumer: d.consumer, Deliveries: d.count, Idle: time.Duration(tx.NowMS-d.atMS) * time.Millisecond,
		})
	}
	return found
}

// Pending is one row of a pending list.
type Pending struct {
	ID, Consumer string
	Idle         time.Duration
	Deliveries   int64
}

// SetLive sets an incarnation's liveness key for that long; ≤ 0 removes it.
func (tx *Tx) SetLive(incarnation string, d time.Duration) {
	if d <= 0 {
		delete(tx.w.alive, incarnation)
		return
	}
	tx.w.keepAlive(incarnation, tx.NowMS, d)
}

// SetCalm makes every owner and consumer count as alive until then, Unix ms.
func (tx *Tx) SetCalm(untilMS int64) { tx.w.calmUntil = untilMS }

// DueSet is what happens at a time, Unix ms; messages/layout.go has the members.
func (tx *Tx) DueSet() map[string]int64 { return maps.Clone(tx.w.due) }

// Hasten makes d pass for all that is due at a time, and for nothing else.
func (tx *Tx) Hasten(d time.Duration) {
	for m := range tx.w.due {
		tx.w.due[m] -= d.Milliseconds()
	}
}

// MarkerTTL is how long the submit marker of a task is kept; 0 where there is none, or for ever.
func (tx *Tx) MarkerTTL(id string) time.Duration {
	if m := tx.w.data.marks[tx.w.keys.Submitted(id)]; m != nil && m.untilMS > 0 {
		return time.Duration(m.untilMS-tx.NowMS) * time.Millisecond
	}
	return 0
}

// Standing lists what stands of a task, with its time to live; 0 for what has none: "" for its record, ":mail", ":waits",
// ":children", ":joins".
func (tx *Tx) Standing(id string) map[string]time.Duration {
	left := func(untilMS int64) time.Duration { return time.Duration(max(untilMS-tx.NowMS, 0)) * time.Millisecond }
	found := map[string]time.Duration{}
	if m := tx.w.mail[id]; m != nil {
		found[":mail"] = left(m.untilMS)
	}
	if t := tx.w.task(id); t != nil {
		found[""] = left(t.UntilMS)
		for end, n := range map[string]int{":waits": len(t.Waits), ":children": len(t.children), ":joins": len(t.joins)} {
			if n > 0 {
				found[end] = left(t.UntilMS)
			}
		}
	}
	return found
}

// Promote moves the copy of a RETRYING unit's entry to the inbox now, as a tick does when it is due.
func (tx *Tx) Promote(task, unit string) {
	delete(tx.w.due, "r:"+member(task, unit))
	tx.w.promote(task, unit, tx.NowMS)
}

// Letters lists the dead letters, oldest first.
func (tx *Tx) Letters() (found []*messages.DeadLetter) {
	for id, l := range tx.w.dead.list.from(entryID{}) {
		found = append(found, l.message(id))
	}
	return found
}

// Index lists the members of the index of a state and agent type, in order.
func (tx *Tx) Index(state messages.State, agentType string) []string {
	return sortedKeys(tx.w.index[indexKey{state, agentType}])
}

// Total reads a running total of the group: succeeded, failed, cancelled, dead.
func (tx *Tx) Total(name string) int64 { return tx.w.counts[name] }

// Copied reports whether a copy of the unit's entry stands beside its task.
func (tx *Tx) Copied(task, unit string) bool { return tx.w.copies[unitKey{task, unit}] != nil }

func (tx *Tx) stream(inbox bool) string {
	if inbox {
		return tx.w.keys.Inbox()
	}
	return tx.w.keys.Stream
}
