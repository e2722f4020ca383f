package memstream

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// What stands with a stream and not with one of its groups: its entries, the markers of what was submitted, what was
// submitted for later, and the unique keys.

// Add appends an entry to the public stream and returns its id.
func (tx *Tx) Add(fields []messages.Pair) string {
	return tx.w.data.make(tx.w.keys.Stream).add(tx.NowMS, fields).String()
}

// Length is how many entries the public stream holds.
func (tx *Tx) Length() int64 {
	if l := tx.w.data.log(tx.w.keys.Stream); l != nil {
		return int64(l.entries.len())
	}
	return 0
}

// Mark says that a task was submitted to the stream; all its groups share it.
type Mark struct {
	// EntryID is empty while a delayed one waits for its time.
	EntryID   string
	Work      string
	Type      string
	CreatedMS int64
}

// marks are the submit markers of a task id, by unit.
type marks struct {
	units   map[string]Mark
	untilMS int64
}

// Marks returns the submit markers of a task id by unit; nil when it was not submitted, or too long ago.
func (tx *Tx) Marks(id string) map[string]Mark {
	if m := tx.w.data.marks[tx.w.keys.Submitted(id)]; m != nil {
		return m.units
	}
	return nil
}

// SetMark writes the submit marker of a unit, and keeps those of its task id for ttl at least; ≤ 0 keeps them for ever.
func (tx *Tx) SetMark(id, unit string, m Mark, ttl time.Duration) {
	tx.w.setMark(id, unit, m, tx.NowMS, ttl)
}

func (w *world) setMark(id, unit string, m Mark, now int64, ttl time.Duration) {
	w.data.setMark(w.keys.Submitted(id), unit, m, now, ttl)
}

func (d *data) setMark(key, unit string, m Mark, now int64, ttl time.Duration) {
	all := d.marks[key]
	if all == nil {
		all = &marks{units: map[string]Mark{}, untilMS: now}
		d.marks[key] = all
	}
	m.CreatedMS = cmp.Or(m.CreatedMS, now)
	all.units[unit] = m
	if ttl <= 0 {
		all.untilMS = 0
	}
	if all.untilMS == 0 {
		return
	}
	all.untilMS = max(all.untilMS, now+max(ttl.Milliseconds(), 1))
	d.expiry.at(all.untilMS, func(now int64) int64 {
		if due(all.untilMS, now) && d.marks[key] == all {
			delete(d.marks, key)
		}
		return 0
	})
}

// Delayed is a task that was submitted for later.
type Delayed struct {
	AtMS   int64 // when it joins the stream
	TTL    time.Duration
	Mark   Mark
	Fields []messages.Pair
}

// DelayedCount is how many tasks wait for their time to join the stream.
func (tx *Tx) DelayedCount() int64 { return int64(len(tx.w.data.delayed[tx.w.keys.Delayed()])) }

// DelayedAt is when the unit joins the stream, Unix ms; ok is false when it does not wait for that.
func (tx *Tx) DelayedAt(id, unit string) (atMS int64, ok bool) {
	d, ok := tx.w.data.delayed[tx.w.keys.Delayed()][member(id, unit)]
	if !ok {
		return 0, false
	}
	return d.AtMS, true
}

// Delay keeps a task until it is to join the stream, and writes its marker.
func (tx *Tx) Delay(id, unit string, d Delayed) {
	key, all := tx.w.keys.Delayed(), tx.w.data.delayed
	if all[key] == nil {
		all[key] = map[string]*Delayed{}
	}
	d.Fields = slices.Clone(d.Fields)
	all[key][member(id, unit)] = &d
	ttl := d.TTL
	if ttl > 0 {
		ttl += time.Duration(d.AtMS-tx.NowMS) * time.Millisecond
	}
	tx.SetMark(id, unit, d.Mark, ttl)
}

// joinStream adds what was submitted for later, and is due, to the public stream, however full that is: it was accepted.
func (w *world) joinStream(now int64) (joined int, more bool) {
	waiting := w.data.delayed[w.keys.Delayed()]
	var ripe []string
	for m, d := range waiting {
		if d.AtMS <= now {
			ripe = append(ripe, m)
		}
	}
	slices.SortFunc(ripe, func(a, b string) int {
		return cmp.Or(cmp.Compare(waiting[a].AtMS, waiting[b].AtMS), cmp.Compare(a, b))
	})
	more = len(ripe) >= perTick
	size := 0
	for _, m := range ripe[:min(len(ripe), perTick)] {
		d, mark := waiting[m], waiting[m].Mark
		for _, f := range d.Fields {
			size += len(f.Name) + len(f.Value)
		}
		mark.EntryID = w.data.make(w.keys.Stream).add(now, d.Fields).String()
		id, unit, _ := strings.Cut(m, ":")
		w.setMark(messages.Unescape(id), messages.Unescape(unit), mark, now, d.TTL)
		delete(waiting, m)
		if joined++; size > perTickBytes {
			return joined, true
		}
	}
	return joined, more
}

// unique says which unit a unique key is taken by.
type unique struct {
	id, unit string
	untilMS  int64
}

// Unique is the unit that has taken a unique key; ok is false when nobody has.
func (tx *Tx) Unique(key string) (id, unit string, ok bool) {
	u, ok := tx.w.data.uniques[tx.w.keys.Unique(key)]
	if !ok {
		return "", "", false
	}
	return u.id, u.unit, true
}

// Take takes a unique key for a unit, for that long.
func (tx *Tx) Take(key, id, unit string, period time.Duration) {
	d, name := tx.w.data, tx.w.keys.Unique(key)
	u := &unique{id: id, unit: unit, untilMS: tx.NowMS + max(period.Milliseconds(), 1)}
	d.uniques[name] = u
	d.expiry.at(u.untilMS, func(int64) int64 {
		if d.uniques[name] == u {
			delete(d.uniques, name)
		}
		return 0
	})
}

// DelayedMembers lists the units that wait to join the stream, by "<escaped id>:<escaped unit>", with their times, Unix ms.
func (tx *Tx) DelayedMembers() map[string]int64 {
	found := map[string]int64{}
	for m, d := range tx.w.data.delayed[tx.w.keys.Delayed()] {
		found[m] = d.AtMS
	}
	return found
}
