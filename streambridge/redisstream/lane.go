package redisstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// lane is a client with one connection, for one read at a time. go-redis neither heeds a context while a reply is
// outstanding nor says which connection a command went over; with one connection a client both can be had: CLIENT
// UNBLOCK by its id, and closing the client where even that does not help.
type lane struct {
	client *redis.Client
	opts   redis.Options // of a further client to the same server
	// id is the connection's CLIENT ID; 0 where the server does not tell.
	id     atomic.Int64
	dialed atomic.Bool
	closer sync.Once
	// shared is set where the user's client had no options to copy: client is nil and the lane closes nothing.
	shared redis.UniversalClient
}

// sharedBlock bounds a read over a client that cannot be unblocked.
const sharedBlock = 250 * time.Millisecond

var (
	errClosed = errors.New("the stream is closed")
	errHangs  = errors.New("the call does not end")
)

// takeLane hands out an idle lane, or a new one.
func (s *Stream) takeLane(ctx context.Context, b *binding) (*lane, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	if n := len(s.idle); n > 0 {
		l := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return l, nil
	}
	s.mu.Unlock()

	l, err := s.newLane(ctx, b)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.close()
		return nil, errClosed
	}
	s.lanes[l] = struct{}{}
	return l, nil
}

// giveLane takes a lane back. One that failed is closed: the next read dials again, and so finds a new master, a new
// address or the slot's new node.
func (s *Stream) giveLane(ctx context.Context, l *lane, failed bool) {
	s.mu.Lock()
	if !failed && !s.closed {
		s.idle = append(s.idle, l)
		s.mu.Unlock()
		return
	}
	delete(s.lanes, l)
	s.mu.Unlock()
	l.close()
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		// The slot may have moved, which only a command through the cluster's own client would tell it.
		cluster.ReloadState(context.WithoutCancel(ctx))
	}
}

func (s *Stream) newLane(ctx context.Context, b *binding) (*lane, error) {
	l := &lane{}
	var opts redis.Options
	switch rdb := b.rdb.(type) {
	case *redis.Client:
		opts = *rdb.Options()
	case *redis.ClusterClient:
		node, err := rdb.MasterForKey(ctx, b.keys.Stream)
		if err != nil {
			return nil, err
		}
		opts = *node.Options()
	default:
		l.shared = b.rdb
		return l, nil
	}
	// One command at a time needs one connection. The pool is larger because go-redis keeps a goroutine dialing, for a
	// second beyond Close, once as many dials as it has places have failed.
	opts.PoolSize, opts.MinIdleConns, opts.MaxIdleConns, opts.MaxActiveConns = 16, 0, 0, 0
	opts.ConnMaxIdleTime, opts.ConnMaxLifetime = -1, -1
	opts.MaxRetries, opts.DialerRetries = -1, 1 // a retried XREADGROUP leaves the first one's entries pending with nobody
	opts.ContextTimeoutEnabled = true
	if opts.ReadTimeout <= 0 {
		opts.ReadTimeout = 3 * time.Second
	}
	opts.ReadTimeout += maxBlock
	opts.PoolTimeout = 0
	opts.AutoPipelineOptions, opts.ClientSideCache, opts.ClientSideCacheConfig = nil, nil, nil
	opts.PushNotificationProcessor = nil
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.opts = opts
	onConnect := opts.OnConnect
	opts.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		if onConnect != nil {
			if err := onConnect(ctx, cn); err != nil {
				return err
			}
		}
		// Not every user may ask for it; then reads are short instead of unblocked.
		id, _ := cn.ClientID(ctx).Result()
		l.id.Store(id)
		l.dialed.Store(true)
		s.clientID.Store(id)
		return nil
	}
	l.client = redis.NewClient(&opts)
	return l, nil
}

func (l *lane) close() {
	if l.client != nil {
		l.closer.Do(func() { _ = l.client.Close() })
	}
}

// once is a command that a client with retries must not repeat.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (once) NoRetry() bool { return true }

// do sends one command that may block, and ends early when ctx ends.
func (l *lane) do(ctx context.Context, args []any) (any, error) {
	if l.shared != nil {
		cmd := once{redis.NewCmd(ctx, args...)}
		_ = l.shared.Process(ctx, cmd)
		return cmd.Result()
	}
	var reply any
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err = l.client.Do(context.WithoutCancel(ctx), args...).Result()
	}()
	select {
	case <-done:
		return reply, err
	case <-ctx.Done():
	}
	l.interrupt(context.WithoutCancel(ctx), done)
	last := time.NewTimer(time.Second)
	defer last.Stop()
	select {
	case <-done:
		return reply, err
	case <-last.C:
		// Seen once, after a server was killed and came back: a call that not even closing its client ends. Whatever it may
		// still bring is pending with us, and a sweep finds it; the next read has a client of its own.
		return nil, errHangs
	}
}

// interrupt unblocks the read until it ends, and closes its connection when it has not ended after a second. It asks
// again and again because a command that is still on its way is not blocked yet. It asks over a connection of its own,
// which heeds the second: the user's client may wait much longer for a server that does not answer.
func (l *lane) interrupt(ctx context.Context, done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	opts := l.opts
	control := redis.NewClient(&opts)
	defer control.Close()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			l.close()
			return
		case <-pause.C:
		}
		if id := l.id.Load(); id != 0 {
			_ = control.ClientUnblock(ctx, id).Err()
		}
		pause.Reset(10 * time.Millisecond)
	}
}
