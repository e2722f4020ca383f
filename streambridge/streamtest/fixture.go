// Package streamtest is the conformance suite of a streambridge.Stream and its Upkeep: the fake and the real thing
// run the same tests, so that what is proved on one holds on the other.
//
//	func TestConformance(t *testing.T) { streamtest.Run(t, newFixture) }
package streamtest

import (
	"testing"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Stream is what is under test.
type Stream interface {
	streambridge.Stream
	streambridge.Upkeep
}

// Fixture is one group on one stream that a test has for itself, seen from outside: by producers, by operators with a
// redis-cli, by foreigners that do harm, and by the state store that shares the group's keys. Its methods fail the
// test when they cannot do what they are asked.
type Fixture interface {
	// Names of the group; Consumer is empty.
	Names() messages.Names
	// New makes an unbound stream on the group's server. The fixture closes it (io.Closer) when the test ends.
	New() Stream
	// Pass makes d pass for everything the server keeps: entries are idle for longer, liveness keys run out, what is
	// due comes due, the pulse is older. No real time needs to pass.
	Pass(d time.Duration)
	// Kill ends a node as kill -9 does and lets its lease run out: its liveness is gone, its entries have been idle for
	// a lease. The stream that it was opened on is not used again.
	Kill(node messages.Node)

	// Add appends an entry to the public stream as any producer may, and returns its id.
	Add(fields ...messages.Pair) string
	// Delete removes an entry's body (XDEL) and leaves the pending lists alone.
	Delete(ref messages.Ref)
	// Trim keeps the newest n entries of the public stream (XTRIM MAXLEN) and leaves the pending lists alone.
	Trim(n int)
	// Group makes another group on the public stream, at its beginning, and returns a function that reads all it has not
	// been given and acknowledges it.
	Group(name string) (readAndAck func())
	// DropGroup destroys the group on the public stream (XGROUP DESTROY); keys of the group stay.
	DropGroup()
	// Flush empties the whole server.
	Flush()
	// Memory lets the server seem to use that share of its memory.
	Memory(share float64)

	// Inbox is the key of the group's inbox, as Ref.Stream names it.
	Inbox() string
	// Len is how many entries a stream holds.
	Len(stream string) int
	// Pending lists what the group has not acknowledged of a stream, in order of ids.
	Pending(stream string) []Pending
	// Consumers are the names the group knows on the public stream.
	Consumers() []string

	// Begin records that node runs the unit, as a state store's Begin does: owner, fence + 1, RUNNING.
	Begin(node messages.Node, taskID, unit string)
	// End records that the unit has ended as SUCCEEDED and that nobody owns the task, as a state store's Commit does.
	End(taskID, unit string)
	// Retry records what a state store's Commit with OUTCOME_RETRY does: RETRYING, wake + 1, nobody owns the task, the
	// fields copied beside it, due after d.
	Retry(taskID, unit string, d time.Duration, fields []messages.Pair)
	// Park records what a state store's Commit with OUTCOME_PARKED does: WAITING, wake + 1, nobody owns the task, the fields
	// copied beside it, and an open wait: a timer that ends after d, or without an end where d is negative.
	Park(taskID, unit, wait string, d time.Duration, fields []messages.Pair)
	// Schedule records what a state store's Begin does with an entry for later: SCHEDULED, wake 1, the fields copied beside it,
	// due after d.
	Schedule(taskID, unit string, d time.Duration, fields []messages.Pair)
	// Delay records what a state store's Submit does with a task that is to join the public stream after d.
	Delay(taskID, unit string, d time.Duration, fields []messages.Pair)
	// Submitted is the id of the unit's entry as its submit marker has it, "" where there is none.
	Submitted(taskID, unit string) string
	// Queue puts fields on the waiting list of a task that somebody else owns, with the check in the due set a lease from
	// now, as a state store's Begin does.
	Queue(taskID string, fields []messages.Pair)
	// Cancel ends the unit as CANCELLED, as a state store's Cancel does: its node hears of it, nobody owns the task.
	Cancel(taskID, unit, reason string)
	// CancelLater makes the unit's cancellation due now, as the end of its parent does.
	CancelLater(taskID, unit string)
	// Forget removes all that is recorded of a task, as a foreigner's DEL does; the due set stays.
	Forget(taskID string)
	// Hold records that a unit which runs (Begin) has a slot of a limit for that entry, as a state store's Begin does.
	Hold(limit, taskID string, ref messages.Ref)
	// Line records that a unit waits in the line of a limit where so many may run, the fields copied beside its task, as a
	// state store's Begin does where there is no slot.
	Line(limit string, most int, taskID string, fields []messages.Pair)
	// Uncopy loses the copy of the entry beside a task.
	Uncopy(taskID string)
	// Held are the ids of the tasks with a slot of a limit, sorted.
	Held(limit string) []string
	// Unit reads what is recorded of a unit.
	Unit(taskID, unit string) Unit
}

// Pending is one row of a pending list.
type Pending struct {
	ID, Consumer string
	Idle         time.Duration
	Deliveries   int64
}

// Unit is what is recorded of a unit and its task; zero where there is no record.
type Unit struct {
	State         messages.State
	Owner         string // incarnation
	Fence         uint64 // of the task
	Interruptions int64
	Deaths        int64
	Failures      int64
	Reason        string   // Reason name of a FAILED unit
	Waiting       int      // entries on the task's waiting list
	Waits         []string // names of its open waits
	Steps         []string // names of its checkpoints
	Copied        bool     // a copy of the entry's fields stands beside the task
}

// Lease is the lease of every node that the suite opens. It is long, so that a slow machine changes nothing: time
// passes by Fixture.Pass alone.
const Lease = time.Hour

// Run runs the suite. Each test gets a fixture of its own.
func Run(t *testing.T, fixture func(t *testing.T) Fixture) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(&world{T: t, Fixture: fixture(t)}) })
	}
}
