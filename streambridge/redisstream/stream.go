package redisstream

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var (
	_ streambridge.Stream = (*Stream)(nil)
	_ streambridge.Upkeep = (*Stream)(nil)
	_ io.Closer           = (*Stream)(nil)
)

const (
	// maxBlock bounds how long a read blocks: so long may a half-open connection go unnoticed.
	maxBlock = 2 * time.Second
	// defaultDeadTTL is how long dead letters are kept until the first Tick says it.
	defaultDeadTTL = 30 * 24 * time.Hour
	// chunk is how many entries one script looks at: some ms of the server's time.
	chunk = 500
)

// Stream is one group on one Redis stream. Make it with New, bind it with Open. Its methods may be called from several
// goroutines at once.
type Stream struct {
	rdb   redis.UniversalClient
	bound atomic.Pointer[binding]
	desk  atomic.Pointer[binding] // by Bind

	// deadTTL in ms, as the last Tick said.
	deadTTL atomic.Int64

	mu sync.Mutex
	// epoch of the group as this node knows it; another one means that the group was lost.
	epoch string
	// saved are the entries that a beat has copied beside their tasks: their acknowledgement also forgets the copy.
	saved map[messages.Ref]struct{}
	// cancelSeen is how many cancelled units the last beat knew of.
	cancelSeen string
	// heard is the id of the last cancellation that a tick has told; empty before the first tick.
	heard string
	// idle lanes wait for the next read.
	idle   []*lane
	lanes  map[*lane]struct{}
	closed bool
	// quota is what a tick that handed out a full load may still take; -1 for none left.
	quota int
	// sweepIn counts the ticks until the own pending list is swept again.
	sweepIn int

	// lost says that a loss waits to be reported by the next read.
	lost atomic.Bool
	// clientID is the connection of the newest lane: whoever wants our consumer name asks whether it is still there.
	clientID atomic.Int64
}

// binding is what Open has settled: it never changes afterwards.
type binding struct {
	rdb      redis.UniversalClient
	names    messages.Names
	node     messages.Node
	keys     messages.Keys
	types    string // packed
	allowOOM bool
}

// New makes an unbound stream on a client, which stays the user's and is never closed. No I/O: Open binds it.
//
// It silences the logger of go-redis, which is one for the whole process and writes to stderr what is returned as an
// error anyway; call redis.SetLogger afterwards to have your own.
func New(rdb redis.UniversalClient) *Stream {
	quiet()
	s := &Stream{rdb: rdb, saved: map[messages.Ref]struct{}{}, lanes: map[*lane]struct{}{}, quota: -1}
	s.deadTTL.Store(defaultDeadTTL.Milliseconds())
	return s
}

var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Close closes the connections that reads had of their own; a read under way ends. It gives nothing back: Release does.
// Further calls do nothing.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closed = true
	lanes := s.lanes
	s.lanes, s.idle = map[*lane]struct{}{}, nil
	s.mu.Unlock()
	for l := range lanes {
		l.close()
	}
	return nil
}

// Bind lets an operator's tool look at a group without joining it: Status, Letters, Letter and Settle work, and nothing
// else does. A group that nobody has made yet is an empty one. No I/O.
func (s *Stream) Bind(names messages.Names) error {
	names = names.WithDefaults()
	if err := names.Validate(); err != nil {
		return err
	}
	keys, err := messages.NewKeys(names)
	if err != nil {
		return err
	}
	s.desk.Store(&binding{rdb: s.rdb, names: names, keys: keys})
	return nil
}

// look returns the binding for what needs no place in the group.
func (s *Stream) look(doing string) (*binding, error) {
	if b := s.desk.Load(); b != nil && s.bound.Load() == nil {
		return b, nil
	}
	return s.open(doing)
}

// open returns the binding.
func (s *Stream) open(doing string) (*binding, error) {
	b := s.bound.Load()
	if b == nil {
		return nil, fmt.Errorf("%s: %w", doing, streambridge.ErrNotOpen)
	}
	return b, nil
}

// notice compares the group's epoch with the one that this node knows. The first one is no loss.
func (s *Stream) notice(epoch string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != "" && s.epoch != epoch {
		s.lost.Store(true)
		clear(s.saved)
	}
	s.epoch = epoch
}

func (b *binding) streams() []string { return []string{b.keys.Stream, b.keys.Inbox()} }

// name is how scripts know a unit: "<escaped task id>:<escaped unit>", empty where no task is known.
func name(taskID, unit string) string {
	if taskID == "" {
		return ""
	}
	return messages.Escape(taskID) + ":" + messages.Escape(unit)
}
