package memstream

import (
	"time"
)

// Feed holds what a task published for its followers.
type Feed struct {
	chunks  byID[Chunk]
	last    entryID
	untilMS int64
	more    chan struct{} // closed when a chunk comes
}

// Chunk is one published piece; Data is never changed.
type Chunk struct {
	ID      string
	Attempt int
	Step    string
	Data    []byte
	End     bool
}

// maxChunks is how many of a feed's chunks are kept.
const maxChunks = 10_000

// feed returns a task's feed, made when it is missing.
func (w *world) feed(id string) *Feed {
	f := w.feeds[id]
	if f == nil {
		f = &Feed{more: make(chan struct{})}
		w.feeds[id] = f
	}
	return f
}

// keepFeed gives the feed a time to live.
func (w *world) keepFeed(f *Feed, id string, now int64, ttl time.Duration) {
	known := f.untilMS > 0
	if f.untilMS = now + ttl.Milliseconds(); known {
		return
	}
	w.data.expiry.at(f.untilMS, func(now int64) int64 {
		if due(f.untilMS, now) {
			delete(w.feeds, id)
			close(f.more) // who follows looks again and finds nothing
			return 0
		}
		return f.untilMS
	})
}

// Publish appends a chunk to a task's feed, of which the newest 10,000 are kept for ttl.
func (tx *Tx) Publish(id string, c Chunk, ttl time.Duration) {
	f := tx.w.feed(id)
	at := entryID{ms: tx.NowMS}
	if at.compare(f.last) <= 0 {
		at = f.last.next()
	}
	f.last, c.ID = at, at.String()
	if f.chunks.put(at, &c); f.chunks.len() > maxChunks {
		oldest, _ := f.chunks.first()
		f.chunks.remove(oldest)
	}
	tx.w.keepFeed(f, id, tx.NowMS, ttl)
	close(f.more)
	f.more = make(chan struct{})
}

// Chunks returns up to n of a task's chunks after an id ("" for the first), and a channel that is closed when another
// comes.
func (tx *Tx) Chunks(id, after string, n int) (found []Chunk, more <-chan struct{}) {
	f := tx.w.feed(id)
	if f.untilMS == 0 {
		tx.w.keepFeed(f, id, tx.NowMS, time.Hour) // one that nobody publishes to must not stay for ever
	}
	for _, c := range f.chunks.from(mustID(after).next()) {
		if found = append(found, *c); len(found) == n {
			break
		}
	}
	return found, f.more
}
