package streambridge

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/messages"
)

// mailBatch is how many messages one call brings at most: each is a script that carries the payload.
const mailBatch = 64

// postman gives messages to their tasks, in the order in which they were read, and tries until it is done. Until then their
// entries stay pending with us.
type postman struct {
	upkeep  Upkeep
	box     *outbox[Mail]
	post    func(event)
	log     hclog.Logger
	monitor *monitor
	timeout time.Duration
}

func (p *postman) run(ctx context.Context) {
	wait := newBackoff()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.box.some:
		}
		for more := true; more; {
			left := p.round(ctx, p.box.take(mailBatch))
			more = p.box.again(left...)
			switch {
			case ctx.Err() != nil:
				return
			case len(left) > 0 && !wait.pause(ctx):
				return
			case len(left) == 0:
				wait.reset()
			}
		}
	}
}

// round delivers what it can and returns the rest in its order. A message that the server does not take holds up those of
// its task, whose order counts, and no others; a server that takes none of two is asked no further.
func (p *postman) round(ctx context.Context, batch []Mail) (left []Mail) {
	stuck := map[string]bool{}
	for row := 0; len(batch) > 0; {
		done, err := p.deliver(ctx, batch)
		if err == nil {
			return left
		}
		if row++; done > 0 {
			row = 1
		}
		batch = batch[done:]
		if row > 1 || ctx.Err() != nil {
			return append(left, batch...)
		}
		stuck[batch[0].TaskID] = true
		var rest []Mail
		for _, m := range batch {
			if stuck[m.TaskID] {
				left = append(left, m)
			} else {
				rest = append(rest, m)
			}
		}
		batch = rest
	}
	return left
}

// deliver brings messages until one fails, and returns how many did not.
func (p *postman) deliver(ctx context.Context, batch []Mail) (done int, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	began := time.Now()
	receipts, err := p.upkeep.Deliver(ctx, batch)
	if len(receipts) > 0 {
		refs := make([]messages.Ref, len(receipts))
		for i, receipt := range receipts {
			refs[i] = batch[i].Ref
			p.tell(&batch[i], receipt)
		}
		p.post(settled{refs})
	}
	if err != nil {
		p.monitor.bad(fmt.Errorf("deliver %d messages: %w", len(batch)-len(receipts), err))
		return len(receipts), err
	}
	p.monitor.good(began)
	return len(receipts), nil
}

// refusals say why a message was not taken.
var refusals = map[messages.Receipt]string{
	messages.TakenBefore: "the same message was taken before",
	messages.TooLate:     "another message of that name was first, or the time of the wait for it was over",
	messages.TaskEnded:   "the task has ended",
	messages.MailboxFull: fmt.Sprintf("%d messages to the task wait and nothing has read them", messages.MaxUnread),
	messages.NoMailbox:   "what stands under the task's keys is no record of Weir's",
}

// buried are the reasons of those that became dead letters.
var buried = map[messages.Receipt]messages.Reason{
	messages.MailboxFull: messages.Reason_REASON_MAILBOX_FULL,
	messages.NoMailbox:   messages.Reason_REASON_BAD_STATE,
}

// tell says what became of a message that was not taken.
func (p *postman) tell(m *Mail, receipt messages.Receipt) {
	why, refused := refusals[receipt]
	if !refused {
		return
	}
	p.log.Info("a message was refused", "why", receipt.String(), "task_id", m.TaskID, "message", m.Name, "stream", m.Stream, "entry_id", m.ID)
	if reason, letter := buried[receipt]; letter {
		p.log.Warn("an entry becomes a dead letter", "reason", messages.ReasonName(reason), "task_id", m.TaskID, "stream", m.Stream,
			"entry_id", m.ID)
		p.monitor.emit(EntryBuried{Ref: m.Ref, TaskID: m.TaskID, Reason: reason, Detail: why})
	}
	p.monitor.emit(MessageRefused{
		Ref: m.Ref, TaskID: m.TaskID, Message: m.Name, MessageID: m.MessageID, Why: receipt, Detail: why,
	})
}
