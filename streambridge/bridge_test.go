package streambridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

func TestEntriesAreAcknowledgedOnceDone(t *testing.T) {
	r := start(t, ack, nil)
	r.add(ids(1000)...)
	r.eventually(r.empty, "all acknowledged")
	assert.Len(t, r.acked, 1000)
	assert.Len(t, r.assigns(), 1000)
	s := r.bridge.Stats()
	assert.EqualValues(t, 1000, s.Acked)
	assert.EqualValues(t, DefaultInFlight, s.Credits, "credits return to full")
	assert.EqualValues(t, DefaultInFlightBytes, s.CreditBytes)
	require.NoError(t, r.bridge.Health().Ready(time.Now()))
}

func TestNothingIsAcknowledgedBeforeDone(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a", "b")
	r.eventually(func() bool { return len(r.assigns()) == 2 }, "assigned")
	a := r.assigns()[0]
	assert.Equal(t, "a", a.Task.TaskId)
	assert.EqualValues(t, 1, a.Entry.Deliveries)
	assert.Positive(t, a.Entry.Size)
	r.done(ack(a))
	r.eventually(func() bool { return r.bridge.Stats().Acked == 1 }, "acknowledged")
	r.with(func() { assert.Len(t, r.pending, 1) })
}

func TestOneTaskOneActorInOrder(t *testing.T) {
	r := start(t, nil, nil)
	for i := range 50 {
		r.addFields("task_id", "one", "type", "noop", "step", fmt.Sprint(i), "payload", "")
	}
	for i := range 50 {
		r.eventually(func() bool { return len(r.assigns()) == i+1 }, "assignment %d", i)
		a := r.assigns()[i]
		assert.Equal(t, fmt.Sprint(i), a.Task.Unit)
		r.done(ack(a))
	}
	r.eventually(r.empty, "all done")
}

func TestCreditsBoundWhatIsHeld(t *testing.T) {
	r := start(t, nil, func(c *Config) { c.InFlight = 10 })
	r.add(ids(100)...)
	for i := range 100 {
		r.eventually(func() bool { return len(r.assigns()) > i }, "assignment %d", i)
		r.done(ack(r.assigns()[i]))
	}
	r.eventually(r.empty, "all done")
	r.with(func() {
		assert.LessOrEqual(t, r.maxHeld, 11, "ten, and one because a read asks two streams")
		assert.Less(t, r.reads, 2000, "it does not ask without credits")
	})
}

func TestBytesBoundWhatIsHeld(t *testing.T) {
	r := start(t, nil, func(c *Config) { c.InFlightBytes = 10_000; c.ReadCount = 1 })
	for i := range 100 {
		r.addFields("task_id", fmt.Sprint(i), "type", "noop", "payload", strings.Repeat("x", 5000))
	}
	r.eventually(func() bool { return r.bridge.Stats().CreditBytes <= 0 }, "full")
	r.eventually(func() bool { return r.bridge.Health().Full }, "the reader waits")
	require.NoError(t, r.bridge.Health().Ready(time.Now()), "full is ready")
	assert.LessOrEqual(t, r.bridge.Stats().InFlight, 3)
	for i := range 100 {
		r.eventually(func() bool { return len(r.assigns()) > i }, "assignment %d", i)
		r.done(ack(r.assigns()[i]))
	}
	r.eventually(r.empty, "all done")
}

func TestBadEntriesAreBuriedAndNeighborsRun(t *testing.T) {
	r := start(t, ack, func(c *Config) { c.MaxPayload = 100 })
	r.add("good1")
	r.addFields("x", "y")
	r.addFields("task_id", "big", "type", "noop", "payload", strings.Repeat("x", 101))
	r.addFields("task_id", "attempt", "type", "noop", "attempt", "many")
	r.add("good2")
	r.eventually(r.empty, "all settled")
	assert.Len(t, r.acked, 2)
	require.Len(t, r.buried, 3)
	reasons := map[messages.Reason]int{}
	for _, b := range r.buried {
		reasons[b.Reason]++
		assert.NotEmpty(t, b.Detail)
		assert.False(t, b.Fail, "the record under its id may be another entry's")
	}
	assert.Equal(t, map[messages.Reason]int{messages.Reason_REASON_UNDECODABLE: 2, messages.Reason_REASON_TOO_LARGE: 1}, reasons)
	assert.Equal(t, 3, r.count("entry_buried"))
}

