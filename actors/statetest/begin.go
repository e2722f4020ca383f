package statetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var beginCases = map[string]func(*testing.T, *rig){
	"a new task runs": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		require.Equal(t, actors.Ledger{}, b.Ledger)
		require.WithinDuration(t, r.World.Now(t), b.Created, 5*time.Second)
		require.False(t, b.Steps)
		require.False(t, b.Trial)
		rec := r.record("a")
		require.Equal(t, here, rec.Owner)
		require.Equal(t, b.Fence.Number, rec.Fence)
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_RUNNING, u.State)
		require.Equal(t, "noop", u.Type)
		require.True(t, u.Began.Equal(b.Created))
	},
	"the same call again answers the same": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		first := w.run()
		require.Equal(t, first, w.run())
		require.Equal(t, first, w.run())
	},
	"a fresh actor on the same node gets a new fence": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		first := w.run()
		w2 := w.again()
		second := w2.run()
		require.Greater(t, second.Fence.Number, first.Fence.Number)
		require.Equal(t, actors.Ledger{}, second.Ledger, "a restart without a crash is free")
		r.lost(w.completed(first, "late"))
		r.commit(w2.completed(second, "ok"))
	},
	"a crash is charged once": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		w2 := w.again()
		req := w2.request()
		req.Crash = "panic: boom"
		for range 3 {
			b, err := r.State.Begin(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, actors.Run, b.Answer)
			require.Equal(t, actors.Ledger{Crashes: 1}, b.Ledger)
			require.EqualValues(t, 2, b.Ledger.Attempt())
		}
		require.Equal(t, "panic: boom", r.unit(w.task).Error)
	},
	"a crash before the first begin is charged": func(t *testing.T, r *rig) {
		req := r.deliver(newTask("a"), here).request()
		req.Crash = "panic in decode"
		for range 2 {
			b, err := r.State.Begin(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, actors.Run, b.Answer)
			require.Equal(t, actors.Ledger{Crashes: 1}, b.Ledger)
		}
	},
	"an entry that is not pending with us is not ours": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), there)
		mine := *w
		mine.node = here
		mine.answers(actors.NotOurs)
		r.World.Ack(t, w.ref)
		w.answers(actors.NotOurs)
		never := *w
		never.ref.ID = "1-1"
		never.answers(actors.NotOurs)
		never.ref.Stream = r.Names.Stream + "x"
		_, err := r.State.Task(t.Context(), "a")
		require.ErrorIs(t, err, actors.ErrNoTask, "nothing was written")
	},
	"a node whose liveness key is gone begins nothing": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.World.Live(t, here, false)
		w.answers(actors.NotOurs)
		r.World.Live(t, here, true)
		w.run()
	},
	"an ended unit is done": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.completed(w.run(), "ok"))
		w.answers(actors.AlreadyDone)
		w.on(there).answers(actors.AlreadyDone)
		r.deliver(newTask("a"), third).answers(actors.AlreadyDone)

		f := r.deliver(newTask("f"), here)
		r.commit(f.rejected(f.run(), messages.Reason_REASON_REJECTED, "no"))
		f.again().answers(actors.AlreadyDone)
	},
	"a cancelled unit is cancelled": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.outcome(w.run(), messages.Outcome_OUTCOME_CANCELLED))
		w.again().answers(actors.CancelledBefore)
	},
	"other work under the same identity is a conflict": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		other := newTask("a")
		other.Payload = []byte(`{"n":2}`)
		r.deliver(other, here).answers(actors.Conflict)
		r.deliver(other, there).answers(actors.Conflict)
		otherType := newTask("a")
		otherType.Type = "echo"
		r.deliver(otherType, here).answers(actors.Conflict)
		r.commit(w.completed(b, "untouched"))
		r.deliver(other, here).answers(actors.Conflict)
		require.Equal(t, "untouched", string(r.unit(w.task).Result))
	},
	"an entry never begun and delivered too often is condemned": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.deliveries = 4
		b := w.answers(actors.Condemned)
		require.Equal(t, messages.Reason_REASON_NEVER_BEGUN, b.Reason)
		require.Contains(t, b.Detail, "4")
		require.Equal(t, b, w.begin(), "the same call again")
		again := w.again().answers(actors.Condemned)
		r.lost(w.rejected(b, b.Reason, b.Detail))
		r.commit(w.again().rejected(again, again.Reason, again.Detail))
		r.state(w.task, messages.State_STATE_FAILED)
		w.answers(actors.AlreadyDone)
	},
	"a begun entry is not condemned for its deliveries": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		w2 := w.again()
		w2.deliveries = 9
		w2.run()
		off := r.deliver(newTask("b"), here)
		req := off.request()
		req.Deliveries, req.MaxDeliveries = 100, -1
		b, err := r.State.Begin(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, actors.Run, b.Answer)
	},
	"a unit that waited behind its task is not condemned for its deliveries": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		r.commit(one.completed(one.run(), "1"))
		two := r.deliver(part("a", "2"), here)
		two.deliveries = 9
		r.commit(two.completed(two.run(), "2"))
	},
	"a store that was wiped begins anew": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.World.Wipe(t)
		w.answers(actors.NotOurs)
		r.lost(w.completed(b, "late"))
		require.ErrorIs(t, r.step(b, w.task, messages.Step{Name: "s", Status: messages.StepDone}), actors.ErrLeaseLost)
		r.World.Live(t, there, true)
		w2 := r.deliver(newTask("a"), there)
		b2 := w2.run()
		require.Equal(t, b.Fence.Number, b2.Fence.Number, "numbers repeat: that is why they are not enough")
		r.lost(w.completed(b, "late"))
		r.commit(w2.completed(b2, "ok"))
		require.Equal(t, "ok", string(r.unit(w.task).Result))
	},
}
