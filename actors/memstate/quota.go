package memstate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge/memstream"
)

// How long a bucket is kept after it last mattered, a place after its turn, and what was taken; ms.
const (
	quotaKeep    = 3_600_000
	quotaPlaces  = 600_000
	quotaRepeats = 30_000
)

// place is a bucket as one script sees it.
type place struct {
	*memstream.Quota
	due, cost float64
	fresh     bool
}

// Take takes tokens, or says when the effect's turn comes; see actors.QuotaStore.
func (s *State) Take(ctx context.Context, t actors.Taking) (wait time.Duration, err error) {
	err = s.script(ctx, "take", func(tx *memstream.Tx) error {
		run := fmt.Sprintf("%s\x00%d", t.Effect, t.Run)
		now := float64(tx.NowMS)
		turn := now
		places := make([]*place, len(t.From))
		for i, from := range t.From {
			q := tx.Quota(from.Bucket)
			maps.DeleteFunc(q.Taken, func(_ string, at float64) bool { return at <= now-quotaRepeats })
			if _, before := q.Taken[run]; before && i == 0 {
				wait = 0
				return nil
			}
			places[i] = line(q, t.Effect, from, now)
			turn = math.Max(turn, places[i].due)
		}
		for _, p := range places {
			switch {
			case turn <= now:
				p.Spent = math.Max(p.Spent, now) + p.cost
				delete(p.Due, t.Effect)
				p.Taken[run] = now
			case p.fresh:
				p.Due[t.Effect] = p.due
			}
			p.UntilMS = int64(math.Max(p.Next, math.Max(p.Spent, math.Max(p.Quiet, now)))) + quotaKeep
		}
		wait = time.Duration(math.Ceil(turn-now)) * time.Millisecond
		return nil
	})
	return wait, err
}

// line finds the effect's place in a bucket's line, or gives it one.
func line(q *memstream.Quota, effect string, from actors.Tokens, now float64) *place {
	rate := from.Rate.WithDefaults()
	p := &place{Quota: q, cost: float64(from.N) * rate.Step()}
	room := float64(max(rate.Burst, from.N)) * rate.Step()
	spare := float64(rate.Spare()) / float64(time.Millisecond)
	maps.DeleteFunc(q.Due, func(_ string, at float64) bool { return at <= now-quotaPlaces })
	first := math.Max(math.Max(now, q.Quiet), math.Max(q.Spent, now)+p.cost-room-spare)
	due, known := q.Due[effect]
	if ahead := math.Max(due, q.Quiet); known && due >= q.Quiet-rate.Step() && ahead > now {
		p.due = ahead // several nodes hear of one silence, and not in the same ms: who was first after it still is
		return p
	}
	if known && first <= now {
		p.due = due
		return p
	}
	next := math.Max(q.Next, now) + p.cost
	p.fresh, p.due = true, math.Max(first, next-room)
	if q.Next = next; p.due > now {
		q.Next = math.Max(next, p.due+room)
	}
	return p
}

// Quiet closes buckets for a while; see actors.QuotaStore.
func (s *State) Quiet(ctx context.Context, buckets []actors.Tokens, d time.Duration) error {
	return s.script(ctx, "quiet", func(tx *memstream.Tx) error {
		till := float64(tx.NowMS + max(0, d.Milliseconds()))
		for _, from := range buckets {
			q, rate := tx.Quota(from.Bucket), from.Rate.WithDefaults()
			if q.Quiet >= till {
				continue
			}
			empty := till + float64(rate.Burst-1)*rate.Step()
			q.Quiet, q.Next, q.Spent = till, math.Max(q.Next, empty), math.Max(q.Spent, empty)
			q.UntilMS = int64(math.Max(q.Next, q.Spent)) + quotaKeep
		}
		return nil
	})
}
