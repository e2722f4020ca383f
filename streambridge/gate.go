package streambridge

import (
	"cmp"
	"fmt"
	"time"
)

// What a field of GateLimits gets when it is zero.
const (
	DefaultGateAge     = 24 * time.Hour
	DefaultGateEntries = 1_000_000
	DefaultGateMemory  = 0.9
)

// GateLimits are how far a group may fall behind before its gate shuts: Submit is refused then, with actors.ErrGateShut,
// until what was over its limit is below nine tenths of it. At nine tenths of a limit there is a warning. What is in the
// stream goes on, and so does what tasks themselves begin: retries, timers, children, emits, schedules. A producer that writes to the
// stream by itself (XADD) cannot be refused.
//
// Zero means the default, Off (−1) no limit. Nodes of one group should have the same: any of them may be the next to look.
type GateLimits struct {
	// Age of the oldest entry that nobody has acknowledged, by its id. Default 24 h.
	Age time.Duration
	// Pending is how many entries may be delivered and not acknowledged. Default 1,000,000.
	Pending int64
	// Lag is how many may wait for their delivery. Default 1,000,000. Some servers cannot tell for some streams: then it
	// shuts nothing.
	Lag int64
	// Length is how many entries the public stream may hold. Default 1,000,000; a client's MaxBacklog is a lower limit.
	Length int64
	// Memory is the share of the server's maxmemory that may be in use. Default 0.9. Without a maxmemory it shuts nothing.
	Memory float64
}

// WithDefaults returns a copy in which every zero field has its default.
func (g GateLimits) WithDefaults() GateLimits {
	return GateLimits{
		Age:     cmp.Or(g.Age, DefaultGateAge),
		Pending: cmp.Or(g.Pending, DefaultGateEntries),
		Lag:     cmp.Or(g.Lag, DefaultGateEntries),
		Length:  cmp.Or(g.Length, DefaultGateEntries),
		Memory:  cmp.Or(g.Memory, DefaultGateMemory),
	}
}

// Validate names the first limit that cannot be, and its value.
func (g GateLimits) Validate() error {
	switch {
	case g.Age != Off && g.Age < time.Millisecond:
		return fmt.Errorf("Gate.Age (%v) must be at least 1ms, or -1 for no limit", g.Age)
	case g.Pending < Off:
		return fmt.Errorf("Gate.Pending (%d) must be at least 1, or -1 for no limit", g.Pending)
	case g.Lag < Off:
		return fmt.Errorf("Gate.Lag (%d) must be at least 1, or -1 for no limit", g.Lag)
	case g.Length < Off:
		return fmt.Errorf("Gate.Length (%d) must be at least 1, or -1 for no limit", g.Length)
	case g.Memory != Off && !(g.Memory > 0 && g.Memory <= 1):
		return fmt.Errorf("Gate.Memory (%v) must be above 0 and at most 1, or -1 for no limit", g.Memory)
	}
	return nil
}

// GateState is how a gate stands.
type GateState string

const (
	// GateIsOpen lets everything in.
	GateIsOpen GateState = "open"
	// GateIsWarned is open, and at least one limit is nearly reached.
	GateIsWarned GateState = "warned"
	// GateIsShut refuses Submit.
	GateIsShut GateState = "shut"
)

// Gate is how the intake of a group stands. The zero Gate is open.
type Gate struct {
	State GateState `json:"state"`
	// Reason says what is over its limit, or near it; empty while the gate is open.
	Reason string `json:"reason,omitempty"`
	// SinceMS is for how long it has stood so, ms.
	SinceMS int64 `json:"since_ms,omitempty"`
	// RetryAfterMS is when a client that was refused should come back, ms: a guess from how fast the backlog shrinks.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// RetryAfter is RetryAfterMS as a duration.
func (g Gate) RetryAfter() time.Duration { return time.Duration(g.RetryAfterMS) * time.Millisecond }

// GateWarned says that the backlog is near a limit of the group's gate.
type GateWarned struct{ Reason string }

// GateShut says that intake is refused.
type GateShut struct {
	Reason     string
	RetryAfter time.Duration
}

// GateOpened ends a GateShut, and a GateWarned.
type GateOpened struct{}

// Name of the event.
func (GateWarned) Name() string { return "gate_warned" }

// Name of the event.
func (GateShut) Name() string { return "gate_shut" }

// Name of the event.
func (GateOpened) Name() string { return "gate_opened" }

// judgeGate tells what has changed about the gate since the last tick.
func (r *reaper) judgeGate(g Gate) {
	g.State = cmp.Or(g.State, GateIsOpen)
	before := GateIsOpen
	if last := r.gate.Swap(&g); last != nil {
		before = last.State
	}
	if g.State == before {
		return
	}
	switch g.State {
	case GateIsShut:
		r.log.Warn("intake is shut: tasks that are submitted are refused", "reason", g.Reason)
		r.monitor.emit(GateShut{Reason: g.Reason, RetryAfter: g.RetryAfter()})
	case GateIsWarned:
		r.log.Warn("intake will be shut soon", "reason", g.Reason)
		r.monitor.emit(GateWarned{Reason: g.Reason})
	case GateIsOpen:
		r.log.Info("intake is open", "before", string(before))
		r.monitor.emit(GateOpened{})
	}
}
