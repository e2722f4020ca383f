package streambridge

import (
	"context"
	"slices"
	"sync"
)

// outbox holds what one loop must get done: the bridge actor puts, the loop takes batches and gives back what failed.
// It is bounded by the window: what is in it still spends credits.
type outbox[T any] struct {
	crowd int // how many items make a batch worth sending at once

	mu     sync.Mutex
	items  []T
	taken  int
	idlers []chan struct{}

	some chan struct{} // signaled when the first item comes
	many chan struct{} // signaled when a crowd is there
}

func newOutbox[T any](crowd int) *outbox[T] {
	return &outbox[T]{crowd: crowd, some: make(chan struct{}, 1), many: make(chan struct{}, 1)}
}

// put adds an item. It never blocks.
func (o *outbox[T]) put(item T) {
	o.mu.Lock()
	o.items = append(o.items, item)
	n := len(o.items)
	o.mu.Unlock()
	if n == 1 {
		signal(o.some)
	}
	if n == o.crowd {
		signal(o.many)
	}
}

// take removes at most n items, the oldest first. back must follow.
func (o *outbox[T]) take(n int) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	n = min(n, len(o.items))
	batch := o.items[:n:n]
	if o.items = o.items[n:]; len(o.items) == 0 {
		o.items = nil
	}
	o.taken = n
	return batch
}

// back ends a take: failed items go to the end, so that one that always fails does not keep the others waiting. It
// reports whether anything is left to do.
func (o *outbox[T]) back(failed ...T) (more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken = 0
	o.items = append(o.items, failed...)
	if len(o.items) > 0 {
		return true
	}
	for _, c := range o.idlers {
		close(c)
	}
	o.idlers = nil
	return false
}

// again ends a take: what is left goes to the front, in its order. It reports whether anything is left to do.
func (o *outbox[T]) again(left ...T) (more bool) {
	o.mu.Lock()
	if len(left) > 0 {
		o.items = slices.Concat(left, o.items)
	}
	o.mu.Unlock()
	return o.back()
}

// empty waits until everything is done.
func (o *outbox[T]) empty(ctx context.Context) error {
	o.mu.Lock()
	if len(o.items) == 0 && o.taken == 0 {
		o.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	o.idlers = append(o.idlers, done)
	o.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (o *outbox[T]) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.items) + o.taken
}

// signal never blocks: one signal is as good as several.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
