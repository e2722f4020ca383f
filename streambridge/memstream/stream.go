package memstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Stream is one node's handle on a server. It is safe for use by any number of goroutines.
type Stream struct {
	server *Server

	// Under the server's lock:
	down      error // this node alone cannot reach the server
	connected bool  // Open succeeded and the node has neither left, closed nor been killed
	closed    bool
	open      *binding
	epoch     uint64        // of the group, as we last knew it
	deadTTL   time.Duration // as the last tick said
	looked    int64         // how many units had been cancelled when a beat last looked; -1 for never
	heard     int64         // the last cancellation that a tick has told; -1 before the first tick
	lost      bool          // a loss of the group waits to be reported by the next read
}

// binding is the group that a handle was opened for.
type binding struct {
	names messages.Names
	node  messages.Node
	keys  messages.Keys
}

var (
	_ streambridge.Stream = (*Stream)(nil)
	_ streambridge.Upkeep = (*Stream)(nil)
	_ io.Closer           = (*Stream)(nil)
)

var (
	errOpen   = errors.New("it is open already")
	errClosed = errors.New("the stream is closed")
)

const (
	defaultLease = 15 * time.Second
	// released is the idle time of an entry that was given back: past any lease.
	released = time.Hour
)

// bound is run for an opened handle; w is the group's world.
func (s *Stream) bound(ctx context.Context, op string, f func(w *world, now int64) error) error {
	return s.run(ctx, op, func(now int64) error {
		if s.open == nil {
			return fmt.Errorf("memstream %s: %w", op, streambridge.ErrNotOpen)
		}
		w := s.world()
		w.lease, w.deadTTL = s.open.node.Lease, s.deadTTL
		return f(w, now)
	})
}

// world is the world of the group that the handle was opened for. Called under the lock.
func (s *Stream) world() *world { return s.server.data.world(s.open.keys, s.open.names.Group) }

// Open joins the group and takes the consumer's name; see streambridge.Stream. It waits up to a lease where another
// handle that is still connected has the name. A second Open after one that succeeded is an error.
func (s *Stream) Open(ctx context.Context, names messages.Names, node messages.Node) error {
	names = names.WithDefaults()
	if err := names.Validate(); err != nil {
		return err
	}
	if node.Incarnation == "" || node.Consumer == "" {
		return errors.New("open memstream: node needs an incarnation and a consumer name")
	}
	if node.Lease <= 0 {
		node.Lease = defaultLease
	}
	keys, err := messages.NewKeys(names)
	if err != nil {
		return err
	}
	b := &binding{names: names, node: node, keys: keys}
	return s.take(ctx, b)
}

// take makes the consumer's name ours. A name that a connected handle holds is watched for a lease: its beat moves, then
// it is taken; its liveness ends, then it is free.
func (s *Stream) take(ctx context.Context, b *binding) error {
	var holder *claimed
	var beat uint64
	for waited := time.Duration(0); ; {
		free := false
		err := s.run(ctx, "open", func(now int64) error {
			if s.open != nil {
				return fmt.Errorf("open stream %s: %w", b.names.Stream, errOpen)
			}
			w := s.server.data.world(b.keys, b.names.Group)
			c := w.claims[b.node.Consumer]
			switch {
			case c == nil || c.left || c.incarnation == b.node.Incarnation || !w.live(c.incarnation):
			case !c.client.connected:
				// Without liveness the old one can neither begin work nor renew what it holds.
				delete(w.alive, c.incarnation)
			case holder == nil:
				holder, beat = c, c.beat
				return nil
			case c != holder || c.beat != beat || waited >= b.node.Lease:
				return fmt.Errorf("open memstream as %q: %w", b.node.Consumer, streambridge.ErrConsumerTaken)
			default:
				return nil
			}
			free = true
			s.join(w, b, now)
			return nil
		})
		if err != nil || free {
			return err
		}
		step := min(max(b.node.Lease/10, time.Millisecond), time.Second)
		if err := pause(ctx, step); err != nil {
			return fmt.Errorf("open memstream: %w", err)
		}
		waited += step
	}
}

// join binds the handle and makes its node live. Called under the lock.
func (s *Stream) join(w *world, b *binding, now int64) {
	s.open, s.connected = b, true
	w.claims[b.node.Consumer] = &claimed{incarnation: b.node.Incarnation, client: s}
	s.epoch = w.ensure()
	for _, stream := range w.streams() {
		w.read(stream).consumer(b.node.Consumer, now)
	}
	w.keepAlive(b.node.Incarnation, now, b.node.Lease)
	life := w.life(b.node.Incarnation, now)
	life.TickMS, life.Types = now, b.node.Types
}

// pause waits, or returns why it must not.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ack acknowledges entries; see streambridge.Stream.
func (s *Stream) Ack(ctx context.Context, refs []messages.Ref) error {
	return s.bound(ctx, "ack", func(w *world, _ int64) error {
		for _, ref := range refs {
			// As Redis has it, what is acknowledged leaves the inbox though its group has forgotten it.
			if id, ok := parseID(ref.ID); !w.settle(ref) && ok && ref.Stream == w.keys.Inbox() && w.data.log(ref.Stream) != nil {
				w.data.log(ref.Stream).entries.remove(id)
			}
		}
		return nil
	})
}

// Close ends the handle's connection, so that a newcomer may take its consumer name at once; a read under way ends. It
// gives nothing back: Release does. Further calls do nothing.
func (s *Stream) Close() error {
	s.server.fault(func(int64) { s.closed, s.connected = true, false })
	return nil
}
