package streambridge

import (
	"context"
	"time"

	"github.com/weir-run/weir/messages"
)

// Entry is an entry as the stream handed it out, before anyone has looked into it.
type Entry struct {
	messages.Ref
	// Fields in the producer's order, every byte kept. Control fields of an inbox entry are among them.
	Fields []messages.Pair
	// Deliveries counts how often the stream handed it out, this time included: 1 for a fresh entry.
	Deliveries int64
}

// Size is the bytes of all names and values.
func (e *Entry) Size() int64 {
	var n int64
	for _, f := range e.Fields {
		n += int64(len(f.Name) + len(f.Value))
	}
	return n
}

// Held is an entry that the bridge holds, as a heartbeat names it.
type Held struct {
	messages.Ref
	TaskID, Unit string
	// Saved says that an earlier beat has copied the entry's fields beside its task.
	Saved bool
}

// Beat is the answer to a heartbeat.
type Beat struct {
	// Lost entries are no longer ours: another consumer has them, or they were settled. Their work must stop.
	Lost []messages.Ref
	// Saved entries now have a copy beside their task.
	Saved []messages.Ref
	// Gone entries were pending with us and have no body in the stream any more; one with a copy was rebuilt into the inbox,
	// one without became a dead letter. Either way it is acknowledged and must be forgotten.
	Gone []messages.Ref
	// Cancelled units were cancelled by someone while we hold their entries.
	Cancelled []Cancelled
	// Usurped means that another incarnation took over this consumer name: everything held is lost.
	Usurped bool
}

// Cancelled is a unit that somebody cancelled.
type Cancelled struct{ TaskID, Unit, Reason string }

// Burial asks for an entry to be set aside.
type Burial struct {
	messages.Ref
	Reason messages.Reason
	// Detail is the sentence for a person.
	Detail string
	// TaskID, Unit and Type where the entry could be decoded that far.
	TaskID, Unit, Type string
	// Fail also ends the unit as FAILED and raises its fence. False leaves the record alone (an id conflict is
	// another's work).
	Fail       bool
	Deliveries int64
	Wake       uint64
}

// Stream is what the bridge needs of a stream while entries flow: the hot path. Adapters: redisstream, memstream.
// An adapter is made unbound; Open binds it to one group. All methods may be called at once from several goroutines.
type Stream interface {
	// Open checks the server and joins the group, which it makes when missing (at the low-water mark kept in the
	// group's meta hash, else at the beginning). Errors are one clear sentence each: wrong address, wrong password, too old
	// (< 6.2), a key of the wrong type, an evicting maxmemory policy, ErrConsumerTaken.
	Open(ctx context.Context, names messages.Names, node messages.Node) error
	// Read hands out at most count new entries of the public stream and of the inbox each, waiting up to block for the first
	// one. It returns early and without error when ctx ends (the server is told to unblock), never losing what was
	// handed out: such entries are pending with us and Release or a sweep finds them.
	// A group or stream that vanished is made again, reported once as ErrGroupLost wrapped in the returned error.
	Read(ctx context.Context, count int, block time.Duration) ([]Entry, error)
	// Ack acknowledges entries. Those not pending are ignored, so repeating it is harmless.
	Ack(ctx context.Context, refs []messages.Ref) error
	// Beat renews what is held and still ours, without stealing back what is not, copies the fields of entries that
	// outlive their first beat, and keeps the node's liveness key for a lease.
	Beat(ctx context.Context, held []Held) (Beat, error)
	// Bury sets entries aside as dead letters with their original fields and acknowledges them, in one script each.
	// An entry that is not pending with us is left alone.
	Bury(ctx context.Context, dead []Burial) error
	// Move gives entries whose agent type this node lacks to the stream of that type, and acknowledges them, in one
	// script each. An entry that is not pending with us is left alone, so repeating it is harmless.
	Move(ctx context.Context, agentType string, entries []Held) error
	// Release gives back the consumer's whole pending list so that others take it at once: idle past any lease, the
	// delivery count back by one. held names the tasks behind it, as in Beat: those that we own are disowned, and a unit
	// that is RUNNING under our incarnation becomes PENDING with one interruption more. Then the node leaves the group:
	// its liveness key goes. It returns how many entries it gave back. Call it when no Read is under way. Safe to repeat.
	//
	// An adapter that has connections or goroutines of its own is also an io.Closer: close it after Release, or in its
	// place where the server cannot be reached. Close gives nothing back and may be repeated.
	Release(ctx context.Context, held []Held) (int, error)
}

// TickRequest is what the reaper can take this time.
type TickRequest struct {
	// Room is how many entries the window has credit for: what a tick hands out stays within it, all together.
	Room int
	// MaxDeliveries as in Config.
	MaxDeliveries int64
	// StrayAfter is how long an own entry must have been idle to be reported as a stray.
	StrayAfter time.Duration
	// Retention of settled entries and dead letters.
	DeadTTL time.Duration
	// Stuck is how many steps and handlers run on here after their timeout, for the status.
	Stuck int64
	// Gate has the limits of intake; what is not above 0 is none.
	Gate GateLimits
}

