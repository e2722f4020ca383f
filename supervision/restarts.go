package supervision

import (
	"math/rand/v2"
	"time"
)

// Restarts says how often a crashed agent actor is replaced in the process before its crash is left to the task's
// budget. The zero value means the defaults, −1 in Max means that none is.
type Restarts struct {
	// Max restarts of one task within Within. Default 3 in 60 s, as supervisors in Erlang count intensity over a period.
	Max    int
	Within time.Duration
	// Base is the first back-off, doubled up to Cap. Default 100 ms to 5 s.
	Base, Cap time.Duration
}

// budget counts the restarts of one task. It is pure: the caller brings the clock.
type budget struct {
	policy Restarts
	at     []time.Time // restarts within the period, oldest first
}

// next charges one crash at now. It returns how long to wait before the fresh actor, or false when the restarts of
// the period are used up.
func (b *budget) next(now time.Time) (time.Duration, bool) {
	kept := b.at[:0]
	for _, t := range b.at {
		if now.Sub(t) < b.policy.Within {
			kept = append(kept, t)
		}
	}
	b.at = kept
	if len(b.at) >= max(b.policy.Max, 0) {
		return 0, false
	}
	wait := b.policy.Base << min(len(b.at), 30)
	if wait > b.policy.Cap || wait <= 0 {
		wait = b.policy.Cap
	}
	b.at = append(b.at, now)
	return wait, true
}

// jitter spreads a wait over ±20 %, so that what crashed together does not come back together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
