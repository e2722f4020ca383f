package statetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// part is one unit of a task.
func part(id, unit string) *messages.Task {
	t := newTask(id)
	t.Unit, t.Payload = unit, []byte("part "+unit)
	return t
}

var ownerCases = map[string]func(*testing.T, *rig){
	"another live owner's task waits with it, and comes back one by one": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		two, three := r.deliver(part("a", "2"), there), r.deliver(part("a", "3"), there)
		two.answers(actors.Queued)
		three.answers(actors.Queued)
		require.False(t, r.World.Pending(t, two.ref), "acknowledged in the same script")
		two.answers(actors.NotOurs)
		require.EqualValues(t, 2, r.record("a").Queued)
		due := r.World.Due(t)
		require.Contains(t, due, "q:a", "a check stands in the due set")
		require.True(t, due["q:a"].After(r.World.Now(t).Add(time.Second)), "not before the owner can be dead")

		r.commit(one.completed(b, "1"))
		require.Empty(t, r.record("a").Owner)
		in := r.fromInbox(two.task, third)
		require.NotEqual(t, two.ref, in.ref)
		require.EqualValues(t, 1, r.record("a").Queued)
		b = in.run()
		r.commit(in.completed(b, "2"))
		in = r.fromInbox(three.task, there)
		require.Zero(t, r.record("a").Queued)
		r.commit(in.completed(in.run(), "3"))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		for _, w := range []*work{one, two, three} {
			require.Equal(t, w.task.GetUnit(), string(r.unit(w.task).Result))
		}
	},
	"each outcome ends ownership": func(t *testing.T, r *rig) {
		for id, commit := range map[string]func(*work, actors.Begun) actors.Commit{
			"retry": func(w *work, b actors.Begun) actors.Commit { return w.retry(b, time.Hour) },
			"reject": func(w *work, b actors.Begun) actors.Commit {
				return w.rejected(b, messages.Reason_REASON_REJECTED, "no")
			},
			"cancel":    func(w *work, b actors.Begun) actors.Commit { return w.outcome(b, messages.Outcome_OUTCOME_CANCELLED) },
			"interrupt": func(w *work, b actors.Begun) actors.Commit { return w.outcome(b, messages.Outcome_OUTCOME_INTERRUPTED) },
		} {
			w := r.deliver(part(id, "1"), here)
			b := w.run()
			other := r.deliver(part(id, "2"), there)
			other.answers(actors.Queued)
			r.commit(commit(w, b))
			require.Empty(t, r.record(id).Owner, id)
			in := r.fromInbox(other.task, third)
			r.commit(in.completed(in.run(), "ok"))
		}
	},
	"a waiting inbox entry keeps its wake number and origin": func(t *testing.T, r *rig) {
		w := r.deliver(part("a", "1"), here)
		r.commit(w.retry(w.run(), 0))
		other := r.deliver(part("a", "2"), there)
		b := other.run()
		r.World.Promote(t, "a", "1")
		in := r.fromInbox(w.task, here)
		require.EqualValues(t, 1, in.wake)
		in.answers(actors.Queued)
		r.commit(other.completed(b, "ok"))
		got := r.World.TakeInbox(t, consumerOf(here))
		require.Len(t, got, 1)
		require.Equal(t, w.ref.ID, got[0].Field(messages.ControlOrigin))
		require.Equal(t, "1", got[0].Field(messages.ControlWake))
		in = &work{rig: r, task: w.task, ref: got[0].Ref, wake: 1, deliveries: 1, node: here, act: 5}
		r.commit(in.completed(in.run(), "ok"))
	},
	"a second entry of a running unit waits and finds it done": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		twin := r.deliver(newTask("a"), there)
		twin.answers(actors.Queued)
		r.commit(w.completed(b, "once"))
		r.fromInbox(twin.task, there).answers(actors.AlreadyDone)
	},
	"twins that waited are woken in turn though nothing is left to do": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		for range 3 {
			r.deliver(newTask("a"), there).answers(actors.Queued)
		}
		r.commit(w.completed(b, "once"))
		for range 3 {
			r.fromInbox(w.task, third).answers(actors.AlreadyDone)
		}
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		require.Zero(t, r.record("a").Queued)
	},
	"a dead owner owns nothing": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		one.run()
		r.World.Live(t, here, false)
		two := r.deliver(part("a", "2"), there)
		b := two.run()
		require.Equal(t, there, r.record("a").Owner)
		require.Equal(t, actors.Ledger{}, b.Ledger, "the other unit's death is not its own")
	},
	"who lost the task to another unit's node does not end that one's ownership": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		r.World.Live(t, here, false)
		two := r.deliver(part("a", "2"), there)
		two.run()
		r.World.Live(t, here, true)
		r.commit(one.completed(b, "late, and nobody else began it"))
		require.Equal(t, there, r.record("a").Owner)
		r.deliver(part("a", "3"), third).answers(actors.Queued)
	},
	"what waits does not expire with the record of what has ended": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		two, three := r.deliver(part("a", "2"), there), r.deliver(part("a", "3"), there)
		two.answers(actors.Queued)
		three.answers(actors.Queued)
		r.commit(one.completed(b, "1"))
		require.Zero(t, r.record("a").TTL, "3 waits, and stands nowhere else")
		in := r.fromInbox(two.task, third)
		r.commit(in.completed(in.run(), "2"))
		require.Positive(t, r.record("a").TTL, "3 stands in the inbox")
		in = r.fromInbox(three.task, there)
		b = in.run()
		require.Zero(t, r.record("a").TTL)
		r.commit(in.completed(b, "3"))
		require.Positive(t, r.record("a").TTL)
	},
	"who asks for an entry that went to another node gives its task up": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		claimed := w.on(there)
		claimed.answers(actors.Queued) // the owner lives: it was silent, and is back
		w.again().answers(actors.NotOurs)
		require.Empty(t, r.record("a").Owner)
		in := r.fromInbox(w.task, there)
		b := in.run()
		require.Zero(t, b.Ledger.Deaths)
		require.EqualValues(t, 1, b.Ledger.Interruptions)
		w.again().answers(actors.NotOurs)
		r.commit(in.completed(b, "ok"))
	},
	"everyone is alive while calm": func(t *testing.T, r *rig) {
		one := r.deliver(newTask("a"), here)
		one.run()
		r.World.Live(t, here, false)
		r.World.Calm(t, r.World.Now(t).Add(time.Minute))
		one.on(there).answers(actors.Queued)
		r.World.Calm(t, time.Time{})
		r.deliver(newTask("a"), third).run()
	},
	"an entry whose body is gone cannot wait": func(t *testing.T, r *rig) {
		r.deliver(part("a", "1"), here).run()
		two := r.deliver(part("a", "2"), there)
		r.World.Trim(t, two.ref)
		b := two.answers(actors.Later)
		require.Positive(t, b.Wait)
		require.True(t, r.World.Pending(t, two.ref))
		require.Zero(t, r.record("a").Queued)
	},
	"an hour-old owner that lives keeps the task": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		for range 3 {
			r.deliver(part("a", "2"), there).answers(actors.Queued)
		}
		again := r.deliver(part("a", "4"), here)
		r.commit(one.completed(b, "ok"))
		require.Equal(t, actors.Run, again.begin().Answer)
	},
}
