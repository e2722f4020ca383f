package streambridge

import (
	"context"
	"sync"
)

// board is where the bridge actor writes what others read without asking it: the reader's limits, the reaper's room, the
// counts.
type board struct {
	mu                   sync.Mutex
	limitCount, limitByt int64
	claims               int
	stats                Stats
	starved              bool // the reader waits for credits

	credit chan struct{}
}

func newBoard() *board { return &board{credit: make(chan struct{}, 1)} }

// publish is called after each event.
func (b *board) publish(w *window) {
	count, bytes := w.advertise()
	room, stats := w.room(), w.Stats()
	b.mu.Lock()
	b.limitCount, b.limitByt, b.claims, b.stats = count, bytes, room, stats
	wake := b.starved
	b.mu.Unlock()
	if wake {
		signal(b.credit)
	}
}

// await waits until more than the totals read so far may be read, and says how much more. ok is false when ctx has ended.
func (b *board) await(ctx context.Context, readCount, readBytes int64) (count, bytes int64, ok bool) {
	for {
		b.mu.Lock()
		count, bytes = b.limitCount-readCount, b.limitByt-readBytes
		b.starved = count <= 0 || bytes <= 0
		starved := b.starved
		b.mu.Unlock()
		if !starved {
			return count, bytes, ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return 0, 0, false
		case <-b.credit:
		}
	}
}

func (b *board) room() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claims
}

func (b *board) read() (stats Stats, starved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats, b.starved
}
