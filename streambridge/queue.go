package streambridge

import (
	"slices"

	"github.com/weir-run/weir/messages"
)

// This file is the part of the window that keeps each task's order.

// enqueue puts an entry into its task's order. serve must follow.
func (w *window) enqueue(s *slot) {
	q := w.tasks[s.task.TaskId]
	if q == nil {
		q = &queue{taskID: s.task.TaskId}
		w.tasks[s.task.TaskId] = q
	}
	i := len(q.waiting)
	for i > 0 && s.at.before(q.waiting[i-1].at) {
		i-- // nearly always at the end: only claims and strays come late
	}
	q.waiting = slices.Insert(q.waiting, i, s)
	w.touched = append(w.touched, q)
}

// serve assigns what a batch brought, once all of it is in its order: a batch from two streams is not sorted.
func (w *window) serve() {
	for _, q := range w.touched {
		w.next(q)
	}
	clear(w.touched)
	w.touched = w.touched[:0]
}

// next assigns a task's oldest waiting entry when its actor is free. A task with nothing left is forgotten.
func (w *window) next(q *queue) {
	if q.current != nil {
		return
	}
	if len(q.waiting) == 0 {
		delete(w.tasks, q.taskID)
		return
	}
	if w.draining {
		return
	}
	s := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	q.current, s.state = s, assigned
	w.stats.Waiting--
	w.stats.Running++
	w.stats.Assigned++
	w.do(assign{&messages.Assign{Task: s.task, Entry: s.entry()}})
}

// leave takes an entry out of its task's order. A running one leaves its ghost behind.
func (w *window) leave(s *slot) {
	if s.state == assigned {
		s.state = ghost
		w.stats.Running--
		w.stats.Ghosts++
		return
	}
	q := w.tasks[s.task.TaskId]
	i := len(q.waiting) - 1
	for q.waiting[i] != s {
		i--
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	w.stats.Waiting--
	if q.current == nil && len(q.waiting) == 0 {
		delete(w.tasks, s.task.TaskId)
	}
}

// entry is how agents see where the work was read from.
func (s *slot) entry() *messages.Entry {
	return &messages.Entry{Stream: s.Stream, Id: s.ID, Deliveries: s.deliveries, Size: s.size, Wake: s.wake}
}
