package supervision

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Event is something in the life of a node or of a task. The concrete types are the structs of this file and those of
// streambridge, of which the most useful have their names here.
type Event = streambridge.Event

// Events of the bridge.
type (
	// EntryBuried says that an entry became a dead letter.
	EntryBuried = streambridge.EntryBuried
	// MessageRefused says that an entry brought a message which its task did not take.
	MessageRefused = streambridge.MessageRefused
	// EntryClaimed says that an entry of a dead node is ours now.
	EntryClaimed = streambridge.EntryClaimed
	// LeaseLost says that an entry which we held is another's.
	LeaseLost = streambridge.LeaseLost
	// GroupLost says that the stream or the group had vanished.
	GroupLost = streambridge.GroupLost
	// TypeUnserved says that no live node runs an agent type whose entries wait.
	TypeUnserved = streambridge.TypeUnserved
	// GateWarned says that the backlog is near a limit of the group's gate.
	GateWarned = streambridge.GateWarned
	// GateShut says that intake is refused.
	GateShut = streambridge.GateShut
	// GateOpened ends a GateShut.
	GateOpened = streambridge.GateOpened
)

// AgentCrashed says that an agent actor died with an assignment in hand: its handler panicked.
type AgentCrashed struct {
	TaskID, Unit, Type string
	// Reason is the panic's value and stack.
	Reason string
	// Restarting says that a fresh actor goes on from the last checkpoint After this back-off; otherwise the restarts are
	// used up and the task's budget decides.
	Restarting bool
	After      time.Duration
}

// TaskBegan says that an activation of a unit has its fence.
type TaskBegan struct {
	TaskID, Unit, Type string
	Attempt            int64
	// Trial says that the unit runs alone among the suspects of its node, since nodes died under it.
	Trial bool
}

// TaskEnded says that an activation's outcome is persisted.
type TaskEnded struct {
	TaskID, Unit, Type string
	Outcome            messages.Outcome
	// Error of a retry or a rejection.
	Error string
	// Reason of the dead letter of a FAILED unit; unspecified otherwise.
	Reason messages.Reason
	// Ran is how long the activation took.
	Ran time.Duration
}

// QuotaQuieted says that a provider answered a step of this node that there were too many calls: no node of the group takes
// from the bucket for that long.
type QuotaQuieted struct {
	Bucket string
	For    time.Duration
}

// Name of the event.
func (QuotaQuieted) Name() string { return "quota_quieted" }

// Name of the event.
func (AgentCrashed) Name() string { return "agent_crashed" }

// Name of the event.
func (TaskBegan) Name() string { return "task_began" }

// Name of the event.
func (TaskEnded) Name() string { return "task_ended" }

// eventQueue is how many events a slow subscriber may be behind before it misses some.
const eventQueue = 4096

// hub hands events to subscribers, each on a goroutine of its own: publishing never waits for one. What a subscriber is too
// slow for is dropped and counted.
type hub struct {
	mu      sync.RWMutex
	closed  bool
	subs    map[*subscriber]struct{}
	active  atomic.Int32
	dropped atomic.Int64
}

type subscriber struct {
	queue chan Event
	done  chan struct{}
}

// wanted reports whether anyone listens: the hot path makes no event otherwise.
func (h *hub) wanted() bool { return h.active.Load() > 0 }

func (h *hub) publish(e Event) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for s := range h.subs {
		select {
		case s.queue <- e:
		default:
			h.dropped.Add(1)
		}
	}
}

// subscribe calls f for each event, in order, from one goroutine, until stop, which is idempotent and may be called from
// f itself: what is queued then is still handed over.
func (h *hub) subscribe(f func(Event)) (stop func()) {
	s := &subscriber{queue: make(chan Event, eventQueue), done: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}
	}
	if h.subs == nil {
		h.subs = map[*subscriber]struct{}{}
	}
	h.subs[s] = struct{}{}
	h.active.Add(1)
	go func() {
		defer close(s.done)
		for e := range s.queue {
			f(e)
		}
	}()
	return func() { h.remove(s) }
}

func (h *hub) remove(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.subs[s]; ok {
		delete(h.subs, s)
		h.active.Add(-1)
		close(s.queue)
	}
}

// close ends every subscription and waits until each has seen what was published before.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	subs := h.subs
	h.subs = nil
	h.active.Store(0)
	for s := range subs {
		close(s.queue)
	}
	h.mu.Unlock()
	for s := range subs {
		<-s.done
	}
}