func TestADecoderThatPanicsCostsItsEntryOnly(t *testing.T) {
	r := start(t, ack, func(c *Config) {
		c.Decode = func(f []messages.Pair, from messages.Ref, o messages.DecodeOptions) (*messages.Task, uint64, error) {
			switch f[0].Value {
			case "panic":
				panic("no")
			case "nil":
				return nil, 0, nil
			case "plain":
				return nil, 0, errors.New("plain")
			}
			return messages.Decode(f, from, o)
		}
	})
	r.add("panic", "nil", "plain", "good")
	r.eventually(r.empty, "all settled")
	assert.Len(t, r.buried, 3)
	assert.Len(t, r.acked, 1)
	require.NoError(t, r.bridge.Err())
}

func TestAnEntryOfAnotherNodesAgentMoves(t *testing.T) {
	r := start(t, ack, nil)
	r.addFields("task_id", "a", "type", "refund/amend", "payload", "")
	r.addFields("task_id", "b", "type", "noop/any", "payload", "")
	r.eventually(r.empty, "all settled")
	assert.Len(t, r.moved["refund"], 1)
	assert.Len(t, r.acked, 1)
	assert.Equal(t, 1, r.count("entry_moved"))
}

func TestVerdicts(t *testing.T) {
	r := start(t, func(a *messages.Assign) *messages.Done {
		switch a.Task.TaskId {
		case "bury":
			return &messages.Done{
				TaskId: "bury", Entry: a.Entry, Verdict: messages.Verdict_VERDICT_BURY, Reason: messages.Reason_REASON_BAD_PAYLOAD, Detail: "why",
			}
		case "conflict":
			return &messages.Done{
				TaskId: "conflict", Entry: a.Entry, Verdict: messages.Verdict_VERDICT_BURY, Reason: messages.Reason_REASON_ID_CONFLICT,
			}
		case "moved":
			return verdict(a, messages.Verdict_VERDICT_MOVED)
		case "drop":
			return verdict(a, messages.Verdict_VERDICT_DROP)
		}
		return ack(a)
	}, nil)
	r.add("bury", "conflict", "moved", "drop", "ack")
	r.eventually(func() bool { s := r.bridge.Stats(); return s.Read == 5 && s.InFlight == 0 }, "all answered")
	r.with(func() {
		require.Len(t, r.buried, 2)
		for _, b := range r.buried {
			assert.Equal(t, b.TaskID == "bury", b.Fail, b.TaskID)
			assert.Equal(t, "noop", b.Type)
		}
		assert.Len(t, r.acked, 1)
		assert.Len(t, r.pending, 2, "what was dropped, and what a script would have acknowledged, is not acknowledged here")
	})
}

func TestADroppedEntryComesBackByTheSweep(t *testing.T) {
	var drops atomic.Int32
	r := start(t, func(a *messages.Assign) *messages.Done {
		if drops.Add(1) == 1 {
			return verdict(a, messages.Verdict_VERDICT_DROP)
		}
		return ack(a)
	}, nil)
	r.add("a")
	r.eventually(func() bool { return r.bridge.Stats().Dropped == 1 }, "dropped")
	r.with(func() { r.tick = r.straysAll })
	r.eventually(r.empty, "adopted and done")
	assert.EqualValues(t, 1, r.bridge.Stats().Adopted)
	assert.True(t, r.saw("entry_adopted"))
}

