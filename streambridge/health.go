package streambridge

import (
	"fmt"
	"time"
)

// Pulse is how one loop fares.
type Pulse struct {
	// Good is when its last good call began; zero before the first.
	Good time.Time
	// Err is why its last call failed; nil when it was good.
	Err error
	// Since is when it began to fail; zero while Err is nil.
	Since time.Time
}

// Health is what readiness and liveness read. It tells the truth of this moment and remembers nothing.
type Health struct {
	// Lease as configured.
	Lease time.Duration
	// Started says that Start succeeded and neither Drain nor Stop was called.
	Started bool
	// Draining says that no new entries are read.
	Draining bool
	// Failed is why the bridge gave up; nil while it works.
	Failed error
	// Read, Beat, Tick, Ack, Bury and Mail are the loops. Read is not renewed while there are no credits: judge it by its Err.
	Read, Beat, Tick, Ack, Bury, Mail Pulse
	// Full says that reading waits for credits.
	Full bool
	// Gate is how the group's intake stood at this node's last tick. A node behind a shut gate is ready: it works it off.
	Gate Gate
	// Panics counts panics in the host's hook and in the bridge actor's life cycle; one anywhere else is in Failed.
	Panics int64
}

// Ready says why the node should not count as ready at the time now, or nil: it must be started, not draining, not failed,
// its reading must not fail, and its heartbeat must not be older than the lease. A full window is ready: it works.
func (h Health) Ready(now time.Time) error {
	switch {
	case h.Failed != nil:
		return fmt.Errorf("the bridge has stopped: %w", h.Failed)
	case h.Draining:
		return ErrDraining
	case !h.Started:
		return ErrNotStarted
	case h.Read.Err != nil:
		return fmt.Errorf("reading fails since %s: %w", h.Read.Since.Format(time.TimeOnly), h.Read.Err)
	case h.Beat.Err != nil:
		return fmt.Errorf("the heartbeat fails since %s: %w", h.Beat.Since.Format(time.TimeOnly), h.Beat.Err)
	case h.Tick.Err != nil:
		return fmt.Errorf("upkeep fails since %s: %w", h.Tick.Since.Format(time.TimeOnly), h.Tick.Err)
	case now.Sub(h.Beat.Good) > h.Lease:
		return fmt.Errorf("the last heartbeat (%s) is older than the lease (%v)", h.Beat.Good.Format(time.TimeOnly), h.Lease)
	}
	return nil
}

// Stats is what a bridge holds at this moment, and what it has done since it was made.
type Stats struct {
	// InFlight entries are held: Waiting for their actor, Running, or Settling (their acknowledgement, burial or move is not
	// confirmed).
	InFlight, Waiting, Running, Settling int
	// Bytes is the size of what is in flight.
	Bytes int64
	// Credits is how many more entries, and CreditBytes how many more bytes, may be taken; negative after an overdraft by
	// claims.
	Credits, CreditBytes int64
	// Ghosts are activations whose entries are lost and whose agents have not answered.
	Ghosts int

	Read     uint64 // entries that the stream handed out
	Assigned uint64 // Assigns sent
	Acked    uint64 // acknowledgements confirmed
	Buried   uint64 // dead letters confirmed, the reaper's not among them
	Moved    uint64 // moves confirmed, and entries that scripts had acknowledged
	Messages uint64 // messages to tasks, taken or refused, whose acknowledgement is confirmed
	Claimed  uint64 // entries taken over from dead nodes
	Adopted  uint64 // strays taken back
	Lost     uint64 // entries that another node has
	Dropped  uint64 // entries forgotten without acknowledgement because their agent said so
	Gone     uint64 // entries whose body was trimmed by somebody else
	Refused  uint64 // entries not admitted: known already, or no room for a stray
	Ignored  uint64 // answers that no assignment waits for
}
