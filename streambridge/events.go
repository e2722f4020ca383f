package streambridge

import (
	"time"

	"github.com/weir-run/weir/messages"
)

// Event is something in the life of entries, of the group or of the bridge that a host may want to know. It is one of the
// structs in this file; a switch over its type tells which.
type Event interface {
	// Name is stable and fit for a log line or a metric's label: "entry_buried".
	Name() string
}

// EntryBuried says that an entry became a dead letter, and its acknowledgement with it.
type EntryBuried struct {
	messages.Ref
	// TaskID, Unit and Type as far as they could be read; empty for one that the reaper buried.
	TaskID, Unit, Type string
	// Reason is unspecified for one that the reaper buried: its dead letter says it.
	Reason     messages.Reason
	Detail     string
	Deliveries int64
}

// EntryMoved says that an entry went to the stream of its agent type, which this node does not run.
type EntryMoved struct {
	messages.Ref
	TaskID, Type string
}

// MessageRefused says that an entry brought a message which its task did not take: it came too late, twice, or for nobody.
// The entry is acknowledged all the same; where the mailbox was full, or none, a dead letter keeps it.
type MessageRefused struct {
	messages.Ref
	TaskID string
	// Message is the name of the message, MessageID the producer's id for it.
	Message, MessageID string
	// Why is any receipt but Taken and NotPending.
	Why messages.Receipt
	// Detail says it in a sentence.
	Detail string
}

// EntryClaimed says that an entry of a dead node is ours now.
type EntryClaimed struct {
	messages.Ref
	TaskID, Unit, Type string
	Deliveries         int64
}

// EntryAdopted says that an entry which was pending with us, and which the window did not know, was found by the sweep: a
// reply got lost, or its agent had dropped it.
type EntryAdopted struct {
	messages.Ref
	TaskID, Unit, Type string
	Deliveries         int64
}

// EntryGone says that the body of an entry that we hold was trimmed or deleted by somebody else. It was rebuilt into the
// inbox from its copy, or became a dead letter.
type EntryGone struct {
	messages.Ref
	TaskID, Unit, Type string
}

// LeaseLost says that an entry which we held is no longer ours. Running says that an actor was at work on it; it was told
// to stop.
type LeaseLost struct {
	messages.Ref
	TaskID, Unit, Type string
	Running            bool
	// Silent says that we gave it up ourselves: no beat had got through for a whole lease.
	Silent bool
}

// GroupLost says that stream or group had vanished and were made again. Entries and state may be gone.
type GroupLost struct{ Err error }

// Usurped says that another incarnation took over this consumer name. The bridge has stopped: see Bridge.Failed.
type Usurped struct{}

// TypeUnserved says that entries of an agent type wait and no live node runs it.
type TypeUnserved struct{ Type string }

// TypeServed ends a TypeUnserved.
type TypeServed struct{ Type string }

// StreamMissed says that somebody else trimmed entries which nobody in the group had read.
type StreamMissed struct{ Count int64 }

// ReclaimCalm says that claims wait (On), or go on: after a silence of the whole group every owner counts as alive for one
// more lease.
type ReclaimCalm struct{ On bool }

// Loop names a part of the bridge that talks to the server on its own.
type Loop string

// The loops of a bridge.
const (
	LoopRead Loop = "read"
	LoopBeat Loop = "beat"
	LoopTick Loop = "tick"
	LoopAck  Loop = "ack"
	LoopBury Loop = "bury"
	LoopMail Loop = "mail"
)

// LoopFailing says that a loop's calls fail. It comes once; the loop goes on trying.
type LoopFailing struct {
	Loop Loop
	Err  error
}

// LoopRecovered ends a LoopFailing.
type LoopRecovered struct {
	Loop Loop
	// After is how long it had failed.
	After time.Duration
}

// Broken says that the bridge has given up for a reason of its own, as a panic in the window is. See Bridge.Failed.
type Broken struct{ Err error }

// Name of the event.
func (EntryBuried) Name() string { return "entry_buried" }

// Name of the event.
func (EntryMoved) Name() string { return "entry_moved" }

// Name of the event.
func (MessageRefused) Name() string { return "message_refused" }

// Name of the event.
func (EntryClaimed) Name() string { return "entry_claimed" }

// Name of the event.
func (EntryAdopted) Name() string { return "entry_adopted" }

// Name of the event.
func (EntryGone) Name() string { return "entry_gone" }

// Name of the event.
func (LeaseLost) Name() string { return "lease_lost" }

// Name of the event.
func (GroupLost) Name() string { return "group_lost" }

// Name of the event.
func (Usurped) Name() string { return "usurped" }

// Name of the event.
func (TypeUnserved) Name() string { return "type_unserved" }

// Name of the event.
func (TypeServed) Name() string { return "type_served" }

// Name of the event.
func (StreamMissed) Name() string { return "stream_missed" }

// Name of the event.
func (ReclaimCalm) Name() string { return "reclaim_calm" }

// Name of the event: "read_failing", "beat_failing" and so on.
func (e LoopFailing) Name() string { return string(e.Loop) + "_failing" }

// Name of the event: "read_recovered", "beat_recovered" and so on.
func (e LoopRecovered) Name() string { return string(e.Loop) + "_recovered" }

// Name of the event.
func (Broken) Name() string { return "broken" }
