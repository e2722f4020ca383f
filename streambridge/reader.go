package streambridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
)

// probe is how long a read blocks after one that failed: it shows soon that the server is back.
const probe = 50 * time.Millisecond

// reader asks the stream for new entries as long as there are credits, decodes them and posts each batch to the bridge.
// It does not wait for the bridge: the board's limit is a running total, so several batches may be on their way.
type reader struct {
	stream   Stream
	in       *intake
	board    *board
	post     func(event)
	monitor  *monitor
	log      hclog.Logger
	count    int
	block    time.Duration
	patience time.Duration // beyond block, before a read counts as unanswered

	failing              bool
	readCount, readBytes int64 // all that was read, ever
	largest              int64 // the largest entry of the last batch: a guess at the next
}

func (r *reader) run(ctx context.Context) {
	wait := newBackoff()
	for {
		count, ok := r.credits(ctx)
		if !ok {
			return
		}
		began := time.Now()
		entries, err := r.read(ctx, count)
		if ctx.Err() != nil {
			return // what was handed out stays pending with us: Release gives it back, or a sweep finds it
		}
		if len(entries) > 0 {
			batch, bytes, largest := r.in.arrivals(entries)
			r.readCount, r.readBytes, r.largest = r.readCount+int64(len(batch)), r.readBytes+bytes, largest
			r.post(arrived{entries: batch, bytes: bytes})
		}
		switch {
		case errors.Is(err, ErrGroupLost):
			r.log.Error("the consumer group had vanished and was made again; entries and state may be gone", "error", err)
			r.monitor.emit(GroupLost{Err: err})
			r.monitor.bad(err)    // not ready until a read has worked again
			if !wait.pause(ctx) { // a group that vanishes again and again must not make a hot loop
				return
			}
		case err != nil:
			r.failing = true
			r.monitor.bad(err)
			if !wait.pause(ctx) {
				return
			}
		default:
			r.failing = false
			r.monitor.good(began)
			wait.reset()
		}
	}
}

// credits waits until something may be read, and says how much to ask for. The count is per stream and there are two,
// so that half of the credits is what may be asked for.
func (r *reader) credits(ctx context.Context) (count int, ok bool) {
	free, bytes, ok := r.board.await(ctx, r.readCount, r.readBytes)
	if !ok {
		return 0, false
	}
	n := min(int64(r.count), (free+1)/2)
	if r.largest > 0 {
		n = min(n, max(1, bytes/(2*r.largest)))
	}
	return int(n), true
}

func (r *reader) read(ctx context.Context, count int) ([]Entry, error) {
	block := r.block
	if r.failing {
		block = min(block, probe)
	}
	bound, cancel := context.WithTimeout(ctx, block+r.patience)
	defer cancel()
	entries, err := r.stream.Read(bound, count, block)
	if err == nil && len(entries) == 0 && bound.Err() != nil {
		err = fmt.Errorf("no answer within %v", block+r.patience)
	}
	return entries, err
}
