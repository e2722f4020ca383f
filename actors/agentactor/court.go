package agentactor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-run/weir/actors"
)

// court tries the suspects of a node: units under which nodes have died. The store lets one of them at a time run on trial,
// and blames it when the node dies. There may be thousands, after a node died with a full window; most are innocent and over
// in no time, and one that has just arrived, and that nobody suspects, may be what ends the node. So:
//
//   - Suspects stand in line. Only the first one asks; the next one's turn comes the moment that a trial has ended.
//   - Trials are held in sessions: the gate is shut, what has begun just before is given the time to do its worst, and then
//     one suspect after the other runs while nothing else begins on this node.
//   - A trial has the node for itself for no longer than `alone`; then the gate opens, and it goes on among others. A death
//     later than that proves less, and the store wants it to come after a similar time again.
//
// The zero court is ready. All durations may be changed before its first use.
type court struct {
	settle  time.Duration // between shutting the gate and the first trial; 0 means the default
	session time.Duration // no trial begins later than this in a session
	alone   time.Duration // how long a trial has the node for itself

	shut    atomic.Bool // what the hot path looks at
	atGate  atomic.Int64
	waiting atomic.Int64 // in line, without the first

	mu     sync.Mutex
	line   chan struct{} // a token while somebody is first; whoever waits to send is in line, in order
	ended  chan struct{} // has one when a trial has ended since the first in line looked
	gate   chan struct{} // closed when the gate opens
	began  time.Time     // when it was shut
	until  time.Time     // when it opens in any case: a court that has lost its way stops nobody's work
	rest   time.Time     // no session before
	trying bool          // a trial has the node for itself
	trial  uint64        // the number of the last one
}

const (
	courtSettle  = 200 * time.Millisecond
	courtSession = time.Second
	// courtAlone covers what the store calls "soon after it began": a node's last tick before that is less than a second
	// old, and its next one would have come within another.
	courtAlone = 2 * time.Second
)

func newCourt() *court {
	return &court{
		settle: courtSettle, session: courtSession, alone: courtAlone,
		line: make(chan struct{}, 1), ended: make(chan struct{}, 1),
	}
}

// pass lets a unit begin that is not on trial; it waits while the gate is shut. false means that ctx has ended.
func (c *court) pass(ctx context.Context) bool {
	for c.shut.Load() {
		c.mu.Lock()
		gate, left := c.gate, time.Until(c.until)
		if left <= 0 {
			c.open()
		}
		c.mu.Unlock()
		if left <= 0 {
			return true
		}
		c.atGate.Add(1)
		ok := pauseOr(ctx, left, gate)
		c.atGate.Add(-1)
		if !ok {
			return false
		}
	}
	return true
}

// try asks for a trial until the unit has been answered. ask is Begin, with or without the wish to be tried; later is what
// it answered without. trial is for release, when the trial has ended.
func (c *court) try(ctx context.Context, later actors.Begun, ask func(trial bool) (actors.Begun, error)) (begun actors.Begun, trial uint64, err error) {
	c.waiting.Add(1)
	select {
	case c.line <- struct{}{}:
		c.waiting.Add(-1)
	case <-ctx.Done():
		c.waiting.Add(-1)
		return later, 0, context.Cause(ctx)
	}
	defer func() { <-c.line }()
	wait := later.Wait
	for tries := 0; ; tries++ {
		if wait > 0 && !c.sitting() {
			if !pauseOr(ctx, wait, c.ended) {
				return later, 0, context.Cause(ctx)
			}
			begun, err := ask(false)
			if err == nil && begun.Answer != actors.Later {
				return begun, 0, nil
			}
			if wait = begun.Wait; err != nil {
				wait = backoff(tries)
			}
			continue
		}
		if !c.convene(ctx) {
			return later, 0, context.Cause(ctx)
		}
		begun, err := ask(true)
		switch {
		case err != nil:
			c.adjourn()
			wait = backoff(tries)
		case begun.Answer == actors.Later:
			c.adjourn()
			wait = max(begun.Wait, 10*time.Millisecond)
		case begun.Trial:
			return begun, c.seize(), nil
		default:
			c.skip()
			return begun, 0, nil
		}
	}
}

// sitting says that a session goes on and the last trial has ended: the next suspect's turn.
func (c *court) sitting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shut.Load() && !c.trying && time.Since(c.began) < c.session
}

// convene waits until a trial may begin: the session's next, or the first of a new one.
func (c *court) convene(ctx context.Context) bool {
	for {
		c.mu.Lock()
		now := time.Now()
		if c.shut.Load() && now.Before(c.until) {
			if c.trying {
				gate, left := c.gate, c.until.Sub(now)
				c.mu.Unlock()
				if !pauseOr(ctx, left, gate, c.ended) {
					return false
				}
				continue
			}
			if now.Sub(c.began) < c.session {
				c.until = now.Add(c.alone) // for the answer, and then for the trial
				c.mu.Unlock()
				return true
			}
		}
		c.open()
		if left := c.rest.Sub(now); left > 0 {
			c.mu.Unlock()
			if !pauseOr(ctx, left) {
				return false
			}
			continue
		}
		c.shut.Store(true)
		c.gate, c.began, c.until = make(chan struct{}), now, now.Add(c.settle+c.alone)
		c.mu.Unlock()
		if !pauseOr(ctx, c.settle) {
			c.adjourn()
			return false
		}
		return true
	}
}

// seize gives the node to the trial that has just begun.
func (c *court) seize() (trial uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trial++
	c.trying, c.until = true, time.Now().Add(c.alone)
	return c.trial
}

// release ends a trial: the next suspect's turn, or the gate opens.
func (c *court) release(trial uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if trial == c.trial && c.trying {
		c.trying = false
		c.next()
	}
	select {
	case c.ended <- struct{}{}:
	default:
	}
}

// skip goes on after a suspect that needed no trial.
func (c *court) skip() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next()
}

// next opens the gate unless another suspect's turn follows at once; the caller holds c.mu.
func (c *court) next() {
	if c.waiting.Load() == 0 || time.Since(c.began) >= c.session {
		c.open()
	}
}

// adjourn ends a session without a trial.
func (c *court) adjourn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open()
}

// open opens the gate; the caller holds c.mu. Who waited there gets time before the next session.
func (c *court) open() {
	if !c.shut.Load() {
		return
	}
	if now := time.Now(); c.atGate.Load() > 0 {
		c.rest = now.Add(now.Sub(c.began) / 2)
	}
	c.trying = false
	c.shut.Store(false)
	close(c.gate)
}

// pauseOr waits for the time, or for one of the channels; false means that ctx has ended.
func pauseOr(ctx context.Context, d time.Duration, early ...<-chan struct{}) bool {
	var first, second <-chan struct{}
	if len(early) > 0 {
		first = early[0]
	}
	if len(early) > 1 {
		second = early[1]
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-first:
	case <-second:
	case <-ctx.Done():
		return false
	}
	return true
}
