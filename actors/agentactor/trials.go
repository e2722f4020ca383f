package agentactor

import (
	"context"
	"time"
)

// trials are the suspects of a node: units that the store answers Later, since one of them at a time runs on trial. There
// may be thousands, after a node died with a full window, and most are innocent and over in no time. So they stand in
// line: the first one asks, and asks again the moment that a trial has ended here; the others cost nothing meanwhile.
type trials struct {
	first chan struct{} // holds a token while somebody is first; whoever waits to send is in line, in order
	ended chan struct{} // has one when a trial has ended since the first one looked
}

func newTrials() *trials {
	return &trials{first: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
}

// queue waits until the caller is first in line; false means that ctx ended before. leave lets the next one ask.
func (t *trials) queue(ctx context.Context) bool {
	select {
	case t.first <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *trials) leave() { <-t.first }

// pause waits for the end of a trial, or until it is time to ask all the same: a trial is over when its time is, too.
func (t *trials) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.ended:
		return true
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// end says that a trial has ended.
func (t *trials) end() {
	select {
	case t.ended <- struct{}{}:
	default:
	}
}
