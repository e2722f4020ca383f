package memstream

import "container/heap"

// expiry remembers what has a time to live, soonest first; equal times go in order of arrival.
type expiry struct {
	heap  deadlines
	count uint64
}

type deadline struct {
	atMS  int64
	order uint64
	drop  func(now int64) (again int64)
}

type deadlines []deadline

func (h deadlines) Len() int { return len(h) }
func (h deadlines) Less(i, j int) bool {
	return h[i].atMS < h[j].atMS || h[i].atMS == h[j].atMS && h[i].order < h[j].order
}
func (h deadlines) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *deadlines) Push(x any)   { *h = append(*h, x.(deadline)) }
func (h *deadlines) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = deadline{}
	*h = old[:len(old)-1]
	return last
}

// at asks for drop to be called at the first script after atMS. The time may have been moved by then: drop looks itself,
// and answers when to ask again, or 0 for never.
func (e *expiry) at(atMS int64, drop func(now int64) (again int64)) {
	e.count++
	heap.Push(&e.heap, deadline{atMS: atMS, order: e.count, drop: drop})
}

// expire drops what has run out.
func (d *data) expire(now int64) {
	for len(d.expiry.heap) > 0 && d.expiry.heap[0].atMS <= now {
		next := heap.Pop(&d.expiry.heap).(deadline)
		if again := next.drop(now); again > now {
			d.expiry.at(again, next.drop)
		}
	}
}

// due reports whether a time to live has run out; 0 never does.
func due(atMS, now int64) bool { return atMS > 0 && atMS <= now }
