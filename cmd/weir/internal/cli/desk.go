package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
)

// desk is what a command works with that looks at a group, or gives it work, and runs nothing.
type desk struct {
	rdb    *redis.Client
	names  actors.Names
	client *actors.Client
	state  *redisstate.State
}

// openDesk connects to the group that the flags name.
func (a *app) openDesk(ctx context.Context, opts ...actors.ClientOption) (*desk, error) {
	names, err := a.names("")
	if err != nil {
		return nil, err
	}
	rdb, err := dialRedis(ctx, a.redisURL())
	if err != nil {
		return nil, err
	}
	d := &desk{rdb: rdb, names: names, state: redisstate.New(rdb)}
	if d.client, err = actors.NewClient(d.state, names, opts...); err != nil {
		d.close()
		return nil, &usageError{err: err}
	}
	if err := d.checkStream(ctx); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// checkStream refuses a key that is no stream, which every later command would report in the server's words.
func (d *desk) checkStream(ctx context.Context) error {
	kind, err := d.rdb.Type(ctx, d.names.Stream).Result()
	switch {
	case err != nil:
		return fmt.Errorf("look at stream %q: %w", d.names.Stream, err)
	case kind != "stream" && kind != "none":
		return fmt.Errorf("the key %q holds a %s, not a stream", d.names.Stream, kind)
	}
	return nil
}

func (d *desk) close() {
	_ = d.state.Close() // nothing is under way
	_ = d.rdb.Close()
}

// window is the upkeep of the group, as an operator looks at it. Close it.
type window struct {
	streambridge.Upkeep
	stream *redisstream.Stream
	joined string // the consumer name that the look needs, empty for none
}

// openWindow opens the group's upkeep.
func (d *desk) openWindow(ctx context.Context) (*window, error) {
	s := redisstream.New(d.rdb)
	w := &window{Upkeep: s, stream: s}
	if b, ok := any(s).(interface {
		Bind(names messages.Names) error
	}); ok {
		return w, b.Bind(d.names)
	}
	// The stream has no other way in than to join for as long as the look takes. Joining makes a group that is missing,
	// which nobody asked for who only looks.
	if there, err := d.hasGroup(ctx); err != nil || !there {
		w.Upkeep = noGroup{d}
		return w, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	host, _ := os.Hostname()
	w.joined = "weir-desk-" + hex.EncodeToString(id[:])
	node := messages.Node{
		Incarnation: hex.EncodeToString(id[:]), Consumer: w.joined, Lease: 15 * time.Second, Beat: 5 * time.Second,
		Host: host, PID: os.Getpid(),
	}
	if err := s.Open(ctx, d.names, node); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return w, nil
}

// hasGroup reports whether the group is there.
func (d *desk) hasGroup(ctx context.Context) (bool, error) {
	groups, err := d.rdb.XInfoGroups(ctx, d.names.Stream).Result()
	if err != nil && strings.Contains(err.Error(), "no such key") {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the groups of stream %q: %w", d.names.Stream, err)
	}
	return slices.ContainsFunc(groups, func(g redis.XInfoGroup) bool { return g.Name == d.names.Group }), nil
}

// noGroup is the upkeep of a group that nobody has joined yet.
type noGroup struct{ d *desk }

func (n noGroup) Status(ctx context.Context) (streambridge.Status, error) {
	length, err := n.d.rdb.XLen(ctx, n.d.names.Stream).Result()
	if err != nil {
		return streambridge.Status{}, fmt.Errorf("status of stream %q: %w", n.d.names.Stream, err)
	}
	return streambridge.Status{
		Stream: n.d.names.Stream, Group: n.d.names.Group, Length: length, Lag: length,
		States: map[string]int64{"PENDING": length},
	}, nil
}

func (noGroup) Tick(context.Context, streambridge.TickRequest) (streambridge.Tick, error) {
	return streambridge.Tick{}, streambridge.ErrNotOpen
}

func (noGroup) Letters(context.Context, string, int) ([]*messages.DeadLetter, error) { return nil, nil }

func (noGroup) Letter(context.Context, string) (*messages.DeadLetter, error) {
	return nil, streambridge.ErrNoLetter
}

func (noGroup) Settle(context.Context, string, streambridge.Settlement) error {
	return streambridge.ErrNoLetter
}

// Status is the group's, without this look at it.
func (w *window) Status(ctx context.Context) (streambridge.Status, error) {
	s, err := w.Upkeep.Status(ctx)
	s.Consumers = slices.DeleteFunc(s.Consumers, func(c streambridge.Consumer) bool { return c.Name == w.joined && w.joined != "" })
	return s, err
}

func (w *window) close(ctx context.Context) {
	if w.joined != "" {
		_, _ = w.stream.Release(context.WithoutCancel(ctx), nil) // its liveness ends by itself otherwise
	}
	_ = w.stream.Close()
}