func TestSweepsDoNotAdmitWhatIsKnownOrJustSettled(t *testing.T) {
	r := start(t, ack, nil)
	r.with(func() { r.tick = r.straysAll })
	for range 20 {
		r.add(ids(100)...)
		r.eventually(r.empty, "all done")
	}
	assert.EqualValues(t, 2000, r.bridge.Stats().Assigned, "once each")
}

func TestOrphansAreClaimedThoughTheWindowIsFull(t *testing.T) {
	r := start(t, nil, func(c *Config) { c.InFlight = 8 })
	r.add(ids(30)...)
	r.eventually(func() bool { return r.bridge.Stats().Credits <= 0 }, "full")
	r.with(func() { r.orphans = append(r.orphans, r.entry("task_id", "orphan", "type", "noop", "payload", "")) })
	r.eventually(func() bool { return r.bridge.Stats().Claimed == 1 }, "claimed")
	assert.True(t, r.saw("entry_claimed"))
	for i := range 31 {
		r.eventually(func() bool { return len(r.assigns()) > i }, "assignment %d", i)
		r.done(ack(r.assigns()[i]))
	}
	r.eventually(r.empty, "all done")
	assert.EqualValues(t, 8, r.bridge.Stats().Credits)
}

func TestMoreTicksFollowAtOnce(t *testing.T) {
	r := start(t, ack, func(c *Config) { c.Lease = time.Hour; c.Tick = 20 * time.Minute; c.InFlight = 80 })
	r.eventually(func() bool { return r.bridge.Health().Tick.Good != time.Time{} }, "first tick")
	// Ticks are twenty minutes apart from here; one found more.
	r.with(func() {
		for _, id := range ids(300) {
			r.orphans = append(r.orphans, r.entry("task_id", id, "type", "noop", "payload", ""))
		}
	})
	r.eventually(func() bool { // while the first tick is not quite over, another is not begun
		r.system.Root.Send(r.bridge.reaping.pid, due{})
		return r.bridge.Stats().Claimed > 0
	}, "some claimed")
	r.eventually(r.empty, "all claimed and done")
}

func TestALostLeaseCancelsAndIgnoresTheLateAnswer(t *testing.T) {
	r := start(t, nil, nil)
	r.addFields("task_id", "a", "type", "noop", "payload", "1")
	r.addFields("task_id", "a", "type", "noop", "payload", "2")
	r.eventually(func() bool { return len(r.assigns()) == 1 && r.bridge.Stats().Waiting == 1 }, "assigned")
	first := r.assigns()[0]
	r.with(func() {
		r.lost = []messages.Ref{first.Entry.Ref()}
		delete(r.pending, first.Entry.Ref())
	})
	r.eventually(func() bool { return len(r.cancels()) == 1 }, "cancelled")
	assert.Equal(t, messages.CancelCause_CANCEL_CAUSE_LEASE_LOST, r.cancels()[0].Cause)
	assert.Equal(t, first.Entry.Id, r.cancels()[0].Entry.Id)
	r.eventually(func() bool { return r.bridge.Stats().Lost == 1 }, "forgotten")
	assert.Len(t, r.assigns(), 1, "the next one waits for the actor, which is still at work")
	r.done(ack(first))
	r.eventually(func() bool { return len(r.assigns()) == 2 }, "the next one")
	r.done(ack(r.assigns()[1]))
	r.eventually(r.empty, "all done")
	assert.EqualValues(t, 1, r.bridge.Stats().Acked, "the late answer acknowledged nothing")
	assert.Equal(t, 1, r.count("lease_lost"))
	assert.Zero(t, r.bridge.Stats().Ghosts)
}

func TestACancelledTaskIsToldOnce(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	var beats int
	r.with(func() {
		r.stopped = []Cancelled{{TaskID: "a", Unit: "another", Reason: "no"}, {TaskID: "a", Reason: "enough"}, {TaskID: "unknown"}}
		beats = r.beats
	})
	r.eventually(func() (past bool) { r.with(func() { past = r.beats > beats+3 }); return past }, "beats")
	require.Len(t, r.cancels(), 1)
	assert.Equal(t, messages.CancelCause_CANCEL_CAUSE_CANCELLED, r.cancels()[0].Cause)
	assert.Equal(t, "enough", r.cancels()[0].GetReason())
}

