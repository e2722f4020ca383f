package actors

import (
	"context"
	"time"

	"github.com/weir-run/weir/messages"
)

// Names says which group of which stream a client or a runtime belongs to.
type Names = messages.Names

// Fence is what every write of an activation needs: a number that grows with each Begin, the incarnation of the node and
// the activation within it. A number alone would repeat after a server lost data; all three do not.
type Fence struct {
	Number      uint64
	Incarnation string
	Activation  uint64
}

// Ledger is a unit's charged and free attempts by class.
type Ledger struct {
	Failures      int64 `json:"failures"`
	Crashes       int64 `json:"crashes"`
	Timeouts      int64 `json:"timeouts"`
	Deaths        int64 `json:"deaths"`
	Blamed        int64 `json:"blamed"`
	Interruptions int64 `json:"interruptions"` // free
	Waits         int64 `json:"waits"`         // free
	// Classes are those of the failures and timeouts that belong to a class of RetryIf.
	Classes ErrorClasses `json:"classes,omitempty"`
}

// Attempt is the number of the attempt that runs now: the charged ones so far, plus one.
func (l Ledger) Attempt() int64 { return 1 + l.Failures + l.Crashes + l.Timeouts + l.Deaths }

// BeginRequest asks to run a unit.
type BeginRequest struct {
	Task *messages.Task
	// Entry is the entry in hand: it must be pending with Consumer.
	Entry       messages.Ref
	Deliveries  int64
	Wake        uint64
	Consumer    string
	Incarnation string
	Activation  uint64
	// Crash is the text of the panic that ended this node's activation before; it is charged to crashes, once.
	Crash string
	// MaxDeliveries is how often an entry may be handed out without ever being begun; see Condemned.
	MaxDeliveries int64
	// Due lets a unit that was never begun wait until then, by the store's clock: it becomes SCHEDULED and the answer is
	// Elsewhere. The zero time, one that is over and one more than MaxDelay ahead mean now.
	Due time.Time
	// Trial says that a suspect, a unit under which nodes have died, may go on trial now; see Later. The node that asks
	// for it begins nothing else at that moment, so that its death would have one culprit.
	Trial bool
}

// MaxDelay is how far ahead a task can be submitted for, and from where on the due time of a producer's entry is taken for
// something else than a time: ten years.
const MaxDelay = 10 * 365 * 24 * time.Hour

// Answer is what a store says to Begin.
type Answer int

const (
	// Run: the fence is ours, run it.
	Run Answer = iota + 1
	// AlreadyDone: the unit has ended; acknowledge, run nothing.
	AlreadyDone
	// Elsewhere: the unit is RETRYING, WAITING or SCHEDULED and this entry is not what continues it; acknowledge.
	Elsewhere
	// Queued: another live node owns the task. The entry waits with the task now and is acknowledged already.
	Queued
	// CancelledBefore: the task was cancelled; acknowledge.
	CancelledBefore
	// Conflict: the same identity was used for other work; a dead letter, the unit's record stays.
	Conflict
	// NotOurs: the entry is not pending with us any more, or our node's liveness key is gone. Drop it.
	NotOurs
	// Later: the unit is a suspect, and the request did not ask for its trial, or another one is on trial on this node. Its
	// entry stays in the window; ask again, after Wait if that is not 0.
	Later
	// Condemned: Reason and Detail say why it must not run. The fence is ours: commit Rejected with them.
	Condemned
	// Unreadable: what stands under the task's key is no record of ours; Detail says what. A dead letter, nothing was written.
	Unreadable
)

// Begun is the answer to Begin.
type Begun struct {
	Answer  Answer
	Fence   Fence
	Ledger  Ledger
	Created time.Time // first Begin, by Redis's clock
	// Steps says that checkpoints exist: load them before the handler asks.
	Steps bool
	// Trial says that the unit runs on trial: alone among the suspects of its node.
	Trial bool
	// Wait is for Later: how long another trial, or whatever stands in the way, may still take. 0 when only BeginRequest.Trial
	// is missing.
	Wait   time.Duration
	Reason messages.Reason
	Detail string
}

