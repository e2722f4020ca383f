package memstream

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// entryID is the id of an entry as Redis makes it: milliseconds, then a sequence within them.
type entryID struct {
	ms  int64
	seq uint64
}

func (id entryID) String() string {
	return strconv.FormatInt(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

func (id entryID) compare(other entryID) int {
	return cmp.Or(cmp.Compare(id.ms, other.ms), cmp.Compare(id.seq, other.seq))
}

// next is the smallest id after id.
func (id entryID) next() entryID {
	if id.seq == math.MaxUint64 {
		return entryID{ms: id.ms + 1}
	}
	return entryID{ms: id.ms, seq: id.seq + 1}
}

// prev is the greatest id before id; of the zero id it is the zero id.
func (id entryID) prev() entryID {
	switch {
	case id.seq > 0:
		return entryID{ms: id.ms, seq: id.seq - 1}
	case id.ms > 0:
		return entryID{ms: id.ms - 1, seq: math.MaxUint64}
	}
	return id
}

// parseID reads "ms-seq" or "ms"; ok is false for anything else.
func parseID(s string) (id entryID, ok bool) {
	head, tail, dashed := strings.Cut(s, "-")
	ms, err := strconv.ParseInt(head, 10, 64)
	if err != nil || ms < 0 {
		return entryID{}, false
	}
	if !dashed {
		return entryID{ms: ms}, true
	}
	seq, err := strconv.ParseUint(tail, 10, 64)
	return entryID{ms: ms, seq: seq}, err == nil
}

// mustID is parseID for ids that this package wrote; of anything else it is the zero id, which no entry has.
func mustID(s string) entryID {
	id, _ := parseID(s)
	return id
}

// byID keeps values in the order of their ids. Ids nearly always come and go at the ends, so it is a sorted slice
// whose removed places are swept together once they are the half.
type byID[T any] struct {
	items []item[T]
	holes int
}

type item[T any] struct {
	id    entryID
	value *T // nil for a hole
}

func (l *byID[T]) len() int { return len(l.items) - l.holes }

func (l *byID[T]) find(id entryID) (int, bool) {
	return slices.BinarySearchFunc(l.items, id, func(it item[T], id entryID) int { return it.id.compare(id) })
}

func (l *byID[T]) get(id entryID) *T {
	if i, ok := l.find(id); ok {
		return l.items[i].value
	}
	return nil
}

func (l *byID[T]) put(id entryID, value *T) {
	i, ok := l.find(id)
	switch {
	case !ok:
		l.items = slices.Insert(l.items, i, item[T]{id, value})
		return
	case l.items[i].value == nil:
		l.holes--
	}
	l.items[i].value = value
}

// remove takes the value out, or returns nil.
func (l *byID[T]) remove(id entryID) *T {
	i, ok := l.find(id)
	if !ok || l.items[i].value == nil {
		return nil
	}
	value := l.items[i].value
	l.items[i].value = nil
	l.holes++
	for len(l.items) > 0 && l.items[0].value == nil { // most go from the front
		l.items = l.items[1:]
		l.holes--
	}
	if l.holes > 32 && l.holes > len(l.items)/2 {
		l.items = slices.DeleteFunc(l.items, func(it item[T]) bool { return it.value == nil })
		l.holes = 0
	}
	return value
}

// first returns the value with the smallest id, or nil.
func (l *byID[T]) first() (entryID, *T) {
	for id, v := range l.from(entryID{}) {
		return id, v
	}
	return entryID{}, nil
}

// from yields the values from id on. The list must not change while it is ranged over.
func (l *byID[T]) from(id entryID) iter.Seq2[entryID, *T] {
	return func(yield func(entryID, *T) bool) {
		i, _ := l.find(id)
		for ; i < len(l.items); i++ {
			if it := l.items[i]; it.value != nil && !yield(it.id, it.value) {
				return
			}
		}
	}
}
