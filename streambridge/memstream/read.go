package memstream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// waiter is a blocked reader. Whoever takes it off the server's list under the lock closes done; found and err are set
// before that.
type waiter struct {
	stream *Stream
	count  int
	done   chan struct{}
	found  []streambridge.Entry
	err    error
}

// Read hands out new entries; see streambridge.Stream. Blocked readers are served oldest first, by the script that added
// the entry.
func (s *Stream) Read(ctx context.Context, count int, block time.Duration) ([]streambridge.Entry, error) {
	if count <= 0 || ctx.Err() != nil {
		return nil, nil
	}
	me := &waiter{stream: s, count: count, done: make(chan struct{})}
	wait := false
	err := s.bound(ctx, "read", func(w *world, now int64) error {
		if s.closed {
			return fmt.Errorf("memstream read: %w", errClosed)
		}
		if !s.lost && !w.joined() {
			s.notice(w)
		}
		if s.lost {
			s.lost = false
			return groupLost(w)
		}
		if me.found = s.deliver(w, count, now); len(me.found) == 0 && block > 0 {
			wait = true
			s.server.waiters = append(s.server.waiters, me)
		}
		return nil
	})
	if err != nil || !wait {
		return me.found, err
	}
	timer := time.NewTimer(block)
	defer timer.Stop()
	select {
	case <-me.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.server.leave(me)
	return me.found, me.err
}

// notice makes the group again where it has vanished, and remembers a loss that this node has not reported. Called under
// the lock.
func (s *Stream) notice(w *world) {
	known := s.epoch
	s.epoch = w.ensure()
	s.lost = s.lost || s.epoch != known
}

func groupLost(w *world) error {
	return fmt.Errorf("read group %q of %q: %w", w.group, w.keys.Stream, streambridge.ErrGroupLost)
}

// deliver hands out up to count new entries of each stream; the inbox first, so that what is due does not wait behind what
// is new. Called under the lock.
func (s *Stream) deliver(w *world, count int, now int64) (found []streambridge.Entry) {
	for _, stream := range []string{w.keys.Inbox(), w.keys.Stream} {
		l, g, n := w.data.log(stream), w.read(stream), 0
		if c := g.consumers[s.open.node.Consumer]; c != nil { // Redis 7.0 makes it with the first entry
			c.seenMS = now
		}
		for id, r := range l.entries.from(g.delivered.next()) {
			if n++; n > count {
				break
			}
			d := g.deliver(id, s.open.node.Consumer, now)
			found = append(found, entry(stream, id, r.fields, d))
		}
	}
	return found
}

func entry(stream string, id entryID, fields []messages.Pair, d *delivery) streambridge.Entry {
	return streambridge.Entry{
		Ref: messages.Ref{Stream: stream, ID: id.String()}, Fields: slices.Clone(fields), Deliveries: d.count,
	}
}

// leave takes a reader that waits no longer off the list, so that nothing is handed to it afterwards.
func (s *Server) leave(me *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(w *waiter) bool { return w == me })
}

// serve hands what a script added to the readers that wait, and tells those whose group or server is gone. Called under
// the lock at the end of every script.
func (s *Server) serve(now int64) {
	s.waiters = slices.DeleteFunc(s.waiters, func(me *waiter) bool {
		w := me.stream.world()
		me.stream.notice(w) // a reader that waits hears of a loss at once
		switch {
		case me.stream.reach("read") != nil:
			me.err = me.stream.reach("read")
		case me.stream.closed:
			me.err = fmt.Errorf("memstream read: %w", errClosed)
		case me.stream.lost:
			me.stream.lost = false
			me.err = groupLost(w)
		default:
			me.found = me.stream.deliver(w, me.count, now)
		}
		if me.err == nil && len(me.found) == 0 {
			return false
		}
		close(me.done)
		return true
	})
}