// Checkpoint stores one step of a running unit.
type Checkpoint struct {
	TaskID, Unit string
	Fence        Fence
	Step         messages.Step
}

// Commit ends an activation.
type Commit struct {
	TaskID, Unit, Type string
	Fence              Fence
	Entry              messages.Ref
	Outcome            messages.Outcome
	// Charge is the class a Retry or a Rejected is booked to; CHARGE_WAIT and CHARGE_INTERRUPTION are free.
	Charge messages.Charge
	// Classes replaces Ledger.Classes where it is not empty; it goes with Charge.
	Classes     ErrorClasses
	ContentType string
	Result      []byte
	// Error is the text of a Retry or a rejection.
	Error string
	// After is when a Retry is due, from now.
	After time.Duration
	// Reason and Detail make a FAILED unit's dead letter; they go with Rejected.
	Reason messages.Reason
	Detail string
	// TTL is how long the record of an ended unit is kept.
	TTL time.Duration
	// DeadTTL is how long its dead letter is kept.
	DeadTTL time.Duration
	// Index adds a SUCCEEDED unit to the index by state; the others always are.
	Index bool
	// Waits are what a Parked unit waits for, or a Retry beside its due time. The first commit that names a wait writes its
	// deadline; later ones leave it alone.
	Waits []Wait
	// Spawns are child tasks to start; one whose name has a checkpoint was started before and is left alone.
	Spawns []Spawning
	// Emits are entries for other streams. They go with COMPLETED only.
	Emits []Emission
	// Doubt names the step whose effect is unknown; it goes with Parked, and a person settles it.
	Doubt string
}

// Wait is something a unit waits for. Its name is one of the unit's steps and waits; that there is a checkpoint of that
// name says that it is over and what it chose.
type Wait struct {
	Name string
	Kind WaitKind
	// For is how long, from when it is first written, by the server's clock. Negative: without an end.
	For time.Duration
	// Slots are the messages of WaitFirst and WaitAll. None of them: a timer, which its end completes.
	Slots []Slot
	// Closes says that the end of For closes the slots: a message that comes later is refused. One field holds answer or
	// timeout; it is what Await has, whose message nobody else waits for.
	Closes bool
	// Children are the names of the spawns that WaitJoin waits for: for all of them, or for Need where that is not 0.
	Children []string
	Need     int
	// KeepGoing lets children fail: without it the first failure ends the wait.
	KeepGoing bool
}

// WaitKind is what ends a wait before its time.
type WaitKind int

const (
	// WaitFirst ends with the first message of its slots.
	WaitFirst WaitKind = iota + 1
	// WaitAll ends when there is a message in every slot.
	WaitAll
	// WaitJoin ends when its children have.
	WaitJoin
)

// Slot is the place of a message to a task: the n-th of its name, from 1. Names belong to the task, not to a unit.
type Slot struct {
	Message string
	Nth     int
}

// Spawning is a child task on its way: an entry for the group's own inbox whose end is told to its parent.
type Spawning struct {
	// Name is one of the unit's steps and waits.
	Name string
	// Task is the child; MaxLen and TTL of it mean nothing here.
	Task Submission
}

// Emission is an entry for another public stream, which shares the hash tag of ours on a cluster. A StateStore that cannot
// write to every stream has a method CanEmit(stream string) error besides, without I/O: a handler's Emit asks it.
type Emission struct {
	Stream string
	// Task as for Submit; MaxLen means nothing here: what was done is not undone by a full stream.
	Task Submission
}

