package statetest

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// allBytes is every byte value, repeated to n bytes.
func allBytes(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

var commitCases = map[string]func(*testing.T, *rig){
	"a result is kept to the byte, short and long": func(t *testing.T, r *rig) {
		for _, result := range []string{"", "x", allBytes(64), allBytes(65), allBytes(256), strings.Repeat(allBytes(256), 4096)} {
			task := newTask(fmt.Sprint("r", len(result)))
			w := r.deliver(task, here)
			c := w.completed(w.run(), result)
			r.commit(c)
			r.commit(c) // a lost reply
			u := r.unit(task)
			require.Equal(t, messages.State_STATE_SUCCEEDED, u.State)
			require.Equal(t, "text/plain", u.ContentType)
			require.Equal(t, result, string(u.Result), "%d bytes", len(result))
			rec := r.record(task.GetTaskId())
			require.Equal(t, result, string(rec.Units[0].Result))
			require.Greater(t, rec.TTL, week-time.Minute)
			require.Empty(t, rec.Owner)
		}
		require.EqualValues(t, 6, r.World.Count(t, "succeeded"), "repeats are not counted")
	},
	"commit does not acknowledge": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.completed(w.run(), "ok"))
		require.True(t, r.World.Pending(t, w.ref))
	},
	"a parked unit waits, is not due, charges nothing, and only its wake number goes on with it": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("doubt"), here)
		c := w.completed(w.run(), "")
		c.Outcome, c.Error = messages.Outcome_OUTCOME_PARKED, "in doubt: step pay"
		r.commit(c)
		r.commit(c) // a lost reply
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_WAITING, u.State)
		require.Equal(t, actors.Ledger{}, u.Ledger)
		require.Equal(t, "in doubt: step pay", u.Error)
		require.Empty(t, r.World.Due(t))
		require.Equal(t, []string{member(w.task)}, r.World.Index(t, messages.State_STATE_WAITING, "noop"))
		require.Equal(t, actors.Elsewhere, r.deliver(w.task, here).begin().Answer)
		require.Empty(t, r.record("doubt").Owner)
	},
	"a retry is due, charged, and continues by its inbox entry only": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a{b}:c"), here)
		c := w.retry(w.run(), time.Hour)
		r.commit(c)
		r.commit(c) // a lost reply
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_RETRYING, u.State)
		require.Equal(t, actors.Ledger{Failures: 1}, u.Ledger)
		require.Equal(t, "no luck", u.Error)
		require.WithinDuration(t, r.World.Now(t).Add(time.Hour), u.Due, 5*time.Second)
		require.Contains(t, r.World.Due(t), "r:"+member(w.task))
		require.Equal(t, []string{member(w.task)}, r.World.Index(t, messages.State_STATE_RETRYING, "noop"))

		w.again().answers(actors.Elsewhere)
		r.World.Ack(t, w.ref)
		r.World.Trim(t, w.ref)
		r.deliver(newTask("a{b}:c"), there).answers(actors.Elsewhere)

		r.World.Promote(t, w.task.GetTaskId(), "")
		in := r.fromInbox(w.task, there)
		require.EqualValues(t, 1, in.wake)
		b := in.run()
		require.Equal(t, actors.Ledger{Failures: 1}, b.Ledger)
		require.Empty(t, r.World.Index(t, messages.State_STATE_RETRYING, "noop"))
		r.deliver(newTask("a{b}:c"), third).answers(actors.Elsewhere)

		r.commit(in.retry(b, 0))
		in.again().answers(actors.Elsewhere) // its own wake is stale now
		r.World.Promote(t, w.task.GetTaskId(), "")
		in2 := r.fromInbox(w.task, here)
		require.EqualValues(t, 2, in2.wake)
		b = in2.run()
		require.Equal(t, actors.Ledger{Failures: 2}, b.Ledger)
		r.commit(in2.completed(b, "at last"))
		r.state(w.task, messages.State_STATE_SUCCEEDED)
		in2.answers(actors.AlreadyDone)
	},
	"a node that dies in a retry leaves the inbox entry to another": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.retry(w.run(), 0))
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		in.run()
		r.World.Live(t, here, false)
		w.on(there).answers(actors.Elsewhere)
		in = in.on(there)
		b := in.run()
		require.Equal(t, actors.Ledger{Failures: 1, Deaths: 1}, b.Ledger)
		r.commit(in.completed(b, "ok"))
	},
	"each class is charged where it belongs": func(t *testing.T, r *rig) {
		for charge, want := range map[messages.Charge]actors.Ledger{
			messages.Charge_CHARGE_FAILURE: {Failures: 1},
			messages.Charge_CHARGE_CRASH:   {Crashes: 1},
			messages.Charge_CHARGE_TIMEOUT: {Timeouts: 1},
			messages.Charge_CHARGE_WAIT:    {Waits: 1},
		} {
			w := r.deliver(newTask("retry-"+charge.String()), here)
			c := w.retry(w.run(), time.Minute)
			c.Charge = charge
			r.commit(c)
			require.Equal(t, want, r.unit(w.task).Ledger)
			w = r.deliver(newTask("reject-"+charge.String()), here)
			c = w.rejected(w.run(), messages.Reason_REASON_BUDGET_SPENT, "enough")
			c.Charge = charge
			r.commit(c)
			require.Equal(t, want, r.unit(w.task).Ledger)
		}
	},
	"failures by class are kept, and told to the next begin": func(t *testing.T, r *rig) {
		w := r.deliver(part("a", "u/1"), here)
		many := actors.ErrorClasses("bad=1 " + strings.Repeat("x", 32) + "=12 " + strings.Repeat("y", 32) + "/timeout=7")
		for i, classes := range []actors.ErrorClasses{"bad=1", "", many} {
			c := w.retry(w.run(), 0)
			c.Classes = classes
			r.commit(c)
			r.commit(c) // a lost reply
			r.World.Promote(t, "a", "u/1")
			act := w.act
			w = r.fromInbox(w.task, here)
			w.act = act + 1
			want := actors.Ledger{Failures: int64(i + 1), Classes: actors.ErrorClasses(cmp.Or(string(classes), "bad=1"))}
			require.Equal(t, want, w.run().Ledger)
			require.Equal(t, want, w.run().Ledger, "the same call again")
			require.Equal(t, want, r.unit(w.task).Ledger)
		}
		c := w.rejected(w.run(), messages.Reason_REASON_BUDGET_SPENT, "enough")
		c.Charge, c.Classes = messages.Charge_CHARGE_FAILURE, "bad=2"
		r.commit(c)
		require.Equal(t, actors.Ledger{Failures: 4, Classes: "bad=2"}, r.record("a").Units[0].Ledger)
	},
	"a trimmed entry is retried from its saved copy": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.World.Save(t, w.ref, "a", "")
		r.World.Trim(t, w.ref)
		r.commit(w.retry(b, 0))
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		r.commit(in.completed(in.run(), "ok"))
	},
	"a retry without a body anywhere is a dead letter that says so": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.World.Trim(t, w.ref)
		c := w.retry(b, 0)
		r.commit(c)
		r.commit(c)
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_BODY_GONE, u.Reason)
		dead := r.World.Dead(t)
		require.Len(t, dead, 1)
		require.Empty(t, dead[0].GetFields())
		require.Empty(t, r.World.Due(t))
	},
	"a rejected unit is FAILED with a dead letter of the original bytes": func(t *testing.T, r *rig) {
		task := newTask("a")
		task.Payload = []byte(allBytes(300))
		w := r.deliver(task, here)
		c := w.rejected(w.run(), messages.Reason_REASON_REJECTED, "not for us")
		c.Charge = messages.Charge_CHARGE_FAILURE
		r.commit(c)
		r.commit(c)
		u := r.unit(task)
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_REJECTED, u.Reason)
		require.Equal(t, "not for us", u.Error)
		require.Equal(t, actors.Ledger{Failures: 1}, u.Ledger)
		require.Equal(t, []string{"a:"}, r.World.Index(t, messages.State_STATE_FAILED, "noop"))
		require.EqualValues(t, 1, r.World.Count(t, "failed"))
		require.EqualValues(t, 1, r.World.Count(t, "dead"))
		require.Greater(t, r.record("a").TTL, week-time.Minute)
		dead := r.World.Dead(t)
		require.Len(t, dead, 1)
		require.Equal(t, "a", dead[0].GetTaskId())
		require.Equal(t, "noop", dead[0].GetType())
		require.Equal(t, w.ref, dead[0].GetEntry().Ref())
		require.EqualValues(t, 1, dead[0].GetEntry().GetDeliveries())
		var got []messages.Pair
		for _, f := range dead[0].GetFields() {
			got = append(got, messages.Pair{Name: string(f.GetName()), Value: string(f.GetValue())})
		}
		require.Equal(t, fieldsOf(task), got)
	},
	"an interrupted unit is PENDING and runs again at once, free": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.outcome(w.run(), messages.Outcome_OUTCOME_INTERRUPTED)
		r.commit(c)
		r.commit(c)
		r.state(w.task, messages.State_STATE_PENDING)
		w2 := w.on(there)
		b := w2.run()
		require.Equal(t, actors.Ledger{Interruptions: 1}, b.Ledger)
		require.EqualValues(t, 1, b.Ledger.Attempt())
	},
	"a cancelled unit is indexed and counted": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.outcome(w.run(), messages.Outcome_OUTCOME_CANCELLED)
		r.commit(c)
		r.commit(c)
		r.state(w.task, messages.State_STATE_CANCELLED)
		require.Equal(t, []string{"a:"}, r.World.Index(t, messages.State_STATE_CANCELLED, "noop"))
		require.EqualValues(t, 1, r.World.Count(t, "cancelled"))
	},
	"SUCCEEDED is indexed by option": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.completed(w.run(), "ok"))
		require.Empty(t, r.World.Index(t, messages.State_STATE_SUCCEEDED, "noop"))
		w = r.deliver(newTask("b"), here)
		c := w.completed(w.run(), "ok")
		c.Index = true
		r.commit(c)
		require.Equal(t, []string{"b:"}, r.World.Index(t, messages.State_STATE_SUCCEEDED, "noop"))
	},
	"a task expires with its last open unit": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here)
		b1, b2 := one.run(), two.run()
		r.commit(one.completed(b1, "ok"))
		require.Zero(t, r.record("a").TTL, "unit 2 is open")
		r.commit(two.completed(b2, allBytes(100)))
		require.Positive(t, r.record("a").TTL)
		three := r.deliver(part("a", "3"), here)
		b3 := three.run()
		require.Zero(t, r.record("a").TTL, "unit 3 is open")
		r.commit(three.retry(b3, 0))
		require.Zero(t, r.record("a").TTL)
		r.World.Promote(t, "a", "3")
		in := r.fromInbox(three.task, here)
		r.commit(in.rejected(in.run(), messages.Reason_REASON_REJECTED, "no"))
		require.Positive(t, r.record("a").TTL)
	},
}
