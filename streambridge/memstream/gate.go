package memstream

import (
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Times of the gate in ms, as in redisstream's gate.lua.
const (
	gateEvery = 900
	gateKeep  = 10_000
)

// gate is what stands between Submit and the stream; it is only there while it is not open.
type gate struct {
	state               streambridge.GateState
	what                string
	value, limit, first float64
	sinceMS, hintMS     int64
	untilMS             int64
}

// SetMemory says which share of its memory the server uses, for gates; 0, as at the start, for one without a limit.
func (s *Server) SetMemory(share float64) { s.fault(func(int64) { s.memory = share }) }

// gateNow is how the gate stands.
func (w *world) gateNow(now int64) streambridge.Gate {
	if w.gate != nil && w.gate.untilMS <= now {
		w.gate = nil
	}
	g := w.gate
	if g == nil {
		return streambridge.Gate{State: streambridge.GateIsOpen}
	}
	return streambridge.Gate{
		State: g.state, Reason: messages.GateReason(g.what, g.value, g.limit), SinceMS: now - g.sinceMS, RetryAfterMS: g.hintMS,
	}
}

// Shut says why the group's gate refuses Submit, and when to come back; ok is false while it does not.
func (tx *Tx) Shut() (reason string, retryAfter time.Duration, ok bool) {
	g := tx.w.gateNow(tx.NowMS)
	return g.Reason, g.RetryAfter(), g.State == streambridge.GateIsShut
}

// SetGate shuts the gate for a lag, as a tick does; a limit of 0 opens it.
func (tx *Tx) SetGate(lag, limit int, hint time.Duration) {
	if tx.w.gate = nil; limit > 0 {
		tx.w.gate = &gate{
			state: streambridge.GateIsShut, what: messages.GateLag, value: float64(lag), limit: float64(limit),
			sinceMS: tx.NowMS, hintMS: hint.Milliseconds(), untilMS: tx.NowMS + gateKeep,
		}
	}
}

// lookAtGate shuts the gate, warns or opens it, once a second for the whole group.
func (w *world) lookAtGate(now int64, memory float64, limits streambridge.GateLimits) {
	before := w.gateNow(now).State
	some := limits.Age > 0 || limits.Pending > 0 || limits.Lag > 0 || limits.Length > 0 || limits.Memory > 0
	if !some || w.gateAt > 0 && now-w.gateAt < gateEvery {
		return
	}
	w.gateAt = now
	worst := w.worst(now, memory, limits)
	load := 0.0
	if worst.limit > 0 {
		load = worst.value / worst.limit
	}
	switch {
	case load >= 1:
		worst.state = streambridge.GateIsShut
	case load < 0.9:
		w.gate = nil
		return
	case before == streambridge.GateIsShut:
		worst.state = streambridge.GateIsShut
	default:
		worst.state = streambridge.GateIsWarned
	}
	worst.sinceMS, worst.first, worst.untilMS = now, worst.value, now+gateKeep
	if before == worst.state {
		worst.sinceMS = w.gate.sinceMS
		if w.gate.what == worst.what {
			worst.first = w.gate.first
		}
	}
	if worst.state == streambridge.GateIsShut {
		worst.hint(now)
	}
	w.gate = &worst
}

// worst measures the backlog and returns what is nearest to its limit, or furthest over it.
func (w *world) worst(now int64, memory float64, limits streambridge.GateLimits) (worst gate) {
	measure := func(what string, value, limit float64) {
		if limit > 0 && (worst.limit == 0 || value/limit > worst.value/worst.limit) {
			worst.what, worst.value, worst.limit = what, value, limit
		}
	}
	var pending, lag int
	oldest := now
	for _, stream := range w.streams() {
		g := w.read(stream)
		if g == nil {
			continue
		}
		pending += g.pending.len()
		at, found := entryID{}, false
		if id, d := g.pending.first(); d != nil {
			at, found = id, true
		}
		for id := range w.data.log(stream).entries.from(g.delivered.next()) {
			lag++
			if !found {
				at, found = id, true
			}
		}
		if found && at.ms > 1_000_000_000_000 { // a producer may number its entries from 1: such an id is no time
			oldest = min(oldest, at.ms)
		}
	}
	if oldest < now {
		measure(messages.GateAge, float64(now-oldest), float64(limits.Age.Milliseconds()))
	}
	measure(messages.GatePending, float64(pending), float64(limits.Pending))
	measure(messages.GateLag, float64(lag), float64(limits.Lag))
	length := 0
	if l := w.data.log(w.keys.Stream); l != nil {
		length = l.entries.len()
	}
	measure(messages.GateLength, float64(length), float64(limits.Length))
	if memory > 0 {
		measure(messages.GateMemory, memory, limits.Memory)
	}
	return worst
}

// hint guesses when the value will be low enough, from how fast it has shrunk since the gate was shut.
func (g *gate) hint(now int64) {
	passed := now - g.sinceMS
	if passed > 0 && g.first > g.value {
		speed := (g.first - g.value) / float64(passed)
		g.hintMS = int64(min(max((g.value-0.9*g.limit)/speed, 1000), 60_000))
		return
	}
	if g.hintMS = 5000; passed >= gateKeep {
		g.hintMS = 30_000
	}
}
