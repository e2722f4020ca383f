package memstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// defaultDeadTTL is how long a dead letter and its FAILED task are kept where the caller cannot say.
const defaultDeadTTL = 30 * 24 * time.Hour

// Bury sets entries aside as dead letters; see streambridge.Stream.
func (s *Stream) Bury(ctx context.Context, dead []streambridge.Burial) error {
	for _, b := range dead { // one script each
		if err := s.bound(ctx, "bury", func(w *world, now int64) error {
			if s.holds(w, b.Ref) {
				w.setAside(b, now, w.deadTTL)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("bury entry %s: %w", b.ID, err)
		}
	}
	return nil
}

// setAside writes the dead letter of a pending entry, ends its unit where it should, and acknowledges it.
func (w *world) setAside(b streambridge.Burial, now int64, ttl time.Duration) {
	fields, _, _ := w.bodyOrCopy(b.Ref, b.TaskID, b.Unit)
	if d := w.read(b.Stream).pending.get(mustID(b.ID)); d != nil {
		b.Deliveries = d.count
	}
	w.bury(now, ttl, Letter{
		Ref: b.Ref, Reason: b.Reason, Detail: b.Detail, Deliveries: b.Deliveries, Wake: b.Wake,
		TaskID: b.TaskID, Unit: b.Unit, Type: b.Type, Fields: fields,
		Ends: b.Fail && b.TaskID != "",
	})
	if b.Fail && b.TaskID != "" {
		w.fail(b, now, ttl)
	}
	w.settle(b.Ref)
}

// fail ends the unit of a dead letter as FAILED and raises its fence, so that nothing that still runs can write.
func (w *world) fail(b streambridge.Burial, now int64, ttl time.Duration) {
	t := w.makeTask(b.TaskID)
	u := t.Units[b.Unit]
	if u == nil {
		u = &Unit{Name: b.Unit, Type: b.Type, CreatedMS: now}
		t.Units[b.Unit] = u
	}
	if Ended(u.State) {
		return
	}
	free := t.Owner == "" || u.State == messages.State_STATE_RUNNING && t.Owner == u.Run.Incarnation
	t.Fence++
	w.endTrial(t, u)
	u.Reason, u.Error = b.Reason, b.Detail
	w.noDoubt(t, u)
	w.become(t, u, messages.State_STATE_FAILED, now, false)
	delete(w.copies, unitKey{b.TaskID, b.Unit})
	delete(w.due, "r:"+member(b.TaskID, b.Unit))
	w.counts["failed"]++
	t.note(now, "failed", strings.TrimPrefix(b.Reason.String(), "REASON_")+" "+b.Detail)
	if free { // else somebody is at another unit
		w.disown(t, now)
	}
	w.untie(t, u)
	w.close(t, now, ttl)
}

// endTrial takes the unit off the trial of the node that ran it.
func (w *world) endTrial(t *Task, u *Unit) {
	if l := w.lives[u.Run.Incarnation]; l != nil && l.Trial != "" && l.Trial == member(t.ID, u.Name) {
		l.Trial, l.TrialUntilMS = "", 0
	}
}

// close gives the task a time to live if none of its units is open any more and no entry waits with it: such an entry was
// acknowledged and stands nowhere else.
func (w *world) close(t *Task, now int64, ttl time.Duration) {
	switch {
	case !t.ended():
	case ttl > 0 && len(t.Waiting) > 0:
		t.keep = ttl
	default:
		w.keepMail(t.ID)
		w.expire(t, now, ttl)
	}
}

// ended reports whether every unit of the task has ended.
func (t *Task) ended() bool {
	for _, u := range t.Units {
		if !Ended(u.State) {
			return false
		}
	}
	return true
}

// Move gives entries to the stream of their agent type; see streambridge.Stream.
func (s *Stream) Move(ctx context.Context, agentType string, entries []streambridge.Held) error {
	if agentType == "" {
		return errors.New("memstream move: no agent type")
	}
	for _, h := range entries { // one script each
		if err := s.bound(ctx, "move", func(w *world, now int64) error {
			if s.holds(w, h.Ref) {
				w.move(h, agentType, now)
			}
			return nil
		}); err != nil {
			return fmt.Errorf("move entry %s: %w", h.ID, err)
		}
	}
	return nil
}

// Deliver gives messages to their tasks; see streambridge.Upkeep.
func (s *Stream) Deliver(ctx context.Context, mail []streambridge.Mail) (receipts []messages.Receipt, err error) {
	for _, m := range mail { // one script each
		var receipt messages.Receipt
		if err := s.bound(ctx, "deliver", func(w *world, now int64) error {
			if s.holds(w, m.Ref) {
				receipt = w.deliver(m, now)
			}
			return nil
		}); err != nil {
			return receipts, fmt.Errorf("deliver entry %s: %w", m.ID, err)
		}
		receipts = append(receipts, receipt)
	}
	return receipts, nil
}

// deliver gives a task the message that a pending entry brings, and acknowledges the entry.
func (w *world) deliver(m streambridge.Mail, now int64) messages.Receipt {
	body := messages.Mail{ContentType: m.ContentType, Payload: m.Payload}
	receipt, _ := w.send(m.TaskID, m.Name, m.MessageID, body, messages.MailTTL, now)
	if receipt == messages.MailboxFull {
		w.setAside(streambridge.Burial{
			Ref: m.Ref, Reason: messages.Reason_REASON_MAILBOX_FULL, TaskID: m.TaskID,
			Detail: fmt.Sprintf("%d messages to the task wait and nothing has read them", messages.MaxUnread),
		}, now, w.deadTTL)
		return receipt
	}
	w.settle(m.Ref)
	return receipt
}

// holds reports whether the entry is pending with our consumer. Called under the lock.
func (s *Stream) holds(w *world, ref messages.Ref) bool {
	id, ok := parseID(ref.ID)
	return ok && w.read(ref.Stream).owned(id, s.open.node.Consumer) != nil
}

// move adds a pending entry to the stream of its type and acknowledges it.
func (w *world) move(h streambridge.Held, agentType string, now int64) {
	fields, ok := w.data.log(h.Stream).body(mustID(h.ID))
	if !ok {
		return // the next beat or tick settles it
	}
	w.data.make(w.keys.Type(agentType)).add(now, withControl(fields, h.TaskID, w.origin(h.Ref, fields), w.wake(h.Ref, fields)))
	w.types[agentType] = true
	w.settle(h.Ref)
}