// StateStore keeps what tasks have done: the hot path. Adapters: redisstate, memstate. Every write is one atomic
// script and may be repeated after a lost reply. Methods may be called from any number of goroutines; those of running
// agents share pipelines. A method returns within seconds also when its server does not answer: callers repeat it.
type StateStore interface {
	// Bind names the group this store serves; no I/O. It refuses names that cannot be keys, and other names than before.
	Bind(names Names) error
	// Begin takes the fence of a unit, or says why not. Repeated by the same activation it gives the same answer and
	// charges nothing. An error means that the answer is unknown: repeat it.
	Begin(ctx context.Context, req BeginRequest) (Begun, error)
	// Steps loads the unit's checkpoints. A damaged one is an error that wraps messages.ErrStep.
	Steps(ctx context.Context, taskID, unit string) ([]messages.Step, error)
	// Checkpoint stores a step. ErrLeaseLost: the fence is old and nothing was written.
	Checkpoint(ctx context.Context, cp Checkpoint) error
	// Commit writes outcome, result and state in one script, with the dead letter of a FAILED unit and the due time of
	// a RETRYING one (whose fields it copies, so that the entry may be acknowledged). Repeated, it succeeds again.
	// ErrLeaseLost: the fence is old and nothing was written. ErrResume: a Parked unit need not wait, one of its Waits is
	// over; the unit is still RUNNING under the same fence, and its handler is to be called again.
	Commit(ctx context.Context, c Commit) error
	// Flush waits until what was handed over has been sent, and stops the store's goroutines. Idempotent.
	Close() error
}

// Submission is a task on its way into the stream.
type Submission struct {
	// ID is the task id; never empty here.
	ID string
	// Unit is the entry's own `step`, usually empty.
	Unit string
	// Work is messages.WorkHash of type and payload.
	Work string
	// Fields are the entry's fields in order.
	Fields []messages.Pair
	// MaxLen refuses the submission when the stream already has that many entries; 0 for no limit. A delayed one is refused
	// when that many wait for their time, however full the stream is, and joins it however full it is then.
	MaxLen int64
	// TTL is how long the marker that makes Submit idempotent lives, from when the entry joins the stream.
	TTL time.Duration
	// Delay lets it join the stream that much later, At not before then, both by the server's clock. Not both.
	Delay time.Duration
	At    time.Time
	// Unique makes the submission a known one while another unit of this stream has taken the same key: it keeps it for For
	// from its submission. Empty for none.
	Unique string
	For    time.Duration
}

// Submitted is the answer for one Submission.
type Submitted struct {
	// EntryID is the id of the entry, also for a known one; empty while it waits for its time.
	EntryID string
	// Due is when it joins the stream; the zero time for one that is there.
	Due time.Time
	// Known says that the id was submitted before with the same work, or that its unique key is taken: nothing was added.
	Known bool
	// ID and Unit are those of the unit that has taken the unique key, which the answer is about; empty otherwise.
	ID, Unit string
	// Err is ErrConflict, ErrBacklogFull, a *GateError or what the server said; nil otherwise.
	Err error
}

// Cancellation ends a task before its time.
type Cancellation struct {
	ID string
	// Unit is the part of the task that ends. Empty: all of it, whatever units it has.
	Unit string
	// Reason is for people: it is what the handler's context ends with, and what the task's record shows.
	Reason string
	// By says who asked for it; it stands in the timeline.
	By string
	// TTL is how long the record is kept. It is what answers the entry of a task that has not begun, so it should be as
	// long as an entry may wait. 0 means 7 days, negative for ever.
	TTL time.Duration
	// Type is for a task that nothing is known of, such as one that a producer's own XADD has added and nobody has begun:
	// it gets a record under this agent type, and its entry will not run. Empty: ErrNoTask.
	Type string
}

// CancelledUnit is a unit that a Cancellation has ended.
type CancelledUnit struct {
	Unit string
	// Was is the state that it had; PENDING or SCHEDULED where it had no record.
	Was messages.State
}

// Chunk is one piece that a running step published.
type Chunk struct {
	// Offset resumes after this chunk.
	Offset string
	// Attempt of the unit that published it: a higher one than before means that the text starts again.
	Attempt int
	Step    string
	Data    []byte
	// End says that the task ended: the last chunk, without data.
	End bool
}