func TestATickTellsOfACancelledTask(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	r.with(func() {
		r.tick = func(_ TickRequest, t *Tick) { t.Cancelled = []Cancelled{{TaskID: "a", Reason: "enough"}} }
	})
	r.eventually(func() bool { return len(r.cancels()) == 1 }, "told")
	assert.Equal(t, r.assigns()[0].GetEntry().Ref(), r.cancels()[0].GetEntry().Ref())
	assert.Equal(t, "enough", r.cancels()[0].GetReason())
}

func TestALeaseWithoutBeatsGivesEverythingUp(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a", "b")
	r.eventually(func() bool { return len(r.assigns()) == 2 }, "assigned")
	r.with(func() { r.down = errors.New("away") })
	r.eventually(func() bool { return len(r.cancels()) == 2 }, "cancelled")
	require.Error(t, r.bridge.Health().Ready(time.Now()))
	assert.True(t, r.saw("beat_failing"))
	for _, a := range r.assigns() {
		r.done(verdict(a, messages.Verdict_VERDICT_DROP))
	}
	r.eventually(func() bool { s := r.bridge.Stats(); return s.Ghosts == 0 && s.InFlight == 0 }, "nothing held")
	r.with(func() { r.down = nil; r.tick = r.straysAll })
	r.eventually(func() bool { return len(r.assigns()) == 4 }, "what is still ours comes back")
	r.eventually(func() bool { return r.saw("beat_recovered") && r.saw("read_recovered") && r.saw("tick_recovered") }, "recovered")
	require.NoError(t, r.bridge.Health().Ready(time.Now()))
	r.done(ack(r.assigns()[2]))
	r.done(ack(r.assigns()[3]))
	r.eventually(r.empty, "all done")
}

func TestAFrozenNodeLearnsFromItsFirstBeat(t *testing.T) {
	h := &heartbeat{
		stream: newFake(), held: func(context.Context) ([]holding, error) { return nil, nil }, lease: time.Second, timeout: time.Second,
		monitor: &monitor{log: hclog.NewNullLogger(), emit: func(Event) {}}, good: time.Now().Add(-time.Hour),
		post: func(e event) { assert.IsType(t, beaten{}, e) },
	}
	require.NoError(t, h.round(t.Context()))
	assert.WithinDuration(t, time.Now(), h.good, time.Minute)
}

func TestAnOutageMakesNoHotLoopAndEndsSoon(t *testing.T) {
	r := start(t, ack, nil)
	r.with(func() { r.down = errors.New("away") })
	r.eventually(func() bool { return r.saw("read_failing") && r.saw("tick_failing") }, "failing")
	var before int
	r.with(func() { before = r.reads + r.beats })
	time.Sleep(700 * time.Millisecond)
	r.with(func() { assert.Less(t, r.reads+r.beats-before, 60) })
	r.with(func() { r.down = nil })
	r.add("a")
	back := time.Now()
	r.eventually(r.empty, "works again")
	assert.Less(t, time.Since(back), 2*time.Second)
	assert.Equal(t, 1, r.count("read_failing"))
}

func TestALostGroupIsOneLoudEvent(t *testing.T) {
	r := start(t, ack, nil)
	r.with(func() { r.readErr = fmt.Errorf("read: %w", ErrGroupLost) })
	r.add("a")
	r.eventually(r.empty, "goes on")
	assert.Equal(t, 1, r.count("group_lost"))
}

func TestFailedAcksStayQueued(t *testing.T) {
	fails := 3
	r := start(t, ack, nil)
	r.with(func() {
		r.ackErr = func() error {
			if fails--; fails >= 0 {
				return errors.New("lost reply")
			}
			return nil
		}
	})
	r.add(ids(20)...)
	r.eventually(r.empty, "all acknowledged in the end")
	assert.True(t, r.saw("ack_recovered"))
	assert.Len(t, r.assigns(), 20)
}

