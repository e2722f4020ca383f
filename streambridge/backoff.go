package streambridge

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff spaces the tries of one loop: from least, doubling to most, each between half and the whole of it so that the
// nodes of a fleet do not come back in step. The cap is what bounds how late a loop notices that the server is back.
type backoff struct {
	least, most time.Duration
	next        time.Duration
}

// reset is called after a success.
func (b *backoff) reset() { b.next = 0 }

// take returns how long to wait now, and makes the next wait longer.
func (b *backoff) take() time.Duration {
	d := max(b.next, b.least)
	b.next = min(2*d, b.most)
	return d/2 + rand.N(d/2+1)
}

// pause waits; it reports false when ctx has ended.
func (b *backoff) pause(ctx context.Context) bool {
	t := time.NewTimer(b.take())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func newBackoff() backoff { return backoff{least: 50 * time.Millisecond, most: time.Second} }
