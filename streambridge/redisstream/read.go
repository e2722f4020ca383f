package redisstream

import (
	"context"
	"fmt"
	"time"

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
	if count < 1 || ctx.Err() != nil {
		return nil, nil
	}
	l, err := s.takeLane(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", b.keys.Stream, err)
	}
	var entries []streambridge.Entry
	reply, err := l.do(ctx, b.readArgs(l, count, block))
	if err == nil {
		entries, err = readReply(reply)
	}
	s.giveLane(l, err != nil)
	switch {
	case err == nil:
		return inboxFirst(entries, b.keys.Inbox()), nil
	case ctx.Err() != nil:
		return nil, nil
	case groupGone(err):
		return nil, s.heal(ctx, b, err)
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
	return hasPrefix(err, "NOGROUP") || hasPrefix(err, "UNBLOCKED")
}

// heal makes the group again, and reports it if nobody has reported this loss. Another reader of this node may have
// been quicker, and an UNBLOCKED may come from a master that stepped down: then there is nothing to report.
func (s *Stream) heal(ctx context.Context, b *binding, cause error) error {
	epoch, err := b.run(ctx, healScript, b.streams(), b.keys.Prefix, b.names.Group, b.node.Incarnation)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("make group %q of %s again after %q: %w", b.names.Group, b.keys.Stream, cause, err)
	}
	s.notice(asString(epoch))
	if s.lost.CompareAndSwap(true, false) {
		return fmt.Errorf("read %s: %w", b.keys.Stream, streambridge.ErrGroupLost)
	}
	return nil
}
