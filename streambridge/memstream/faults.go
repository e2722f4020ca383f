package memstream

import (
	"time"

	"github.com/weir-run/weir/messages"
)

// What tests and simulations do to a server. Each acts at once and atomically.

// SetDown makes every call of every handle fail with an error that wraps err, as an unreachable server does; blocked reads
// fail too. What the server holds stays. nil brings it back.
func (s *Server) SetDown(err error) {
	s.fault(func(int64) { s.down = err })
}

// SetDown cuts this handle alone off the server, as a broken network of one node does. nil mends it.
func (s *Stream) SetDown(err error) {
	s.server.fault(func(int64) { s.down = err })
}

// FlushAll empties the server, as FLUSHALL does.
func (s *Server) FlushAll() {
	s.fault(func(int64) {
		for _, w := range s.data.worlds {
			for _, f := range w.feeds {
				close(f.more) // who follows looks again
			}
		}
		epochs := s.data.epochs
		s.data = newData()
		s.data.epochs = epochs
	})
}

// Advance makes d pass for everything the server keeps, without any real time: entries are idle for longer, leases run
// out, what is due comes due. It never goes back. A simulation in virtual time does not need it.
func (s *Server) Advance(d time.Duration) {
	s.fault(func(int64) { s.skew += d })
}

// KillNode ends an incarnation as kill -9 does: its liveness and its connections are gone at once, not a lease later. What
// it holds stays pending and unrenewed. The handle still works, as a zombie's connection would: cut it with SetDown.
func (s *Server) KillNode(incarnation string) {
	s.fault(func(int64) {
		for _, w := range s.data.worlds {
			delete(w.alive, incarnation)
			for _, c := range w.claims {
				if c.incarnation == incarnation {
					c.client.connected = false
				}
			}
		}
	})
}

// GroupLost destroys the group on its public stream and its inbox, as XGROUP DESTROY does; records and entries stay.
func (s *Server) GroupLost(names messages.Names) {
	names = names.WithDefaults()
	s.fault(func(int64) {
		for _, w := range s.data.worlds {
			if w.keys.Stream != names.Stream || w.group != names.Group {
				continue
			}
			for _, stream := range w.streams() {
				if l := s.data.log(stream); l != nil {
					delete(l.groups, names.Group)
				}
			}
		}
	})
}

// Delete removes an entry's body as XDEL does; pending lists keep their place for it. It reports whether it was there.
func (s *Server) Delete(ref messages.Ref) (found bool) {
	s.fault(func(int64) {
		id, ok := parseID(ref.ID)
		l := s.data.log(ref.Stream)
		if ok && l != nil && l.entries.remove(id) != nil {
			found = true
			l.lost([]entryID{id})
		}
	})
	return found
}

// Trim keeps the newest n entries of a stream as XTRIM MAXLEN does, and returns how many it removed; pending lists keep
// their places for them.
func (s *Server) Trim(stream string, n int) (removed int) {
	s.fault(func(int64) {
		l := s.data.log(stream)
		if l == nil {
			return
		}
		var gone []entryID
		for id := range l.entries.from(entryID{}) {
			if len(gone) >= l.entries.len()-n {
				break
			}
			gone = append(gone, id)
		}
		for _, id := range gone {
			l.entries.remove(id)
		}
		l.lost(gone)
		removed = len(gone)
	})
	return removed
}

// Add appends an entry to any stream as a producer's XADD does, and returns its id. It makes the stream when missing.
func (s *Server) Add(stream string, fields ...messages.Pair) (id string) {
	s.fault(func(now int64) { id = s.data.make(stream).add(now, fields).String() })
	return id
}

// Clock is the server's time: that of the process and what Advance added.
func (s *Server) Clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.skew)
}

func (s *Server) fault(f func(now int64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.begin())
	s.serve(s.begin())
}