func TestOneLetterThatFailsHoldsUpNoOther(t *testing.T) {
	allow := false
	r := start(t, ack, nil)
	r.with(func() {
		r.buryErr = func(b Burial) error {
			if b.ID == "1700000000000-1" && !allow {
				return errors.New("too large for a script")
			}
			return nil
		}
	})
	for range 10 {
		r.addFields("x", "y")
	}
	r.eventually(func() (ok bool) { r.with(func() { ok = len(r.buried) == 9 }); return ok }, "nine buried")
	assert.Equal(t, 1, r.bridge.Stats().InFlight, "the tenth is not forgotten")
	r.with(func() { allow = true })
	r.eventually(r.empty, "tried until done")
}

func (r *rig) send(task, name, payload string) {
	r.addFields("task_id", task, "message", name, "event_id", "e-"+payload, "payload", payload, "content_type", "text/plain")
}

// told are the messages that were delivered to a task, in their order.
func (r *rig) told(task string) (payloads []string) {
	r.with(func() {
		for _, m := range r.mail {
			if m.TaskID == task {
				payloads = append(payloads, string(m.Payload))
			}
		}
	})
	return payloads
}

func TestAMessageGoesToItsTaskAndBeginsNothing(t *testing.T) {
	r := start(t, ack, nil)
	r.send("a", "approve", "yes")
	r.eventually(r.empty, "delivered")
	require.Len(t, r.mail, 1)
	m := r.mail[0]
	m.Ref = messages.Ref{}
	assert.Equal(t, Mail{TaskID: "a", Name: "approve", MessageID: "e-yes", ContentType: "text/plain", Payload: []byte("yes")}, m)
	assert.Empty(t, r.assigns())
	assert.Empty(t, r.moved, "it needs no agent type")
	assert.Empty(t, r.acked, "the script has acknowledged it")
	assert.EqualValues(t, 1, r.bridge.Stats().Messages)
	assert.Zero(t, r.count("message_refused"))
	assert.NotZero(t, r.bridge.Health().Mail.Good)
}

func TestWhatBecomesOfARefusedMessageIsTold(t *testing.T) {
	r := start(t, ack, nil)
	receipts := map[string]messages.Receipt{
		"1": messages.Taken, "2": messages.TakenBefore, "3": messages.TooLate, "4": messages.TaskEnded, "5": messages.MailboxFull, "6": messages.NoMailbox,
	}
	r.with(func() { r.receipt = func(m Mail) messages.Receipt { return receipts[m.Name] } })
	for name := range receipts {
		r.send("a", name, "x")
	}
	r.eventually(r.empty, "delivered")
	why := map[string]messages.Receipt{}
	letters := map[messages.Reason]int{}
	for _, e := range r.happened() {
		switch e := e.(type) {
		case MessageRefused:
			why[e.Message] = e.Why
			assert.Equal(t, "a", e.TaskID)
			assert.Equal(t, "e-x", e.MessageID)
			assert.NotEmpty(t, e.Detail)
		case EntryBuried:
			letters[e.Reason]++
		}
	}
	delete(receipts, "1")
	assert.Equal(t, receipts, why)
	assert.Equal(t, map[messages.Reason]int{messages.Reason_REASON_MAILBOX_FULL: 1, messages.Reason_REASON_BAD_STATE: 1}, letters)
}

func TestMessagesKeepTheirOrderThroughAnOutage(t *testing.T) {
	r := start(t, ack, nil)
	down := true
	r.with(func() {
		r.mailErr = func(Mail) error {
			if down {
				return errors.New("no connection")
			}
			return nil
		}
	})
	var want []string
	for i := range 150 {
		want = append(want, fmt.Sprint(i))
		r.send("a", "m", fmt.Sprint(i))
	}
	r.eventually(func() bool { return r.saw("mail_failing") }, "it fails")
	r.eventually(func() bool { return r.bridge.Stats().InFlight == 150 }, "nothing is forgotten")
	r.with(func() { down = false })
	r.eventually(r.empty, "all delivered")
	assert.Equal(t, want, r.told("a"))
	assert.True(t, r.saw("mail_recovered"))
}

