package memstream

import (
	"slices"

	"github.com/weir-run/weir/messages"
)

// record is an entry of a stream.
type record struct {
	fields []messages.Pair // never changed after it was added
}

// log is one stream key: its entries and the groups that read it.
type log struct {
	entries byID[record]
	last    entryID
	groups  map[string]*group
}

func newLog() *log { return &log{groups: map[string]*group{}} }

// add appends an entry under the next id of that millisecond, as XADD with `*` does.
func (l *log) add(now int64, fields []messages.Pair) entryID {
	id := entryID{ms: now}
	if id.compare(l.last) <= 0 {
		id = l.last.next()
	}
	l.last = id
	l.entries.put(id, &record{fields: slices.Clone(fields)})
	return id
}

// body returns the fields of an entry; ok is false when somebody trimmed or deleted it.
func (l *log) body(id entryID) (fields []messages.Pair, ok bool) {
	if r := l.entries.get(id); r != nil {
		return r.fields, true
	}
	return nil, false
}

// trim removes the entries before limit (XTRIM MINID) and returns how many.
func (l *log) trim(limit entryID) int64 {
	var gone []entryID
	for id := range l.entries.from(entryID{}) {
		if id.compare(limit) >= 0 {
			break
		}
		gone = append(gone, id)
	}
	for _, id := range gone {
		l.entries.remove(id)
	}
	return int64(len(gone))
}

// settled is the id before which no group of this stream needs an entry any more.
func (l *log) settled() entryID {
	limit := l.last.next()
	for _, g := range l.groups {
		if low := g.low().next(); low.compare(limit) < 0 {
			limit = low
		}
	}
	return limit
}

// group returns the consumer group, or nil.
func (l *log) group(name string) *group {
	if l == nil {
		return nil
	}
	return l.groups[name]
}

// join makes the group when it is missing, to read what comes after id.
func (l *log) join(name string, after entryID) {
	if l.groups[name] == nil {
		l.groups[name] = &group{delivered: after, consumers: map[string]*consumer{}}
	}
}

// lost counts the entries of gone that the group had not been handed: somebody else trimmed or deleted them.
func (l *log) lost(gone []entryID) {
	for _, g := range l.groups {
		for _, id := range gone {
			if id.compare(g.delivered) > 0 {
				g.missed++
			}
		}
	}
}