// TaskRecord is all that is known of a task.
type TaskRecord struct {
	ID    string       `json:"id"`
	Owner string       `json:"owner,omitempty"`
	Fence uint64       `json:"fence"`
	Units []UnitRecord `json:"units"`
	Log   []LogLine    `json:"timeline,omitempty"`
	// Queued is how many of its entries wait for its owner.
	Queued int64 `json:"queued,omitempty"`
	// Unread is how many messages to it no wait has taken yet.
	Unread int64 `json:"unread,omitempty"`
	// TTL until it is forgotten; 0 while it has not ended.
	TTL time.Duration `json:"ttl,omitempty"`
	// EntryID of the submission; empty when only a producer's XADD made it.
	EntryID string `json:"entry_id,omitempty"`
}

// UnitRecord is the record of one unit.
type UnitRecord struct {
	Unit   string         `json:"unit,omitempty"`
	State  messages.State `json:"-"`
	Type   string         `json:"type"`
	Ledger Ledger         `json:"attempts"`
	// Created is the submission's time, else the first begin's: a producer's own XADD leaves no other trace.
	Created     time.Time       `json:"created,omitzero"`
	Began       time.Time       `json:"began,omitzero"`
	Updated     time.Time       `json:"updated,omitzero"`
	ContentType string          `json:"content_type,omitempty"`
	Result      []byte          `json:"-"`
	Error       string          `json:"error,omitempty"`
	Reason      messages.Reason `json:"-"`
	Steps       []messages.Step `json:"-"`
	// Doubt is the step whose effect is unknown: the unit is WAITING for a person to settle it (StateOps.Resolve).
	Doubt string `json:"doubt,omitempty"`
	// Due is when a RETRYING unit runs again, or a SCHEDULED one for the first time.
	Due time.Time `json:"due,omitzero"`
	// Waits are what it waits for now, in the order of their names.
	Waits []WaitRecord `json:"waiting_for,omitempty"`
}

// LogLine is a line of a task's timeline.
type LogLine struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Detail string    `json:"detail,omitempty"`
}

// StateDesk is what clients and operators need of the state: seldom called, never by a running agent's hot path.
type StateDesk interface {
	// Submit adds tasks to the public stream, in order and idempotently by id, in pipelines. The error is for the whole
	// call; each submission has its own in its answer. After a lost reply repeat it: the marker is written after the
	// entry in the same script. Delayed ones are kept by the server and join the stream by a tick of any node of any of the
	// stream's groups, never early by the server's clock.
	Submit(ctx context.Context, tasks []Submission) ([]Submitted, error)
	// Task reads all of a task. ErrNoTask when there is no record; one that was submitted and not yet begun has a
	// single PENDING unit, or a SCHEDULED one with Due while it waits for its time.
	Task(ctx context.Context, id string) (*TaskRecord, error)
	// Unit reads one unit without its steps: what Result polls. ErrNoTask as above.
	Unit(ctx context.Context, id, unit string) (*UnitRecord, error)
	// Cancel ends what has not ended of a task, or one unit of it, at once and for good: whatever it was doing, its state is
	// CANCELLED, no write of whoever runs it is accepted any more, and no retry brings it back. Its runner hears of it
	// within a tick. The answer names the units that it ended, in order.
	//
	// *EndedError (ErrEnded): all of it had ended; that is also what a call that is repeated after a lost reply finds.
	// ErrNoTask as for Task.
	Cancel(ctx context.Context, c Cancellation) ([]CancelledUnit, error)
	// Send gives a task a message. A nil error means that it is recorded. ErrAnswered: it was there before, another of its
	// name came first, or the time of the wait for it was over. ErrEnded: the task has ended; its timeline notes the attempt.
	// ErrMailboxFull, ErrInvalid. A message for a task that nothing is known of waits for it. After a lost reply repeat it:
	// Mailed tells whether the message that was there is this one.
	Send(ctx context.Context, m Mailing) (Mailed, error)
	// Publish appends a chunk that followers see; it is not fenced and is kept for an hour after the last one (at most
	// the newest 10,000).
	Publish(ctx context.Context, id string, c Chunk) error
	// Follow reads chunks after the offset, waiting up to block for the first. Empty without error when none came.
	Follow(ctx context.Context, id, after string, block time.Duration) ([]Chunk, error)
}

// State is a whole state adapter: redisstate and memstate are.
type State interface {
	StateStore
	StateDesk
	StateOps
	QuotaStore
}