func TestAMessageThatFailsHoldsUpItsOwnTaskAlone(t *testing.T) {
	r := start(t, ack, nil)
	allow := false
	r.with(func() {
		r.mailErr = func(m Mail) error {
			if string(m.Payload) == "3" && !allow {
				return errors.New("too large for a script")
			}
			return nil
		}
	})
	for i := range 100 {
		r.send(string("ab"[i%2]), "m", fmt.Sprint(i))
	}
	r.eventually(func() bool { return len(r.told("a")) == 50 }, "the other's are all there")
	assert.Equal(t, []string{"1"}, r.told("b"))
	r.with(func() { allow = true })
	r.eventually(r.empty, "tried until done")
	assert.Len(t, r.told("b"), 50)
	assert.Equal(t, []string{"1", "3", "5"}, r.told("b")[:3])
}

func TestADrainDeliversWhatWasRead(t *testing.T) {
	r := start(t, ack, nil)
	at, slow := make(chan struct{}, 1), make(chan struct{})
	r.with(func() { r.mailErr = func(Mail) error { at <- struct{}{}; <-slow; return nil } })
	r.send("a", "m", "1")
	<-at
	drained := make(chan error, 1)
	go func() { drained <- r.bridge.Drain(t.Context()) }()
	r.eventually(func() bool { return r.bridge.Health().Draining }, "draining")
	close(slow)
	require.NoError(t, <-drained)
	assert.Equal(t, []string{"1"}, r.told("a"))
	assert.Empty(t, r.left, "nothing is held for a task")
}

func TestUpkeepTellsWhatAPersonShouldKnow(t *testing.T) {
	r := start(t, ack, nil)
	var unserved []string
	calm := true
	r.with(func() {
		unserved = []string{"refund"}
		r.tick = func(_ TickRequest, t *Tick) {
			t.Unserved, t.Calm = unserved, calm
			if calm {
				t.Missed = 7
				t.Buried = []messages.Ref{{Stream: fakeKey, ID: "9-9"}}
			}
		}
	})
	r.eventually(func() bool {
		return r.saw("type_unserved") && r.saw("reclaim_calm") && r.saw("stream_missed") && r.saw("entry_buried")
	}, "told")
	r.with(func() { unserved, calm = nil, false })
	r.eventually(func() bool { return r.saw("type_served") && r.count("reclaim_calm") == 2 }, "told that it is over")
	assert.Equal(t, 1, r.count("type_unserved"), "once")
}

func TestUsurpedStopsEverything(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	r.with(func() { r.usurped = true })
	<-r.bridge.Failed()
	require.ErrorIs(t, r.bridge.Err(), ErrUsurped)
	require.ErrorIs(t, r.bridge.Health().Ready(time.Now()), ErrUsurped)
	r.eventually(func() bool { return len(r.cancels()) == 1 }, "cancelled")
	r.with(func() { r.usurped = false })
	require.NoError(t, r.bridge.Drain(t.Context()))
	r.with(func() {
		assert.Zero(t, r.released, "the name's entries are another's")
		assert.True(t, r.closed)
	})
}

func TestAPanicInTheWindowEndsTheBridgeAlone(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	r.bridge.post(settled{[]messages.Ref{r.assigns()[0].Entry.Ref()}}) // breaks a promise
	<-r.bridge.Failed()
	require.ErrorIs(t, r.bridge.Err(), ErrBroken)
	r.eventually(func() bool { return r.saw("broken") }, "told")
	require.NoError(t, r.bridge.Drain(t.Context()))
	r.with(func() { assert.Equal(t, 1, r.released, "others take it at once") })
}

