package memstream

import (
	"time"

	"github.com/weir-run/weir/streambridge"
)

// passEach is how often the acknowledged entries behind a slow one are deleted, and how old that one must be.
const passEach = time.Minute

// trim removes what every group has acknowledged, keeps the low-water mark for a group that vanishes, and counts what
// somebody else trimmed undelivered.
func (w *world) trim(now int64, t *streambridge.Tick) {
	for _, stream := range w.streams() {
		l, g := w.data.log(stream), w.read(stream)
		t.Trimmed += l.trim(l.settled())
		if stream != w.keys.Stream {
			continue
		}
		w.low = g.low()
		t.Missed, g.missed = g.missed, 0
		w.trimBehind(l, now, t)
	}
}

// trimBehind deletes acknowledged entries one by one. Behind an entry that takes long they would pile up until Submit is
// refused, and outlive the records that say they are done.
func (w *world) trimBehind(l *log, now int64, t *streambridge.Tick) {
	least, reached := l.settled(), l.reached()
	if least.ms >= now-passEach.Milliseconds() || least.compare(reached) >= 0 || now-w.pass < passEach.Milliseconds() {
		return
	}
	w.pass = now
	var done []entryID
	for id := range l.entries.from(least.next()) {
		if id.compare(reached) > 0 {
			break
		}
		if !l.waits(id) {
			done = append(done, id)
		}
	}
	for _, id := range done {
		l.entries.remove(id)
	}
	t.Trimmed += int64(len(done))
}

// reached is the last entry that every group was handed.
func (l *log) reached() entryID {
	reached := l.last
	for _, g := range l.groups {
		if g.delivered.compare(reached) < 0 {
			reached = g.delivered
		}
	}
	return reached
}

// waits reports whether some group has the entry pending.
func (l *log) waits(id entryID) bool {
	for _, g := range l.groups {
		if g.pending.get(id) != nil {
			return true
		}
	}
	return false
}
