package streamtest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// post adds an entry that brings a message.
func (w *world) post(id, name, payload string) {
	w.Helper()
	w.Add(
		messages.Pair{Name: "task_id", Value: id}, messages.Pair{Name: "message", Value: name},
		messages.Pair{Name: "event_id", Value: "e-" + payload}, messages.Pair{Name: "payload", Value: payload},
	)
}

// mailOf is what the bridge makes of such entries; others are left out.
func mailOf(entries []streambridge.Entry) (mail []streambridge.Mail) {
	for _, e := range entries {
		if value(e, "message") == "" {
			continue
		}
		mail = append(mail, streambridge.Mail{
			Ref: e.Ref, TaskID: value(e, "task_id"), Name: value(e, "message"), MessageID: value(e, "event_id"), ContentType: "text/plain",
			Payload: []byte(value(e, "payload")),
		})
	}
	return mail
}

func (n *node) deliver(mail ...streambridge.Mail) []messages.Receipt {
	n.w.Helper()
	receipts, err := n.Deliver(n.w.ctx(), mail)
	require.NoError(n.w, err)
	require.Len(n.w, receipts, len(mail))
	return receipts
}

func waitFor(message string) messages.Wait {
	return messages.Wait{Kind: messages.WaitFirst, Closes: true, Slots: []messages.Slot{{Message: message, Nth: 1}}}
}

