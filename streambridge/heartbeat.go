package streambridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// beatChunk is how many entries one beat names: more would block the server for longer than a few ms.
const beatChunk = 500

// heartbeat renews what is held, and the node's liveness with it. One failed beat never ends it.
type heartbeat struct {
	stream  Stream
	held    func(context.Context) ([]holding, error)
	post    func(event)
	monitor *monitor
	every   time.Duration
	lease   time.Duration
	timeout time.Duration

	good   time.Time // when the last beat that got through was sent
	silent bool      // the window was told of this silence
}

// first beats once, with nothing held, before anything is read: Begin wants a live node.
func (h *heartbeat) first(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	h.good = time.Now()
	answer, err := h.stream.Beat(ctx, nil)
	switch {
	case err != nil:
		return fmt.Errorf("first heartbeat: %w", err)
	case answer.Usurped:
		return fmt.Errorf("first heartbeat: %w", ErrUsurped)
	}
	h.monitor.good(h.good)
	return nil
}

func (h *heartbeat) run(ctx context.Context) {
	wait := backoff{least: min(100*time.Millisecond, h.every), most: min(time.Second, h.every)}
	due := time.NewTimer(h.every)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
		began := time.Now()
		err := h.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			h.monitor.bad(err)
			h.judge()
			due.Reset(wait.take())
		default:
			wait.reset()
			due.Reset(max(h.every-time.Since(began), time.Millisecond))
		}
	}
}

// round renews everything once, in chunks of neighbors, so that the server looks at narrow ranges of ids.
func (h *heartbeat) round(ctx context.Context) error {
	held, err := h.held(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(held, func(a, b holding) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.at.ms, b.at.ms), cmp.Compare(a.at.seq, b.at.seq))
	})
	chunk := make([]Held, 0, min(len(held), beatChunk))
	for first := true; first || len(held) > 0; first = false {
		n := min(len(held), beatChunk)
		chunk = chunk[:0]
		for _, one := range held[:n] {
			chunk = append(chunk, one.Held)
		}
		held = held[n:]
		if err := h.beat(ctx, chunk); err != nil {
			return fmt.Errorf("renew %d entries: %w", n, err)
		}
	}
	return nil
}

func (h *heartbeat) beat(ctx context.Context, chunk []Held) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	began := time.Now()
	answer, err := h.stream.Beat(ctx, chunk)
	if errors.Is(err, ErrUsurped) {
		answer, err = Beat{Usurped: true}, nil
	}
	if err != nil {
		return err
	}
	h.good, h.silent = began, false
	h.monitor.good(began)
	h.post(beaten{answer})
	return nil
}

// judge gives up what is held when no beat has got through for a whole lease, by this machine's clock: others may have it
// by now, and whatever is still ours comes back by the sweep. A process that was frozen learns from its first beat
// instead what it lost: only a failed beat comes here.
func (h *heartbeat) judge() {
	if !h.silent && time.Since(h.good) >= h.lease {
		h.silent = true
		h.post(silent{})
	}
}
