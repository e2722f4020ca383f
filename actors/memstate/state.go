// Package memstate is an actors.State in memory, built on a memstream and sharing its lock: what redisstate does in a
// script, it does in a function that nobody else sees the middle of. Nothing outlives the process.
package memstate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// State keeps tasks on a memstream's server. It is safe for use by any number of goroutines and has none of its own.
type State struct {
	stream *memstream.Stream
	bound  atomic.Pointer[binding]
}

type binding struct {
	names messages.Names
	keys  messages.Keys
}

var _ actors.State = (*State)(nil)

var errNotBound = errors.New("the store is bound to no group: call Bind first")

// New makes a store on the server of a handle. Its calls go through that handle: what cuts the handle off cuts the store
// off. The handle need not be open.
func New(s *memstream.Stream) *State { return &State{stream: s} }

// Bind names the group this store serves; see actors.StateStore.
func (s *State) Bind(names messages.Names) error {
	names = names.WithDefaults()
	if err := names.Validate(); err != nil {
		return err
	}
	keys, err := messages.NewKeys(names)
	if err != nil {
		return err
	}
	b := &binding{names: names, keys: keys}
	if s.bound.CompareAndSwap(nil, b) {
		return nil
	}
	if old := s.bound.Load(); old.names.Stream != names.Stream || old.names.Group != names.Group {
		return fmt.Errorf("bind state to group %q of %q: it is bound to group %q of %q",
			names.Group, names.Stream, old.names.Group, old.names.Stream)
	}
	return nil
}

// Close has nothing to wait for. Idempotent.
func (s *State) Close() error { return nil }

// script runs f as one atomic piece in the group's world.
func (s *State) script(ctx context.Context, op string, f func(tx *memstream.Tx) error) error {
	b := s.bound.Load()
	if b == nil {
		return fmt.Errorf("memstate %s: %w", op, errNotBound)
	}
	return s.stream.Script(ctx, op, b.keys, b.names.Group, f)
}
