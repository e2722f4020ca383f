package memstate

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge/memstream"
)

const (
	// feedTTL is how long published chunks are kept after the last one.
	feedTTL = time.Hour
	// followAtOnce is how many chunks one Follow returns at most.
	followAtOnce = 1000
)

// Publish appends a chunk that followers see; see actors.StateDesk.
func (s *State) Publish(ctx context.Context, id string, c actors.Chunk) error {
	return s.script(ctx, "publish", func(tx *memstream.Tx) error {
		kept := memstream.Chunk{Attempt: c.Attempt, Step: c.Step, End: c.End}
		if !c.End {
			kept.Data = append([]byte(nil), c.Data...)
		}
		tx.Publish(id, kept, feedTTL)
		return nil
	})
}

// Follow reads chunks after the offset, waiting up to block for the first; see actors.StateDesk.
func (s *State) Follow(ctx context.Context, id, after string, block time.Duration) ([]actors.Chunk, error) {
	timer := time.NewTimer(max(block, 0))
	defer timer.Stop()
	for {
		var found []memstream.Chunk
		var more <-chan struct{}
		err := s.script(ctx, "follow", func(tx *memstream.Tx) error {
			found, more = tx.Chunks(id, after, followAtOnce)
			return nil
		})
		if err != nil || len(found) > 0 || block <= 0 {
			return chunks(found), err
		}
		select {
		case <-more:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("memstate follow: %w", context.Cause(ctx))
		}
	}
}

func chunks(found []memstream.Chunk) []actors.Chunk {
	var out []actors.Chunk
	for _, c := range found {
		out = append(out, actors.Chunk{Offset: c.ID, Attempt: c.Attempt, Step: c.Step, Data: c.Data, End: c.End})
	}
	return out
}