func TestTheGateIsTold(t *testing.T) {
	gate := Gate{State: GateIsWarned, Reason: "nearly"}
	var asked GateLimits
	r := start(t, ack, func(c *Config) { c.Gate.Lag = 7 })
	r.with(func() { r.tick = func(req TickRequest, t *Tick) { asked, t.Gate = req.Gate, gate } })
	r.eventually(func() bool { return r.saw("gate_warned") }, "warned")
	r.with(func() {
		assert.Equal(t, GateLimits{DefaultGateAge, DefaultGateEntries, 7, DefaultGateEntries, DefaultGateMemory}, asked)
		gate = Gate{State: GateIsShut, Reason: "over", RetryAfterMS: 9}
	})
	r.eventually(func() bool { return r.saw("gate_shut") }, "shut")
	h := r.bridge.Health()
	assert.Equal(t, "over", h.Gate.Reason)
	require.NoError(t, h.Ready(time.Now()), "it works off what is there")
	r.with(func() { gate = Gate{} })
	r.eventually(func() bool { return r.saw("gate_opened") }, "opened")
	assert.Equal(t, 1, r.count("gate_shut"), "told once")
}

func TestAHookThatPanicsIsCounted(t *testing.T) {
	r := start(t, ack, func(c *Config) { c.Events = func(Event) { panic("no") } })
	r.addFields("x", "y")
	r.add("a")
	r.eventually(r.empty, "all settled")
	r.eventually(func() bool { return r.bridge.Health().Panics > 0 }, "counted")
	require.NoError(t, r.bridge.Err())
}

func TestDrainWaitsForWhatRunsAndGivesBackTheRest(t *testing.T) {
	r := start(t, nil, nil)
	r.addFields("task_id", "a", "type", "noop", "payload", "1")
	r.addFields("task_id", "a", "type", "noop", "payload", "2")
	r.add("b")
	r.eventually(func() bool { return len(r.assigns()) == 2 && r.bridge.Stats().Waiting == 1 }, "assigned")
	drained := make(chan error, 1)
	go func() { drained <- r.bridge.Drain(t.Context()) }()
	r.eventually(func() bool { return r.bridge.board.room() == 0 }, "draining")
	require.ErrorIs(t, r.bridge.Health().Ready(time.Now()), ErrDraining)
	r.add("late")
	for _, a := range r.assigns() {
		r.done(ack(a))
	}
	require.NoError(t, <-drained)
	r.with(func() {
		assert.Len(t, r.acked, 2, "what ran was acknowledged")
		assert.Len(t, r.pending, 1)
		assert.Equal(t, 1, r.released)
		require.Len(t, r.left, 1)
		assert.Equal(t, "a", r.left[0].TaskID)
		assert.True(t, r.closed)
	})
	assert.Len(t, r.assigns(), 2, "nothing new was begun")
	require.NoError(t, r.bridge.Drain(t.Context()), "again")
	require.ErrorIs(t, r.bridge.Start(t.Context(), r.system, r.agents), ErrStarted)
}

func TestDrainEndsWithItsContext(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := r.bridge.Drain(ctx)
	require.ErrorIs(t, err, ErrUnfinished)
	assert.ErrorContains(t, err, "1 entries")
	r.with(func() { assert.Equal(t, 1, r.released, "given back all the same"); assert.Len(t, r.left, 1) })
	r.eventually(func() bool { return len(r.cancels()) == 1 }, "told")
	assert.Equal(t, messages.CancelCause_CANCEL_CAUSE_DRAINING, r.cancels()[0].Cause)
}

func TestDrainWithTheServerAwaySaysSo(t *testing.T) {
	r := start(t, ack, nil)
	r.with(func() { r.down = errors.New("away") })
	err := r.bridge.Drain(t.Context())
	require.ErrorContains(t, err, "away")
	r.with(func() { assert.True(t, r.closed) })
}

