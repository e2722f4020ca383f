package statetest

import (
	"testing"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Fixture is one fresh, empty group and a State bound to it. The maker closes the State by t.Cleanup.
type Fixture struct {
	// State is bound to Names; nothing was called on it yet.
	State actors.State
	// Other is another State on the same group, as another process would have it; it may be State itself where the
	// adapter has no connection of its own.
	Other actors.State
	// Names are fresh for each Fixture, with the default field names.
	Names actors.Names
	// World is the group around the State.
	World World
}

// World stands for the stream adapter, the heartbeat, the clock of the nodes and the operator: it touches the group
// around a State directly. Its methods fail the test when they cannot do what they say.
//
// Names inside the world are those of the key layout (messages.Keys, messages/layout.go): a store in memory answers
// with the same members and control fields as the one in Redis.
type World interface {
	// Deliver appends an entry to the public stream (or the inbox) and hands it to consumer, with whom it is pending
	// then, delivered once.
	Deliver(t testing.TB, inbox bool, consumer string, fields []messages.Pair) messages.Ref
	// Claim makes a pending entry pending with another consumer, as a reaper does.
	Claim(t testing.TB, ref messages.Ref, consumer string)
	// TakeInbox hands every undelivered entry of the inbox to consumer, oldest first, and returns them with their fields.
	TakeInbox(t testing.TB, consumer string) []Delivery
	// Ack acknowledges an entry.
	Ack(t testing.TB, ref messages.Ref)
	// Pending says whether the entry is delivered and not acknowledged.
	Pending(t testing.TB, ref messages.Ref) bool
	// Trim removes the entry's body, as a foreign XADD MAXLEN does; it stays pending.
	Trim(t testing.TB, ref messages.Ref)
	// Save copies the entry's fields beside its task, as its first heartbeat does.
	Save(t testing.TB, ref messages.Ref, taskID, unit string)
	// Public lists what the public stream holds, oldest first.
	Public(t testing.TB) []Delivery

	// Live sets an incarnation's liveness key for a minute; false removes it: the node is gone.
	Live(t testing.TB, incarnation string, live bool)
	// Tick writes the last tick of an incarnation into what outlives it.
	Tick(t testing.TB, incarnation string, at time.Time)
	// Gate shuts the group's gate, as a tick does: so many entries wait for their delivery where so many are allowed, come
	// back after hint. A limit of 0 opens it.
	Gate(t testing.TB, lag, limit int, hint time.Duration)
	// Calm makes every owner count as alive until then (the zero time ends it).
	Calm(t testing.TB, until time.Time)
	// EndTrial lets the time of the trial that runs on an incarnation be over.
	EndTrial(t testing.TB, incarnation string)
	// Now is the store's clock.
	Now(t testing.TB) time.Time
	// Wipe empties the group and the stream, as FLUSHALL does.
	Wipe(t testing.TB)

	// Due lists what happens at a time: "r:<escaped id>:<escaped unit>" for a retry, "w:<escaped id>:<escaped unit>:<escaped
	// name>" for the end of a wait's time, "q:<escaped id>" for the check of a waiting list.
	Due(t testing.TB) map[string]time.Time
	// Delayed lists what waits to join the public stream: "<escaped id>:<escaped unit>".
	Delayed(t testing.TB) map[string]time.Time
	// Promote moves a RETRYING or SCHEDULED unit's copied entry to the inbox with its control fields, whether it is due or not, as the
	// tick does: the unit keeps its state.
	Promote(t testing.TB, taskID, unit string)
	// Pass makes d pass for all that is due at a time, and for nothing else.
	Pass(t testing.TB, d time.Duration)
	// Turn is one turn of a node's clock, as its tick makes it: due retries go to the inbox, waits whose time is over end.
	Turn(t testing.TB)
	// Release lets the node of an incarnation and a consumer's name leave in good order, with one entry of a unit in its window.
	Release(t testing.TB, incarnation, consumer string, ref messages.Ref, taskID, unit string)
	// Bury lets a node set an entry aside that is pending with it: a dead letter, and with fail the end of its unit.
	Bury(t testing.TB, incarnation, consumer string, ref messages.Ref, taskID, unit, agentType string, reason messages.Reason, fail bool)
	// Settle ends a dead letter as an operator does: retry, complete or drop. The error is the answer of one that may not be.
	Settle(t testing.TB, letterID, how string) error
	// Uncopy removes the copy of a unit's entry, as nobody should.
	Uncopy(t testing.TB, taskID, unit string)
	// Standing lists what stands of a task, by what its key ends with (messages/layout.go: "" for the record, ":mail",
	// ":waits", …), with its time to live; 0 for what has none. A store in memory lists the record, the mail and the waits.
	Standing(t testing.TB, taskID string) map[string]time.Duration
	// Dead lists the dead letters, oldest first.
	Dead(t testing.TB) []*messages.DeadLetter
	// Index lists the members of the index of a state and type: "<escaped id>:<escaped unit>".
	Index(t testing.TB, state messages.State, agentType string) []string
	// Count reads a running total: succeeded, failed, cancelled, dead.
	Count(t testing.TB, name string) int64
}

// Delivery is an entry with its fields.
type Delivery struct {
	Ref    messages.Ref
	Fields []messages.Pair
}

// Field returns the value of the first field called name, "" when there is none.
func (d Delivery) Field(name string) string {
	for _, f := range d.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}
