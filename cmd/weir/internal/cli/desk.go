package cli

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
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

// openWindow is the upkeep of the group, as an operator looks at it, without a place in the group.
func (d *desk) openWindow() (*window, error) {
	s := redisstream.New(d.rdb)
	return &window{s}, s.Bind(d.names)
}

// window is the upkeep of a group.
type window struct{ *redisstream.Stream }