var mailTests = []test{
	{"a message wakes what waits for it, and its entry is acknowledged", func(w *world) {
		n := w.open("a")
		fields := append([]messages.Pair{{Name: messages.ControlOrigin, Value: "7-7"}}, task("x:{y}")...)
		w.Park("x:{y}", "p/q", "it's: ok", waitFor("it's: ok"), Lease, fields)
		w.post("x:{y}", "it's: ok", "yes")
		mail := mailOf(n.read(10))
		require.Equal(w, []messages.Receipt{messages.Taken}, n.deliver(mail...))
		require.Empty(w, w.Pending(w.public()))
		require.Equal(w, []messages.Receipt{messages.NotPending}, n.deliver(mail...), "a lost reply is repeated")
		u := w.Unit("x:{y}", "p/q")
		require.Equal(w, messages.State_STATE_PENDING, u.State)
		require.Equal(w, []string{"it's: ok"}, u.Steps)
		require.Empty(w, u.Waits)
		require.Zero(w, u.Unread)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, "x:{y}", value(got[0], messages.ControlID))
		require.Equal(w, "1", value(got[0], messages.ControlWake))
		require.Equal(w, "work of x:{y}", value(got[0], "payload"))
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Zero(w, st.Due)
		require.Zero(w, st.States["WAITING"])
	}},
	{"messages are taken in order, each once", func(w *world) {
		n := w.open("a")
		for _, payload := range []string{"1", "2", "1", "3"} {
			w.post("x", "m", payload)
		}
		require.Equal(w, []messages.Receipt{messages.Taken, messages.Taken, messages.TakenBefore, messages.Taken}, n.deliver(mailOf(n.read(10))...))
		require.Empty(w, w.Pending(w.public()))
		require.Equal(w, 3, w.Unit("x", "").Unread)
		require.Zero(w, w.Unit("x", "").State, "a message begins no task")
		require.Empty(w, n.letters())
	}},
	{"a message without an id is the only one of its name", func(w *world) {
		n := w.open("a")
		w.post("x", "m", "1")
		w.post("x", "m", "2")
		mail := mailOf(n.read(10))
		mail[0].MessageID, mail[1].MessageID = "", ""
		require.Equal(w, []messages.Receipt{messages.Taken, messages.TooLate}, n.deliver(mail...))
		require.Equal(w, 1, w.Unit("x", "").Unread)
	}},
	{"a message after the time is too late, whether or not a tick has seen it", func(w *world) {
		n := w.open("a")
		for i, id := range []string{"x", "y"} {
			w.Park(id, "", "m", waitFor("m"), Lease, task(id))
			w.Pass(Lease)
			if i == 0 {
				n.tick(0)
			}
			w.post(id, "m", "late")
			require.Equal(w, []messages.Receipt{messages.TooLate}, n.deliver(mailOf(n.read(10))...))
			require.Empty(w, w.Pending(w.public()))
			require.Equal(w, messages.State_STATE_PENDING, w.Unit(id, "").State)
		}
	}},
	{"a message to a task that has ended is noted", func(w *world) {
		n := w.open("a")
		n.bury("x", messages.Reason_REASON_REJECTED, true)
		w.post("x", "m", "1")
		w.post("x", "m", "2")
		require.Equal(w, []messages.Receipt{messages.TaskEnded, messages.TaskEnded}, n.deliver(mailOf(n.read(10))...))
		require.Empty(w, w.Pending(w.public()))
		require.Equal(w, []string{"message m: the task has ended"}, w.Unit("x", "").Refused)
		require.Zero(w, w.Unit("x", "").Unread)
	}},
	{"a mailbox that is full makes a dead letter, whose retry touches no unit", func(w *world) {
		n := w.open("a")
		n.bury("x", messages.Reason_REASON_REJECTED, true)
		require.NoError(w, n.Settle(w.ctx(), n.letters()[0].GetId(), streambridge.Retry))
		require.NoError(w, n.Ack(w.ctx(), refsOf(n.hold(1))))
		w.Fill("x")
		w.post("x", "m", "one too many")
		require.Equal(w, []messages.Receipt{messages.MailboxFull}, n.deliver(mailOf(n.read(10))...))
		require.Empty(w, w.Pending(w.public()))
		ls := n.letters()
		require.Len(w, ls, 1)
		require.Equal(w, messages.Reason_REASON_MAILBOX_FULL, ls[0].GetReason())
		require.Equal(w, fmt.Sprintf("%d messages to the task wait and nothing has read them", messages.MaxUnread), ls[0].GetDetail())
		require.Equal(w, "x", ls[0].GetTaskId())
		require.EqualValues(w, 1, ls[0].GetEntry().GetDeliveries())
		require.Len(w, ls[0].GetFields(), 4)
		fail := n.bury("x", messages.Reason_REASON_REJECTED, true)
		require.NoError(w, n.Settle(w.ctx(), ls[0].GetId(), streambridge.Retry))
		require.Equal(w, messages.State_STATE_FAILED, w.Unit("x", "").State)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, []messages.Receipt{messages.TaskEnded}, n.deliver(mailOf(got)...))
		require.Zero(w, w.Len(w.Inbox()), "an inbox entry is nobody else's")
		require.NoError(w, n.Settle(w.ctx(), fail, streambridge.Drop))
	}},
	{"what is not ours is not delivered", func(w *world) {
		w.post("x", "m", "1")
		a, b := w.open("a"), w.open("b")
		mail := mailOf(a.read(10))
		require.Equal(w, []messages.Receipt{messages.NotPending}, b.deliver(mail...))
		require.Len(w, w.Pending(w.public()), 1)
		require.Zero(w, w.Unit("x", "").Unread)
		require.Equal(w, []messages.Receipt{messages.Taken}, a.deliver(mail...))
	}},
	{"what a dead node held is delivered by who takes over", func(w *world) {
		w.post("x", "m", "1")
		a, b := w.open("a"), w.open("b")
		require.Len(w, a.read(10), 1)
		a.tick(0)
		w.Kill(a.Node)
		got := b.ticks(10).Claimed
		require.Len(w, got, 1)
		require.Equal(w, []messages.Receipt{messages.Taken}, b.deliver(mailOf(got)...))
		require.Equal(w, 1, w.Unit("x", "").Unread)
	}},
	{"a large message keeps its bytes", func(w *world) {
		n := w.open("a")
		w.Park("x", "", "m", waitFor("m"), -1, task("x"))
		w.post("x", "m", strings.Repeat("\x00\xff\n,:", 100_000))
		require.Equal(w, []messages.Receipt{messages.Taken}, n.deliver(mailOf(n.read(10))...))
		require.Equal(w, []string{"m"}, w.Unit("x", "").Steps)
	}},
}
