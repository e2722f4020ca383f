package redisstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Beat renews what is held, in scripts of at most 500 entries, and keeps the node's liveness key for a lease; with
// nothing held it does only that. After an error some of it may be renewed, and what was found on the way is in the
// answer beside the error; repeat it.
func (s *Stream) Beat(ctx context.Context, held []streambridge.Held) (streambridge.Beat, error) {
	var out streambridge.Beat
	b, err := s.open("beat")
	if err != nil {
		return out, err
	}
	byStream := map[string][]streambridge.Held{}
	for _, h := range held {
		byStream[h.Stream] = append(byStream[h.Stream], h)
	}
	if len(held) == 0 {
		byStream[b.keys.Stream] = nil
	}
	s.mu.Lock()
	round := &beat{out: &out, cancelled: map[streambridge.Cancelled]struct{}{}, seen: s.cancelSeen}
	s.mu.Unlock()
	for _, stream := range b.streams() {
		of, ok := byStream[stream]
		if !ok {
			continue
		}
		// In the order of ids, so that a chunk is one range of the pending list.
		slices.SortFunc(of, func(x, y streambridge.Held) int { return compareIDs(x.ID, y.ID) })
		for first := true; first || len(of) > 0; first = false {
			n := min(len(of), chunk)
			if err := s.beatChunk(ctx, b, stream, of[:n], round); err != nil {
				return out, fmt.Errorf("beat for %d entries: %w", len(held), err)
			}
			if out.Usurped {
				return streambridge.Beat{Usurped: true}, nil
			}
			of = of[n:]
		}
	}
	s.mu.Lock()
	s.cancelSeen = round.first
	s.mu.Unlock()
	return out, nil
}

// beat is one round over all that is held.
type beat struct {
	out *streambridge.Beat
	// seen is how many cancelled units the round before knew of; first what this round's first script knew, which is what
	// the next round may rely on.
	seen, first string
	cancelled   map[streambridge.Cancelled]struct{}
}

func (s *Stream) beatChunk(ctx context.Context, b *binding, stream string, held []streambridge.Held, round *beat) error {
	out := round.out
	args := append(make([]any, 0, 9+3*len(held)), b.keys.Prefix, b.names.Group, b.node.Consumer, b.node.Incarnation,
		b.node.Lease.Milliseconds(), s.deadTTL.Load(), s.clientID.Load(), b.keys.Stream,
		round.seen)
	for _, h := range held {
		args = append(args, h.ID, name(h.TaskID, h.Unit), flag(h.Saved))
	}
	reply, err := b.run(ctx, beatScript, []string{stream}, args...)
	if err != nil {
		return err
	}
	row, err := asRow(reply, 1)
	if err != nil {
		return err
	}
	if asInt(row[0]) == 1 {
		out.Usurped = true
		return nil
	}
	if row, err = asRow(reply, 6); err != nil {
		return err
	}
	refs := func(v any) (refs []messages.Ref) {
		for _, id := range asStrings(v) {
			refs = append(refs, messages.Ref{Stream: stream, ID: id})
		}
		return refs
	}
	lost, saved, gone := refs(row[1]), refs(row[2]), refs(row[3])
	s.remember(saved)
	s.forget(lost)
	s.forget(gone)
	out.Lost = append(out.Lost, lost...)
	out.Saved = append(out.Saved, saved...)
	out.Gone = append(out.Gone, gone...)
	for _, c := range cancelledUnits(row[4]) {
		if _, ok := round.cancelled[c]; !ok {
			round.cancelled[c] = struct{}{}
			out.Cancelled = append(out.Cancelled, c)
		}
	}
	round.first = cmp.Or(round.first, asString(row[5]))
	return nil
}

// cancelledUnits reads names and reasons in turn.
func cancelledUnits(v any) (units []streambridge.Cancelled) {
	flat := asStrings(v)
	for i := 0; i+1 < len(flat); i += 2 {
		task, unit, _ := strings.Cut(flat[i], ":")
		units = append(units, streambridge.Cancelled{TaskID: messages.Unescape(task), Unit: messages.Unescape(unit), Reason: flat[i+1]})
	}
	return units
}

// compareIDs orders entry ids as the server does. Their halves may need 64 bits, so they are compared as text.
func compareIDs(x, y string) int {
	xms, xseq, _ := strings.Cut(x, "-")
	yms, yseq, _ := strings.Cut(y, "-")
	return cmp.Or(compareDigits(xms, yms), compareDigits(xseq, yseq))
}

func compareDigits(x, y string) int {
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y))
}