func TestStopGivesNothingBack(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	r.bridge.Stop()
	r.bridge.Stop()
	r.with(func() { assert.Zero(t, r.released); assert.Len(t, r.pending, 1); assert.True(t, r.closed) })
	require.ErrorIs(t, r.bridge.Health().Ready(time.Now()), ErrNotStarted)
}

func TestStopInsideADrain(t *testing.T) {
	r := start(t, nil, nil)
	r.add("a")
	r.eventually(func() bool { return len(r.assigns()) == 1 }, "assigned")
	drained := make(chan error, 1)
	go func() { drained <- r.bridge.Drain(context.Background()) }()
	r.eventually(func() bool { return r.bridge.Health().Draining }, "draining")
	r.bridge.Stop()
	require.Error(t, <-drained)
	r.with(func() { assert.Zero(t, r.released) })
}

func TestStartFails(t *testing.T) {
	system := quietSystem()
	agents := system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	defer system.Root.Stop(agents)
	f := newFake()
	f.down = errors.New("connection refused")
	b, err := New(testConfig(f))
	require.NoError(t, err)
	require.ErrorContains(t, b.Start(t.Context(), system, agents), "connection refused")
	f = newFake()
	f.beatErr = func() error { return io.ErrUnexpectedEOF }
	b, err = New(testConfig(f))
	require.NoError(t, err)
	require.ErrorIs(t, b.Start(t.Context(), system, agents), io.ErrUnexpectedEOF)
	assert.True(t, f.closed)
	require.Error(t, b.Start(t.Context(), nil, nil))
	b, err = New(testConfig(f))
	require.NoError(t, err)
	b.Stop() // safe before Start
	require.NoError(t, b.Drain(t.Context()))
	require.ErrorIs(t, b.Start(t.Context(), system, agents), ErrStarted)
}

func TestConfigNamesFieldAndValues(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Stream, c.Upkeep = nil, nil }, "Stream must be set"},
		{func(c *Config) { c.Lease, c.Beat = 6*time.Second, 4*time.Second }, "Lease (6s) must be at least 3×Beat (4s)"},
		{func(c *Config) { c.Lease, c.Tick = 2*time.Second, 1500*time.Millisecond }, "Tick (1.5s) must be at most half of Lease (2s)"},
		{func(c *Config) { c.Block = 3 * time.Second }, "Block (3s) must be at most 2s"},
		{func(c *Config) { c.Block = time.Microsecond }, "Block (1µs) must be at least 1ms"},
		{func(c *Config) { c.Beat = -1 }, "Beat (-1ns) must be at least 1ms"},
		{func(c *Config) { c.ReadCount = 129 }, "ReadCount (129) must be 1 to 128"},
		{func(c *Config) { c.InFlight = -2 }, "InFlight (-2) must be positive"},
		{func(c *Config) { c.DeadTTL = 5 }, "DeadTTL (5ns) must be at least 1ms"},
		{func(c *Config) { c.Node.Incarnation = "" }, "Node.Incarnation"},
		{func(c *Config) { c.Node.Consumer = "" }, "Node.Consumer"},
		{func(c *Config) { c.Names.Stream = "a{b" }, "Names.Stream"},
	} {
		cfg := testConfig(newFake())
		cfg.Beat = 10 * time.Millisecond
		tt.change(&cfg)
		_, err := New(cfg)
		require.ErrorContains(t, err, tt.want)
	}
	cfg := Config{Stream: newFake(), InFlight: Off, InFlightBytes: Off, MaxPayload: Off, MaxDeliveries: Off, DeadTTL: Off}
	cfg.Node = messages.Node{Incarnation: "i", Consumer: "c"}
	b, err := New(cfg)
	require.NoError(t, err)
	assert.Equal(t, DefaultLease, b.cfg.Lease)
	assert.Equal(t, DefaultBeat, b.cfg.Node.Beat)
	assert.Zero(t, cfg.Lease, "the caller's is not touched")
}
