package redisstream

import (
	"context"
	"fmt"

	"github.com/weir-run/weir/streambridge"
)

// Release gives back the whole pending list of the consumer and leaves the group; see streambridge.Stream. After an
// error a part may be given back: repeat it, nothing is counted twice. What is not given back by the time the process
// ends comes back after a lease.
func (s *Stream) Release(ctx context.Context, held []streambridge.Held) (int, error) {
	b, err := s.open("release")
	if err != nil {
		return 0, err
	}
	run := func(args ...any) (any, error) {
		head := []any{b.keys.Prefix, b.names.Group, b.node.Consumer, b.node.Incarnation, s.deadTTL.Load()}
		return b.run(ctx, releaseScript, b.streams(), append(head, args...)...)
	}
	// Tasks first: whoever takes an entry must find its task without an owner.
	var units []any
	for _, h := range held {
		if n := name(h.TaskID, h.Unit); n != "" {
			units = append(units, n)
		}
	}
	for len(units) > 0 {
		n := min(len(units), chunk)
		if _, err := run(append([]any{"tasks"}, units[:n]...)...); err != nil {
			return 0, fmt.Errorf("release %d tasks: %w", len(units), err)
		}
		units = units[n:]
	}
	given := 0
	for i := range b.streams() {
		for from := "-"; from != ""; {
			reply, err := run("entries", i+1, from)
			if err != nil {
				return given, fmt.Errorf("release entries after the first %d: %w", given, err)
			}
			row, err := asRow(reply, 2)
			if err != nil {
				return given, fmt.Errorf("release entries after the first %d: %w", given, err)
			}
			given += int(asInt(row[0]))
			from = asString(row[1])
		}
	}
	if _, err := run("leave"); err != nil {
		return given, fmt.Errorf("leave group %q: %w", b.names.Group, err)
	}
	return given, nil
}
