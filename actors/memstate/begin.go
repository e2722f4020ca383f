package memstate

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// Begin takes the fence of a unit, or says why not; see actors.StateStore.
func (s *State) Begin(ctx context.Context, req actors.BeginRequest) (begun actors.Begun, err error) {
	work := messages.WorkHash(req.Task.GetType(), req.Task.GetPayload())
	req.Crash = clip(req.Crash)
	err = s.script(ctx, "begin", func(tx *memstream.Tx) error {
		b := beginner{tx: tx, req: req, work: work}
		begun = b.begin()
		return nil
	})
	return begun, err
}

// beginner is one run of the script.
type beginner struct {
	tx   *memstream.Tx
	req  actors.BeginRequest
	work string
	task *memstream.Task
	unit *memstream.Unit
}

func (b *beginner) begin() actors.Begun {
	if !b.tx.Live(b.req.Incarnation) {
		return actors.Begun{Answer: actors.NotOurs}
	}
	if b.task = b.tx.Task(b.req.Task.GetTaskId()); b.task != nil {
		b.unit = b.task.Units[b.req.Task.GetUnit()]
	}
	if !b.tx.PendingWith(b.req.Entry, b.req.Consumer) {
		b.giveUp()
		return actors.Begun{Answer: actors.NotOurs}
	}
	if answer := b.settled(); answer != 0 {
		// The entry in hand may be one that waited: with nobody at work, the next one's turn has come.
		if t := b.task; t != nil && len(t.Waiting) > 0 && t.Owner != b.req.Incarnation && !b.tx.OwnerLive(t) {
			b.tx.Disown(t)
		}
		return actors.Begun{Answer: answer}
	}
	if due := b.due(); b.unit == nil && due > b.tx.NowMS {
		return b.schedule(due)
	}
	if b.task != nil && b.task.Owner != b.req.Incarnation && b.tx.OwnerLive(b.task) {
		return b.queue()
	}
	if b.unit == nil {
		return b.fresh()
	}
	return b.again()
}

// giveUp ends our ownership where the entry is not ours any more. Nobody asks while a unit of the task is at work here; so
// what the record calls running here is not: its actor crashed, or the answer to its Begin was lost. Who has the entry now
// would wait for us as long as we live.
func (b *beginner) giveUp() {
	u, me := b.unit, b.req.Incarnation
	if u == nil || u.State != messages.State_STATE_RUNNING || u.Run.Incarnation != me || b.task.Owner != me {
		return
	}
	if u.Reason == 0 { // a sentence stands
		u.Interruptions++
		b.tx.Become(b.task, u, messages.State_STATE_PENDING, false)
	}
	b.tx.Disown(b.task)
}

// settled answers for a unit that this entry cannot run; 0 lets it go on.
func (b *beginner) settled() actors.Answer {
	var wake uint64
	if u := b.unit; u != nil {
		wake = u.Wake
		if u.Work != "" && u.Work != b.work {
			return actors.Conflict
		}
		switch u.State {
		case messages.State_STATE_SUCCEEDED, messages.State_STATE_FAILED:
			return actors.AlreadyDone
		case messages.State_STATE_CANCELLED:
			return actors.CancelledBefore
		default: // not ended
		}
	}
	if b.req.Wake != wake {
		return actors.Elsewhere // another entry continues it
	}
	return 0
}

// due is the time before which the unit must not run, Unix ms; 0 for none.
func (b *beginner) due() int64 {
	if b.req.Due.IsZero() {
		return 0
	}
	if ms := ceilMS(b.req.Due); ms <= b.tx.NowMS+actors.MaxDelay.Milliseconds() {
		return ms
	}
	return 0
}

// schedule lets a copy of the entry wait for its time, under a wake number that only the promoted one has. Nobody owns it
// meanwhile.
func (b *beginner) schedule(due int64) actors.Begun {
	id, unit := b.req.Task.GetTaskId(), b.req.Task.GetUnit()
	fields, origin, ok := b.tx.Body(b.req.Entry)
	if !ok {
		return actors.Begun{Answer: actors.Later, Wait: time.Second} // as in queue
	}
	t := b.tx.MakeTask(id)
	b.tx.Expire(t, 0)
	u := &memstream.Unit{Name: unit, Type: b.req.Task.GetType(), Work: b.work, CreatedMS: b.tx.NowMS, Wake: 1}
	t.Units[unit] = u
	b.tx.Keep(b.req.Entry, id, unit, memstream.WithControl(fields, id, origin, u.Wake), origin)
	b.tx.DueAt(id, unit, due)
	b.tx.Become(t, u, messages.State_STATE_SCHEDULED, false)
	return actors.Begun{Answer: actors.Elsewhere}
}

