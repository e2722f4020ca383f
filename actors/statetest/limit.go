package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// under is the entry with limits in its Begin.
func (w *work) under(limits ...actors.Limited) *work {
	other := *w
	other.limits = limits
	return &other
}

func group(most int) actors.Limited { return actors.Limited{Name: messages.GroupLimit(), Most: most} }

func keyed(key string, most int) actors.Limited {
	return actors.Limited{Name: messages.KeyLimit("noop", key), Most: most}
}

// lined checks that the unit waits for a slot of the limit.
func (r *rig) lined(task *messages.Task, limit string) {
	r.t.Helper()
	u := r.unit(task)
	require.Equal(r.t, "PENDING", actors.StateName(u.State))
	require.Equal(r.t, limit, u.Limit)
}

var limitCases = map[string]func(*testing.T, *rig){
	"a unit without a slot waits in a line, and the end of another calls it": func(t *testing.T, r *rig) {
		one := r.deliver(newTask("one"), here).under(group(1))
		b := one.run()
		two, three := r.deliver(newTask("two"), there).under(group(1)), r.deliver(newTask("three"), there).under(group(1))
		two.answers(actors.Queued)
		three.answers(actors.Queued)
		require.False(t, r.World.Pending(t, two.ref), "acknowledged in the same script")
		two.answers(actors.NotOurs)
		r.lined(two.task, "group")
		require.Contains(t, r.World.Due(t), "l:g", "somebody looks")
		require.Empty(t, r.record("two").Owner)
		r.deliver(newTask("two"), third).under(group(1)).answers(actors.Elsewhere)

		r.commit(one.completed(b, "1"))
		r.commit(one.completed(b, "1")) // a lost reply frees nothing twice
		in := r.fromInbox(two.task, third).under(group(1))
		r.lined(two.task, "group")
		b = in.run()
		require.Empty(t, r.unit(two.task).Limit)
		require.WithinDuration(t, r.World.Now(t), b.Created, 5*time.Second)
		r.commit(in.completed(b, "2"))
		in = r.fromInbox(three.task, here).under(group(1))
		require.NotContains(t, r.World.Due(t), "l:g")
		r.commit(in.completed(in.run(), "3"))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		r.deliver(newTask("four"), here).under(group(1)).run()
	},
	"each way to end running gives the slot back": func(t *testing.T, r *rig) {
		ends := map[string]func(*work, actors.Begun){
			"completed":   func(w *work, b actors.Begun) { r.commit(w.completed(b, "ok")) },
			"retry":       func(w *work, b actors.Begun) { r.commit(w.retry(b, time.Hour)) },
			"rejected":    func(w *work, b actors.Begun) { r.commit(w.rejected(b, messages.Reason_REASON_REJECTED, "no")) },
			"parked":      func(w *work, b actors.Begun) { r.commit(w.outcome(b, messages.Outcome_OUTCOME_PARKED)) },
			"interrupted": func(w *work, b actors.Begun) { r.commit(w.outcome(b, messages.Outcome_OUTCOME_INTERRUPTED)) },
			"cancelled":   func(w *work, b actors.Begun) { r.commit(w.outcome(b, messages.Outcome_OUTCOME_CANCELLED)) },
			"cancel": func(w *work, _ actors.Begun) {
				_, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: w.task.GetTaskId(), TTL: time.Hour})
				require.NoError(t, err)
			},
			"lost": func(w *work, _ actors.Begun) { w.on(there); w.under(w.limits...).answers(actors.NotOurs) },
		}
		for name, end := range ends {
			w := r.deliver(newTask(name), here).under(group(1), keyed("k", 1))
			end(w, w.run())
		}
		r.deliver(newTask("last"), here).under(group(1), keyed("k", 1)).run()
	},
	"a slot survives the death of its node, and an actor's crash": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here).under(group(1))
		w.run()
		again := w.again().under(group(1))
		again.run()
		r.die(here, w.task, time.Second)
		other := r.deliver(newTask("b"), there).under(group(1))
		other.answers(actors.Queued)
		on := again.on(there)
		b := on.run()
		require.EqualValues(t, 1, b.Ledger.Deaths)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(there)))
		r.commit(on.completed(b, "ok"))
		in := r.fromInbox(other.task, there).under(group(1))
		in.run()
	},
	"a unit takes all its slots or waits for the first that is full, holding none": func(t *testing.T, r *rig) {
		a := r.deliver(newTask("a"), here).under(keyed("k", 1), group(2))
		ba := a.run()
		b := r.deliver(newTask("b"), here).under(keyed("k", 1), group(2))
		b.answers(actors.Queued)
		r.lined(b.task, "noop k")
		c := r.deliver(newTask("c"), here).under(keyed("other", 1), group(2))
		bc := c.run()
		d := r.deliver(newTask("d"), here).under(keyed("third", 1), group(2))
		d.answers(actors.Queued)
		r.lined(d.task, "group")
		// The end of a frees both; b is called for the key's and d for the group's, which b has none of then.
		r.commit(a.completed(ba, "ok"))
		got := map[string]*work{}
		for _, e := range r.World.TakeInbox(t, consumerOf(here)) {
			id := e.Field(messages.ControlID)
			in := &work{rig: r, task: newTask(id), ref: e.Ref, deliveries: 1, node: here, act: 1}
			_, err := fmt.Sscan(e.Field(messages.ControlWake), &in.wake)
			require.NoError(t, err)
			got[id] = in
		}
		require.Len(t, got, 2)
		got["b"].under(keyed("k", 1), group(2)).answers(actors.Queued)
		r.lined(b.task, "group")
		in := got["d"].under(keyed("third", 1), group(2))
		bd := in.run()
		r.deliver(newTask("e"), there).under(keyed("k", 1)).run() // nobody has the key's
		r.commit(in.completed(bd, "ok"))
		in = r.fromInbox(b.task, here).under(keyed("k", 1), group(2))
		in.answers(actors.Queued)
		r.lined(b.task, "noop k")
		r.commit(c.completed(bc, "ok"))
	},
	"who comes anew does not pass those in the line": func(t *testing.T, r *rig) {
		a := r.deliver(newTask("a"), here).under(group(1))
		ba := a.run()
		b := r.deliver(newTask("b"), here).under(group(1))
		b.answers(actors.Queued)
		r.commit(a.completed(ba, "ok"))
		c := r.deliver(newTask("c"), there).under(group(1))
		c.answers(actors.Queued) // b was called and is on its way
		in := r.fromInbox(b.task, here).under(group(1))
		bb := in.run()
		r.commit(in.completed(bb, "ok"))
		in = r.fromInbox(c.task, here).under(group(1))
		// A limit that was raised lets more of the line go.
		in.run()
		r.deliver(newTask("d"), here).under(group(1)).answers(actors.Queued)
		r.deliver(newTask("e"), here).under(group(3)).answers(actors.Queued)
		require.Len(t, r.World.TakeInbox(t, consumerOf(here)), 2)
	},
	"a retry, a woken unit and one with a place of its own keep what they are": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here).under(group(1))
		r.commit(w.retry(w.run(), 0))
		hold := r.deliver(newTask("hold"), here).under(group(1))
		b := hold.run()
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, there).under(group(1))
		in.answers(actors.Queued)
		r.lined(w.task, "group")
		require.Empty(t, r.World.Index(t, messages.State_STATE_RETRYING, "noop"))
		require.Equal(t, actors.Ledger{Failures: 1}, r.unit(w.task).Ledger)
		r.commit(hold.completed(b, "ok"))
		in = r.fromInbox(w.task, there).under(group(1))
		require.EqualValues(t, 2, in.wake)
		got := in.run()
		require.Equal(t, actors.Ledger{Failures: 1}, got.Ledger)
		r.commit(in.completed(got, "ok"))
	},
	"what is cancelled in the line leaves it": func(t *testing.T, r *rig) {
		a := r.deliver(newTask("a"), here).under(group(1))
		b := a.run()
		r.deliver(newTask("b"), here).under(group(1)).answers(actors.Queued)
		r.deliver(newTask("c"), here).under(group(1)).answers(actors.Queued)
		_, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: "b", TTL: time.Hour})
		require.NoError(t, err)
		require.Greater(t, r.record("b").TTL, time.Minute)
		r.commit(a.completed(b, "ok"))
		in := r.fromInbox(newTask("c"), here).under(group(1))
		// Cancelled after it was called: the next one has the call.
		r.deliver(newTask("d"), here).under(group(1)).answers(actors.Queued)
		_, err = r.State.Cancel(t.Context(), actors.Cancellation{ID: "c", TTL: time.Hour})
		require.NoError(t, err)
		in.answers(actors.CancelledBefore)
		in = r.fromInbox(newTask("d"), here).under(group(1))
		r.commit(in.completed(in.run(), "ok"))
	},
	"an entry without a body cannot wait in a line": func(t *testing.T, r *rig) {
		r.deliver(newTask("a"), here).under(group(1)).run()
		b := r.deliver(newTask("b"), here).under(group(1))
		r.World.Trim(t, b.ref)
		got := b.begin()
		require.Equal(t, actors.Later, got.Answer)
		require.Positive(t, got.Wait)
		require.True(t, r.World.Pending(t, b.ref))
	},
	"a unit that waited keeps its task's next one from nothing": func(t *testing.T, r *rig) {
		r.deliver(newTask("hold"), here).under(group(1)).run()
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		two, three := r.deliver(part("a", "2"), there), r.deliver(part("a", "3"), there)
		two.under(group(1)).answers(actors.Queued)
		three.answers(actors.Queued)
		r.commit(one.completed(b, "1"))
		in := r.fromInbox(two.task, there)
		in.under(group(1)).answers(actors.Queued)
		r.lined(two.task, "group")
		in = r.fromInbox(three.task, there)
		r.commit(in.completed(in.run(), "3"))
		require.Zero(t, r.record("a").TTL, "one of its units waits for a slot")
	},
	"nodes that begin at once share the slots": func(t *testing.T, r *rig) {
		var begun []actors.Begun
		answers := make(chan actors.Begun, 40)
		for i := range 40 {
			w := r.deliver(newTask(fmt.Sprint("t", i)), here).under(group(7))
			go func() {
				store := r.State
				if i%2 == 1 {
					store = r.Other
				}
				b, err := store.Begin(t.Context(), w.request())
				if err != nil {
					t.Error(err)
				}
				answers <- b
			}()
		}
		for range 40 {
			if b := <-answers; b.Answer == actors.Run {
				begun = append(begun, b)
			}
		}
		require.Len(t, begun, 7)
	},
}
