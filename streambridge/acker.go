package streambridge

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
)

const (
	// ackBatch is how many entries one XACK names at most.
	ackBatch = 1000
	// ackCrowd acknowledgements are sent without waiting for more.
	ackCrowd = 128
	// ackLinger is how long the first acknowledgement waits for company: nobody waits for it, and each call costs as
	// much as fifty entries in one.
	ackLinger = time.Millisecond
)

// acker acknowledges in batches what was persisted. What fails stays queued: after a crash the next delivery finds the
// work done.
type acker struct {
	stream  Stream
	box     *outbox[messages.Ref]
	post    func(event)
	monitor *monitor
	timeout time.Duration
}

func (a *acker) run(ctx context.Context) {
	wait := newBackoff()
	linger := time.NewTimer(0)
	defer linger.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.box.some:
		}
		linger.Reset(ackLinger)
		select {
		case <-ctx.Done():
			return
		case <-a.box.many:
		case <-linger.C:
		}
		for more := true; more; {
			batch := a.box.take(ackBatch)
			if len(batch) == 0 {
				a.box.back()
				break
			}
			began := time.Now()
			if err := a.ack(ctx, batch); err != nil {
				more = a.box.back(batch...)
				if ctx.Err() != nil {
					return
				}
				a.monitor.bad(err)
				if !wait.pause(ctx) {
					return
				}
				continue
			}
			a.monitor.good(began)
			wait.reset()
			a.post(settled{batch})
			more = a.box.back()
		}
	}
}

func (a *acker) ack(ctx context.Context, batch []messages.Ref) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := a.stream.Ack(ctx, batch); err != nil {
		return fmt.Errorf("acknowledge %d entries: %w", len(batch), err)
	}
	return nil
}
