package supervision

import (
	"sync/atomic"

	"github.com/weir-run/weir/streambridge"
)

// counters are what the runtime itself counts; the bridge counts entries.
type counters struct {
	began, completed, retried, rejected, parked, cancelled, interrupted, lost atomic.Int64
	crashes, stuckSteps                                                       atomic.Int64
}

// Stats is what a runtime has done since it was made, and what it holds now.
type Stats struct {
	// Bridge counts entries.
	Bridge streambridge.Stats
	// Began counts activations; the others are their outcomes. Lost ones were refused by a fence: another node has them.
	Began, Completed, Retried, Rejected, Parked, Cancelled, Interrupted, Lost int64
	// Crashes counts agent actors that died with an assignment in hand.
	Crashes int64
	// StuckSteps is how many attempts of steps, and handlers, run on after their timeout, now.
	StuckSteps int64
	// SchedulesFired counts ticks whose task this node submitted; SchedulesBroken is how many
	// it has met that it cannot use.
	SchedulesFired, SchedulesBroken int64
	// EventsDropped counts events that a subscriber was too slow for.
	EventsDropped int64
}

// Stats reads the counters. They start at zero with the process.
func (r *Runtime) Stats() Stats {
	c := &r.counts
	out := Stats{
		Bridge: r.bridge.Stats(),
		Began:  c.began.Load(), Completed: c.completed.Load(), Retried: c.retried.Load(), Rejected: c.rejected.Load(),
		Parked: c.parked.Load(), Cancelled: c.cancelled.Load(), Interrupted: c.interrupted.Load(), Lost: c.lost.Load(),
		Crashes: c.crashes.Load(), StuckSteps: c.stuckSteps.Load(), EventsDropped: r.hub.dropped.Load(),
	}
	if r.sched != nil {
		out.SchedulesFired, out.SchedulesBroken = r.sched.fired.Load(), r.sched.unusable.Load()
	}
	return out
}
