package memstream

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Server holds streams, groups and task records in memory, as a Redis server does for the Redis adapters. Each node
// gets a handle of its own with Stream. All time is time.Now, so inside a testing/synctest bubble it is virtual; make the
// server within the bubble that uses it. A Server has no goroutines and needs no closing. Everything in it is lost with
// the process.
type Server struct {
	mu      sync.Mutex
	data    *data
	down    error
	waiters []*waiter     // blocked readers, oldest first: Redis serves them in that order
	skew    time.Duration // by Advance
	memory  float64       // share in use, by SetMemory
}

// data is all that FlushAll throws away.
type data struct {
	logs    map[string]*log
	worlds  map[string]*world              // by key prefix
	marks   map[string]*marks              // submit markers, by key
	plans   map[string]*plans              // schedules, by stream
	delayed map[string]map[string]*Delayed // by key and member
	uniques map[string]*unique             // unique keys that are taken, by key
	expiry  expiry
	epochs  uint64 // survives FlushAll, so that no epoch comes twice
}

func newData() *data {
	return &data{
		logs: map[string]*log{}, worlds: map[string]*world{}, marks: map[string]*marks{}, plans: map[string]*plans{},
		delayed: map[string]map[string]*Delayed{}, uniques: map[string]*unique{},
	}
}

// NewServer makes an empty server.
func NewServer() *Server { return &Server{data: newData()} }

// New makes a handle of one node on a new server of its own.
func New() *Stream { return NewServer().Stream() }

// Stream makes a handle for one more node: what a connection is to Redis. It starts unbound; Open binds it to a group.
func (s *Server) Stream() *Stream {
	return &Stream{server: s, deadTTL: defaultDeadTTL, looked: -1, heard: -1}
}

// Server is the server that the handle belongs to.
func (s *Stream) Server() *Server { return s.server }

// run is the one place where every durable call of a handle passes: it is atomic, takes its time from one reading of the
// clock, fails as a whole while the server or the handle is down, and serves blocked readers at its end. f must not block.
func (s *Stream) run(ctx context.Context, op string, f func(now int64) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memstream %s: %w", op, context.Cause(ctx))
	}
	srv := s.server
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if err := s.reach(op); err != nil {
		return err
	}
	now := srv.begin()
	err := f(now)
	srv.serve(now)
	return err
}

// reach returns why the server cannot be reached, if it cannot. Called under the lock.
func (s *Stream) reach(op string) error {
	for _, down := range []error{s.server.down, s.down} {
		if down != nil {
			return fmt.Errorf("memstream %s: %w", op, down)
		}
	}
	return nil
}

// begin starts a script: it reads the clock and drops what has expired. Called under the lock.
func (s *Server) begin() int64 {
	now := time.Now().Add(s.skew).UnixMilli()
	s.data.expire(now)
	return now
}

// log returns the stream of that key, or nil.
func (d *data) log(key string) *log { return d.logs[key] }

// make returns the stream of that key, made when it is missing (MKSTREAM).
func (d *data) make(key string) *log {
	l := d.logs[key]
	if l == nil {
		l = newLog()
		d.logs[key] = l
	}
	return l
}
