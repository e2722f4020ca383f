package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Read hands out new entries of the public stream and the inbox, in one XREADGROUP; see streambridge.Stream. block is
// cut to 2 s; less than a millisecond does not block. A count below 1 reads nothing: to Redis, COUNT 0 is "all".
//
// Errors: ErrGroupLost once for each loss; anything else is the connection's or the server's, and the next Read dials
// again. Back off before it.
func (s *Stream) Read(ctx context.Context, count int, block time.Duration) ([]streambridge.Entry, error) {
	b, err := s.open("read")
	if err != nil {
		return nil, err
	}
	if s.lost.CompareAndSwap(true, false) {
		return nil, fmt.Errorf("read %s: %w", b.keys.Stream, streambridge.ErrGroupLost)
	}
	ended := func() bool { return ctx.Err() != nil }
	if count < 1 || ended() {
		return nil, nil
	}
	l, err := s.takeLane(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", b.keys.Stream, err)
	}
	reply, err := l.do(ctx, b.readArgs(l, count, block))
	s.giveLane(ctx, l, err != nil && !errors.Is(err, redis.Nil))
	switch {
	case err == nil:
		entries, err := b.readReply(reply)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", b.keys.Stream, err)
		}
		return entries, nil
	case errors.Is(err, redis.Nil), ended():
		return nil, nil
	case groupGone(err):
		if err = s.heal(ctx, b, err); ended() && !errors.Is(err, streambridge.ErrGroupLost) {
			return nil, nil
		}
		return nil, err
	default:
		return nil, fmt.Errorf("read %s: %w", b.keys.Stream, err)
	}
}

func (b *binding) readArgs(l *lane, count int, block time.Duration) []any {
	args := append(make([]any, 0, 14), "XREADGROUP", "GROUP", b.names.Group, b.node.Consumer, "COUNT", count)
	most := maxBlock
	if l.shared != nil || l.client != nil && l.dialed.Load() && l.id.Load() == 0 {
		most = sharedBlock
	}
	// BLOCK 0 would wait for ever.
	if ms := min(block, most).Milliseconds(); ms >= 1 {
		args = append(args, "BLOCK", ms)
	}
	return append(args, "STREAMS", b.keys.Stream, b.keys.Inbox(), ">", ">")
}

// groupGone: the stream or its group is not there (NOGROUP), or went while we waited for it (UNBLOCKED until 7.x).
func groupGone(err error) bool {
	return redis.HasErrorPrefix(err, "NOGROUP") || redis.HasErrorPrefix(err, "UNBLOCKED")
}

// heal makes the group again, and reports it if nobody has reported this loss. Another reader of this node may have
// been quicker, and an UNBLOCKED may come from a master that stepped down: then there is nothing to report.
func (s *Stream) heal(ctx context.Context, b *binding, cause error) error {
	epoch, err := b.run(ctx, healScript, b.streams(), b.keys.Prefix, b.names.Group, b.node.Incarnation)
	if err != nil {
		return fmt.Errorf("make group %q of %s again after %w: %w", b.names.Group, b.keys.Stream, cause, err)
	}
	s.notice(asString(epoch))
	if s.lost.CompareAndSwap(true, false) {
		return fmt.Errorf("read %s: %w", b.keys.Stream, streambridge.ErrGroupLost)
	}
	return nil
}

// readReply takes the raw reply apart, because go-redis's own types lose the order of fields and repeated names. (Going
// through the reply's bytes instead made 4 allocations an entry where this makes 20, and cost a quarter more CPU.) RESP3
// says {key: entries}, RESP2 [[key, entries]].
func (b *binding) readReply(reply any) ([]streambridge.Entry, error) {
	var out []streambridge.Entry
	one := func(key, entries any) error {
		stream, list := asString(key), asSlice(entries)
		out = slices.Grow(out, len(list))
		for _, e := range list {
			row := asSlice(e)
			if len(row) != 2 {
				return fmt.Errorf("an entry of %d parts in the reply", len(row))
			}
			out = append(out, streambridge.Entry{
				Ref: messages.Ref{Stream: stream, ID: asString(row[0])}, Fields: asFields(row[1]), Deliveries: 1,
			})
		}
		return nil
	}
	switch reply := reply.(type) {
	case map[any]any:
		// The order of a map is nobody's; the inbox first, so that what is due does not wait behind what is new.
		for _, key := range []string{b.keys.Inbox(), b.keys.Stream} {
			if entries, ok := reply[key]; ok {
				if err := one(key, entries); err != nil {
					return nil, err
				}
			}
		}
	case []any:
		for _, v := range slices.Backward(reply) {
			pair := asSlice(v)
			if len(pair) != 2 {
				return nil, fmt.Errorf("a stream of %d parts in the reply", len(pair))
			}
			if err := one(pair[0], pair[1]); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("a reply of type %T", reply)
	}
	return out, nil
}