// Tick is what one turn of the reaper's clock found and did.
type Tick struct {
	// Claimed entries were orphans and are ours now.
	Claimed []Entry
	// Strays are pending with us and idle longer than StrayAfter: the window adopts those it does not know. Their idle
	// time starts again, their delivery count stays.
	Strays []Entry
	// Drained entries waited for a node that runs their agent type, and are pending with us now; within Room, as the others.
	Drained []Entry
	// Buried counts orphans that became dead letters here.
	Buried []messages.Ref
	// Cancelled units were cancelled while they ran on this node, since the last tick. After a pause too long for the list of
	// them a beat tells.
	Cancelled []Cancelled
	// Promoted counts units moved to the inbox: retries that were due, SCHEDULED ones whose time had come, and waits whose time
	// was over.
	Promoted int
	// Joined counts tasks that were submitted for later and are in the public stream now.
	Joined int
	// Trimmed counts acknowledged entries removed from the public stream and the inbox.
	Trimmed int64
	// Unserved are agent types with entries waiting and no live node that runs them.
	Unserved []string
	// Orphans is how many entries of dead nodes are still waiting.
	Orphans int
	// Calm says that claims wait: nobody ticked for half a lease, so everyone counts as alive for one more.
	Calm bool
	// Missed is how many entries were trimmed undelivered by somebody else since the last tick.
	Missed int64
	// Nodes is how many nodes are live, this one included.
	Nodes int
	// Gate is how intake stands. It is looked at once a second by the tick of whichever node comes first, and opens by itself
	// when nobody has looked for ten.
	Gate Gate
	// More says that another tick at once would find more to do.
	More bool
}

// Mail is an entry that brings a message to a task.
type Mail struct {
	messages.Ref
	TaskID, Name string
	// MessageID is empty where the producer gave none: then the first message of the name is the only one that counts.
	MessageID, ContentType string
	Payload                []byte
}

// Upkeep is what the reaper, the postman and the desk need of a stream.
type Upkeep interface {
	// Tick is one turn of the clock that every node runs once a second, also when idle: pulse, reap, promote, sweep, trim,
	// removal of dead consumers with nothing pending. It loses nothing when it fails half way: what was claimed and not
	// reported is a stray later. ErrUsurped: another incarnation has our consumer name.
	Tick(ctx context.Context, req TickRequest) (Tick, error)
	// Deliver gives messages to their tasks, one script each and in order: it records the message, wakes what waits for it,
	// and acknowledges the entry. A receipt says what became of each; MailboxFull and NoMailbox are dead letters. An entry
	// that is not pending with us is left alone. After an error there are receipts for those before the failing one;
	// repeating the rest, or all, is harmless.
	Deliver(ctx context.Context, mail []Mail) ([]messages.Receipt, error)
	// Status reads the group as operators see it.
	Status(ctx context.Context) (Status, error)
	// Letters lists at most n dead letters after the id `after` ("" for the first), oldest first.
	Letters(ctx context.Context, after string, n int) ([]*messages.DeadLetter, error)
	// Letter reads one. It returns ErrNoLetter when there is none.
	Letter(ctx context.Context, id string) (*messages.DeadLetter, error)
	// Settle ends a dead letter; see Settlement.
	Settle(ctx context.Context, id string, how Settlement) error
}

// Settlement is what becomes of a dead letter.
type Settlement int

const (
	// Retry puts its entry back into the group's inbox with a fresh ledger, fenced against what ran before.
	Retry Settlement = iota + 1
	// Complete marks its unit SUCCEEDED without running it.
	Complete
	// Drop removes the letter; its unit stays FAILED.
	Drop
)

// Status is the group as operators see it.
type Status struct {
	Stream    string           `json:"stream"`
	Group     string           `json:"group"`
	Length    int64            `json:"length"`    // entries in the public stream
	Inbox     int64            `json:"inbox"`     // entries in the inbox
	Lag       int64            `json:"lag"`       // not yet delivered; -1 when the server cannot tell
	Pending   int64            `json:"pending"`   // delivered, not acknowledged
	OldestMS  int64            `json:"oldest_ms"` // age of the oldest pending entry, ms
	Dead      int64            `json:"dead"`      // dead letters
	Due       int64            `json:"due"`       // retries and timers that wait
	Delayed   int64            `json:"delayed"`   // submitted for later, not in the stream yet; all groups share them
	States    map[string]int64 `json:"states"`    // tasks by state; SUCCEEDED is a running total, PENDING the lag and what Waiting holds, SCHEDULED has Delayed in it
	Consumers []Consumer       `json:"consumers"`
	Unserved  []string         `json:"unserved"` // agent types that wait for a node that runs them
	// Waiting is what stands in the streams of agent types, those of Unserved and those that a live node is about to drain.
	Waiting []TypeWaiting `json:"waiting_types"`
	// StreamExists and GroupExists are false before the first entry or node, and for a name that was mistyped.
	StreamExists bool `json:"stream_exists"`
	GroupExists  bool `json:"group_exists"`
	// Gate is how intake stands.
	Gate Gate `json:"gate"`
}

// TypeWaiting is the stream of an agent type that the readers of its entries lacked.
type TypeWaiting struct {
	Type     string `json:"type"`
	Entries  int64  `json:"entries"`
	OldestMS int64  `json:"oldest_ms"` // for how long the oldest has waited there, ms
	Served   bool   `json:"served"`    // a live node runs the type
}

// Consumer is one name in the group.
type Consumer struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation,omitempty"`
	Live        bool   `json:"live"`
	Pending     int64  `json:"pending"`
	IdleMS      int64  `json:"idle_ms"`
	LastTickMS  int64  `json:"last_tick_ms,omitempty"` // ms since its last tick
	Stuck       int64  `json:"stuck_steps,omitempty"`  // steps and handlers that run on there after their timeout, as of that tick
}
