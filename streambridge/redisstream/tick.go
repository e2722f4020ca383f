package redisstream

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// sweepBudget is how many own pending entries a tick may look at for strays, on average: a list of 100,000 is swept
// every 20 ticks, one of 5,000 at each.
const sweepBudget = 5000

// Tick is one turn of the clock, one script; see streambridge.Upkeep. Where it says More, a call at once goes on: with
// what is left of this turn's share of the orphans, never with a new share.
func (s *Stream) Tick(ctx context.Context, req streambridge.TickRequest) (streambridge.Tick, error) {
	b, err := s.open("tick")
	if err != nil {
		return streambridge.Tick{}, err
	}
	if req.DeadTTL > 0 {
		s.deadTTL.Store(req.DeadTTL.Milliseconds())
	}
	s.mu.Lock()
	quota := s.quota
	s.quota = -1
	sweep := s.sweepIn <= 0
	s.sweepIn--
	heard := s.heard
	s.mu.Unlock()

	// Nothing that was renewed a moment ago is a stray.
	stray := max(req.StrayAfter, time.Millisecond)
	reply, err := b.run(ctx, tickScript, b.streams(), b.keys.Prefix, b.names.Group, b.node.Consumer, b.node.Incarnation,
		b.node.Lease.Milliseconds(), req.Room, stray.Milliseconds(), s.deadTTL.Load(), flag(sweep), quota,
		s.clientID.Load(), b.types, b.node.Host, b.node.PID, heard,
		max(0, req.Gate.Age.Milliseconds()), max(0, req.Gate.Pending), max(0, req.Gate.Lag), max(0, req.Gate.Length), max(0, req.Gate.Memory),
		req.Stuck)
	if err != nil {
		return streambridge.Tick{}, fmt.Errorf("tick of group %q: %w", b.names.Group, err)
	}
	row, err := asRow(reply, 1)
	if err == nil && asInt(row[0]) == 1 {
		return streambridge.Tick{}, fmt.Errorf("tick of group %q as consumer %q: %w", b.names.Group, b.node.Consumer, streambridge.ErrUsurped)
	}
	if row, err = asRow(reply, 20); err != nil {
		return streambridge.Tick{}, fmt.Errorf("tick of group %q: %w", b.names.Group, err)
	}
	s.notice(asString(row[1]))
	out := streambridge.Tick{
		Promoted: int(asInt(row[6])),
		Joined:   int(asInt(row[18])),
		Trimmed:  asInt(row[7]),
		Unserved: asStrings(row[8]),
		Orphans:  int(asInt(row[9])),
		Calm:     asInt(row[10]) == 1,
		Missed:   asInt(row[11]),
		Nodes:    int(asInt(row[12])),
		More:     asInt(row[13]) == 1,

		Cancelled: cancelledUnits(row[16]),
		Gate:      gateOf(row[19]),
	}
	var saved []messages.Ref
	out.Claimed, saved = b.entries(row[3])
	s.remember(saved)
	out.Strays, saved = b.entries(row[4])
	s.remember(saved)
	out.Drained, _ = b.entries(row[15])
	for _, v := range asSlice(row[5]) {
		if pair := asSlice(v); len(pair) == 2 {
			out.Buried = append(out.Buried, messages.Ref{Stream: b.streams()[asInt(pair[0])-1], ID: asString(pair[1])})
		}
	}

	s.mu.Lock()
	s.quota = int(asInt(row[14]))
	s.heard = asString(row[17])
	switch {
	case len(out.Strays) > 0:
		s.sweepIn = 0 // where there is one there are more
	case sweep:
		s.sweepIn = int(asInt(row[2])) / sweepBudget
	}
	s.mu.Unlock()
	return out, nil
}
