package streambridge

import (
	"strconv"
	"strings"

	"github.com/weir-run/weir/messages"
)

// This file is the window's language: what it is told, and what it wants done. The bridge actor gets events as messages
// and performs effects; the window itself touches nothing.

// event is something that the window is told. It is also a message to the bridge actor.
type event interface{ event() }

// arrival is an entry after decoding, on its way into the window.
type arrival struct {
	messages.Ref
	at         place
	deliveries int64
	size       int64
	wake       uint64
	// task is nil when bad is set.
	task *messages.Task
	// bad says why the entry cannot become a task.
	bad *messages.DecodeError
	// moveTo is the agent that the entry needs and this node lacks; empty otherwise.
	moveTo string
}

type (
	// arrived entries were handed out to the reader. count and bytes are all that the stream handed out.
	arrived struct {
		entries []arrival
		bytes   int64
	}
	// sweeping says that a tick is about to look at what is pending with us.
	sweeping struct{}
	// swept is what that tick found; it follows each sweeping, also when the tick failed.
	swept struct {
		claimed, strays, drained []arrival
		cancelled                []Cancelled

		more bool // the next tick may follow at once; for the reaper
	}
	// finished is an agent's answer to an assignment.
	finished struct{ *messages.Done }
	// settled entries have been acknowledged, buried, moved or delivered to their tasks, for sure.
	settled struct{ refs []messages.Ref }
	// beaten is the answer to (a part of) a heartbeat.
	beaten struct{ Beat }
	// silent says that no beat has got through for a whole lease: others may have everything by now.
	silent struct{}
	// drain ends assignment; effect idle follows when nothing runs.
	drain struct{}
	// interrupt asks what still runs in a drain to stop.
	interrupt struct{}
)

func (arrived) event()   {}
func (sweeping) event()  {}
func (swept) event()     {}
func (finished) event()  {}
func (settled) event()   {}
func (beaten) event()    {}
func (silent) event()    {}
func (drain) event()     {}
func (interrupt) event() {}

// An event that comes after the bridge actor's end is nobody's loss, and protoactor would print it, payloads and all.

func (arrived) IgnoreDeadLetterLogging()   {}
func (sweeping) IgnoreDeadLetterLogging()  {}
func (swept) IgnoreDeadLetterLogging()     {}
func (finished) IgnoreDeadLetterLogging()  {}
func (settled) IgnoreDeadLetterLogging()   {}
func (beaten) IgnoreDeadLetterLogging()    {}
func (silent) IgnoreDeadLetterLogging()    {}
func (drain) IgnoreDeadLetterLogging()     {}
func (interrupt) IgnoreDeadLetterLogging() {}

// effect is something that the window wants done.
type effect interface{ effect() }

type (
	// assign sends an entry to its agent.
	assign struct{ *messages.Assign }
	// cancel tells an agent to stop.
	cancel struct{ *messages.Cancel }
	// acknowledge hands an entry to the acker; settled must follow.
	acknowledge struct{ ref messages.Ref }
	// bury hands an entry to the burier; settled must follow.
	bury struct{ *Burial }
	// move hands an entry to the burier, to be given to the nodes of its agent; settled must follow.
	move struct {
		agent string
		held  Held
	}
	// deliver hands a message to the postman; settled must follow.
	deliver struct{ Mail }
	// report is for the host.
	report struct{ Event }
	// idle says that a drain has nothing to wait for any more.
	idle struct{}
	// giveUp says that the bridge must not go on.
	giveUp struct{ err error }
)

func (assign) effect()      {}
func (cancel) effect()      {}
func (acknowledge) effect() {}
func (bury) effect()        {}
func (move) effect()        {}
func (deliver) effect()     {}
func (report) effect()      {}
func (idle) effect()        {}
func (giveUp) effect()      {}

// place is an entry id as a number pair, so that ids have an order: "1526919030474-55".
type place struct{ ms, seq uint64 }

// placeOf reads an id. What is not an id of a stream has the place zero: such entries keep the order of their arrival.
func placeOf(id string) place {
	ms, seq, _ := strings.Cut(id, "-")
	m, err := strconv.ParseUint(ms, 10, 64)
	if err != nil {
		return place{}
	}
	s, err := strconv.ParseUint(seq, 10, 64)
	if err != nil && seq != "" {
		return place{}
	}
	return place{m, s}
}

func (p place) before(q place) bool { return p.ms < q.ms || p.ms == q.ms && p.seq < q.seq }