// queue lets the entry wait with the task for its live owner.
func (b *beginner) queue() actors.Begun {
	id := b.req.Task.GetTaskId()
	fields, origin, ok := b.tx.Body(b.req.Entry)
	if !ok {
		// It cannot wait; the next heartbeat rebuilds it or sets it aside.
		return actors.Begun{Answer: actors.Later, Wait: time.Second}
	}
	b.tx.Wait(b.task, memstream.WithControl(fields, id, origin, b.req.Wake))
	b.tx.Settle(b.req.Entry)
	return actors.Begun{Answer: actors.Queued}
}

// fresh begins a unit for the first time.
func (b *beginner) fresh() actors.Begun {
	b.task = b.tx.MakeTask(b.req.Task.GetTaskId())
	b.unit = &memstream.Unit{Name: b.req.Task.GetUnit(), Type: b.req.Task.GetType(), Work: b.work, CreatedMS: b.tx.NowMS}
	b.task.Units[b.unit.Name] = b.unit
	if b.req.Crash != "" {
		b.crash()
	}
	// In a task of which something has begun, it waited for its turn while its nodes died: that proves nothing.
	if n := b.req.MaxDeliveries; n > 0 && b.req.Deliveries > n && b.task.Fence == 0 {
		b.condemn(messages.Reason_REASON_NEVER_BEGUN, fmt.Sprintf("delivered %d times and never begun", b.req.Deliveries))
	}
	return b.run()
}

// again begins a unit that was begun before.
func (b *beginner) again() actors.Begun {
	u := b.unit
	running := u.State == messages.State_STATE_RUNNING
	if u.Run == b.me() && running {
		return b.answer() // its reply was lost
	}
	charged := false
	condemned := running && u.Reason != 0 // a crash does not change a sentence
	if b.req.Crash != "" && u.Run != b.me() && !condemned {
		b.crash()
		charged = true
	}
	switch {
	case u.State == messages.State_STATE_SCHEDULED:
		u.CreatedMS = b.tx.NowMS // it waited: this is its first begin
	case !running:
		u.Reason = 0
	case u.Run.Incarnation != b.req.Incarnation:
		b.death()
		charged = true
	}
	if later, wait := b.suspect(); later {
		if charged {
			// Charged once: it is PENDING now, and asking again finds nobody's death. What only waits owns nothing.
			u.Run = b.me()
			b.tx.Become(b.task, u, messages.State_STATE_PENDING, false)
			b.tx.Disown(b.task)
		}
		return actors.Begun{Answer: actors.Later, Wait: wait}
	}
	return b.run()
}

func (b *beginner) me() memstream.Run {
	return memstream.Run{Incarnation: b.req.Incarnation, Activation: b.req.Activation}
}

// crash charges the panic that ended this node's activation before.
func (b *beginner) crash() {
	b.unit.Crashes++
	b.unit.Error = b.req.Crash
	b.tx.Note(b.task, "crashed", cut(b.req.Crash))
}

// run takes the fence.
func (b *beginner) run() actors.Begun {
	t, u := b.task, b.unit
	b.tx.Expire(t, 0)
	t.Owner = b.req.Incarnation
	t.Fence++
	u.FenceAt, u.Run, u.BeganMS = t.Fence, b.me(), b.tx.NowMS
	b.tx.Become(t, u, messages.State_STATE_RUNNING, false)
	return b.answer()
}

// answer says what the record says.
func (b *beginner) answer() actors.Begun {
	u := b.unit
	begun := actors.Begun{
		Answer:  actors.Run,
		Fence:   actors.Fence{Number: u.FenceAt, Incarnation: u.Run.Incarnation, Activation: u.Run.Activation},
		Ledger:  ledger(u),
		Created: time.UnixMilli(u.CreatedMS),
		Steps:   len(u.Steps) > 0,
	}
	if u.Reason != 0 {
		begun.Answer, begun.Reason, begun.Detail = actors.Condemned, u.Reason, u.Error
		return begun
	}
	life := b.tx.Life(b.req.Incarnation)
	begun.Trial = life != nil && life.Trial != "" && life.Trial == memstream.Member(b.task.ID, u.Name)
	return begun
}

func ledger(u *memstream.Unit) actors.Ledger {
	return actors.Ledger{
		Failures: u.Failures, Crashes: u.Crashes, Timeouts: u.Timeouts, Deaths: u.Deaths, Blamed: u.Blamed,
		Interruptions: u.Interruptions, Waits: u.Waits, Classes: actors.ErrorClasses(u.Classes),
	}
}
