package redisstate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
)

const (
	// maxChunks is how many chunks of a task are kept (about: Redis trims whole nodes).
	maxChunks = 10_000
	// chunkTTL is how long they are kept after the last.
	chunkTTL = time.Hour
	// followBatch is how many chunks one look takes.
	followBatch = 1000
	// A follower looks again after followFirst, and twice as late each time that nothing came, up to followLast. It does not
	// block in Redis: a hundred followers would hold every connection of the pool that running agents commit through.
	followFirst = 10 * time.Millisecond
	followLast  = 100 * time.Millisecond
)

// Publish appends a chunk that followers see; see actors.StateDesk.
func (s *State) Publish(ctx context.Context, id string, c actors.Chunk) error {
	b, err := s.binding()
	if err != nil {
		return err
	}
	args := []string{
		number(maxChunks), number(chunkTTL.Milliseconds()), "attempt", number(c.Attempt), "step", c.Step,
	}
	if c.End {
		args = append(args, "end", "1")
	} else {
		args = append(args, "data", string(c.Data))
	}
	if _, err := s.batch.do(ctx, publishScript, []string{b.keys.Task(id) + ":live"}, args...); err != nil {
		return fmt.Errorf("publish a chunk of task %.80q: %w", id, err)
	}
	return nil
}

// Follow reads chunks after the offset ("" for the first that is kept), waiting up to block; see actors.StateDesk. A
// chunk is seen at most 100 ms after it was published.
func (s *State) Follow(ctx context.Context, id, after string, block time.Duration) ([]actors.Chunk, error) {
	b, err := s.binding()
	if err != nil {
		return nil, err
	}
	if after == "" {
		after = "0-0"
	}
	args := &redis.XReadArgs{Streams: []string{b.keys.Task(id) + ":live", after}, Count: followBatch, Block: -1}
	deadline := time.Now().Add(block)
	for pause := followFirst; ; pause = min(2*pause, followLast) {
		streams, err := s.rdb.XRead(ctx, args).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("follow task %.80q: %w", id, err)
		}
		if len(streams) > 0 && len(streams[0].Messages) > 0 {
			return chunks(streams[0].Messages), nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("follow task %.80q: %w", id, context.Cause(ctx))
		case <-time.After(min(pause, left)):
		}
	}
}

func chunks(found []redis.XMessage) []actors.Chunk {
	list := make([]actors.Chunk, len(found))
	for i, m := range found {
		text := func(name string) string {
			v, _ := m.Values[name].(string)
			return v
		}
		attempt, _ := strconv.Atoi(text("attempt"))
		list[i] = actors.Chunk{Offset: m.ID, Attempt: attempt, Step: text("step"), End: text("end") != ""}
		if d := text("data"); d != "" {
			list[i].Data = []byte(d)
		}
	}
	return list
}
