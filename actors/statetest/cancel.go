package statetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// cancel ends all of a task, or one unit of it, and expects it to be done.
func (r *rig) cancel(id, unit string) []actors.CancelledUnit {
	r.t.Helper()
	ended, err := r.State.Cancel(r.t.Context(), actors.Cancellation{ID: id, Unit: unit, Reason: "not wanted", By: "a test"})
	require.NoError(r.t, err)
	return ended
}

// cancelled expects the unit to be CANCELLED, with all that this means, and its entry to be answered so.
func (w *work) cancelled() {
	w.t.Helper()
	u := w.unit(w.task)
	require.Equal(w.t, messages.State_STATE_CANCELLED, u.State)
	require.Equal(w.t, "not wanted", u.Error)
	require.Zero(w.t, u.Reason)
	require.Contains(w.t, w.World.Index(w.t, messages.State_STATE_CANCELLED, w.task.GetType()), member(w.task))
	for _, state := range []messages.State{
		messages.State_STATE_RETRYING, messages.State_STATE_WAITING, messages.State_STATE_SCHEDULED, messages.State_STATE_FAILED,
	} {
		require.NotContains(w.t, w.World.Index(w.t, state, w.task.GetType()), member(w.task))
	}
	require.NotContains(w.t, w.World.Due(w.t), "r:"+member(w.task))
	log := w.record(w.task.GetTaskId()).Log
	require.NotEmpty(w.t, log)
	require.Contains(w.t, log, actors.LogLine{At: log[len(log)-1].At, What: "cancelled", Detail: "not wanted (by a test)"})
	w.answers(actors.CancelledBefore)
}

func was(unit string, s messages.State) []actors.CancelledUnit {
	return []actors.CancelledUnit{{Unit: unit, Was: s}}
}

var cancelCases = map[string]func(*testing.T, *rig){
	"what was submitted for later is cancelled before and after it joins the stream": func(t *testing.T, r *rig) {
		got := r.submit(delayed(newTask("a"), 1000*time.Hour))[0]
		require.Equal(t, []actors.CancelledUnit{{Was: messages.State_STATE_SCHEDULED}}, r.cancel("a", ""))
		u := r.unit(newTask("a"))
		require.Equal(t, messages.State_STATE_CANCELLED, u.State)
		require.Equal(t, "noop", u.Type)
		require.Greater(t, r.record("a").TTL, time.Until(got.Due)+time.Hour, "it is known when its entry comes")
		require.Len(t, r.World.Delayed(t), 1, "other groups may want it")
		r.deliver(newTask("a"), here).answers(actors.CancelledBefore)
	},
	"an entry for later is cancelled while it waits": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.due = r.World.Now(t).Add(time.Hour)
		w.answers(actors.Elsewhere)
		require.Equal(t, []actors.CancelledUnit{{Was: messages.State_STATE_SCHEDULED}}, r.cancel("a", ""))
		require.Empty(t, r.World.Due(t))
		require.Empty(t, r.World.Index(t, messages.State_STATE_SCHEDULED, "noop"))
		require.Equal(t, []string{"a:"}, r.World.Index(t, messages.State_STATE_CANCELLED, "noop"))
		require.Positive(t, r.record("a").TTL)
		w.answers(actors.CancelledBefore)
	},
	"a running unit is ended at once, and its runner writes nothing more": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a{}"), here)
		b := w.run()
		require.Equal(t, was("", messages.State_STATE_RUNNING), r.cancel("a{}", ""))
		r.lost(w.completed(b, "late"))
		r.lost(w.retry(b, 0))
		r.lost(w.rejected(b, messages.Reason_REASON_REJECTED, "late"))
		r.lost(w.outcome(b, messages.Outcome_OUTCOME_PARKED))
		r.lost(w.outcome(b, messages.Outcome_OUTCOME_INTERRUPTED))
		require.ErrorIs(t, r.step(b, w.task, done("s", "late")), actors.ErrLeaseLost)
		for range 2 {
			r.commit(w.outcome(b, messages.Outcome_OUTCOME_CANCELLED)) // its own word is a repeat
		}
		w.cancelled()
		require.EqualValues(t, 1, r.World.Count(t, "cancelled"))
		require.Empty(t, r.World.Dead(t))
		rec := r.record("a{}")
		require.Empty(t, rec.Owner)
		require.Greater(t, rec.Fence, b.Fence.Number)
		require.WithinRange(t, r.World.Now(t).Add(rec.TTL), r.World.Now(t).Add(week-time.Minute), r.World.Now(t).Add(week+time.Minute))
	},
	"a submitted unit never begins": func(t *testing.T, r *rig) {
		r.submit(submission(newTask("a")))
		created := r.unit(newTask("a")).Created
		require.Equal(t, was("", messages.State_STATE_PENDING), r.cancel("a", ""))
		require.True(t, r.submit(submission(newTask("a")))[0].Known)
		w := r.deliver(newTask("a"), here)
		w.cancelled()
		require.True(t, r.unit(w.task).Created.Equal(created))
		require.Equal(t, "noop", r.unit(w.task).Type)
		other := newTask("a")
		other.Payload = []byte("other work")
		r.deliver(other, here).answers(actors.Conflict)
		require.Positive(t, r.record("a").TTL)
	},
	"a unit that was given back never begins again": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.outcome(w.run(), messages.Outcome_OUTCOME_INTERRUPTED))
		require.Equal(t, was("", messages.State_STATE_PENDING), r.cancel("a", ""))
		w.on(there).cancelled()
	},
	"a retry is not due any more": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.retry(w.run(), time.Hour))
		require.Equal(t, was("", messages.State_STATE_RETRYING), r.cancel("a", ""))
		w.cancelled()
		require.Empty(t, r.World.Due(t))
	},
	"a retry that was promoted does not run": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.retry(w.run(), 0))
		r.World.Promote(t, "a", "")
		require.Equal(t, was("", messages.State_STATE_RETRYING), r.cancel("a", ""))
		r.fromInbox(w.task, there).cancelled()
	},
	"a parked unit is not woken": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.outcome(w.run(), messages.Outcome_OUTCOME_PARKED))
		require.Equal(t, was("", messages.State_STATE_WAITING), r.cancel("a", ""))
		w.cancelled()
	},
	"a unit that waits for the task's owner does not run when its turn comes": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		two, three := r.deliver(part("a", "2{}"), there), r.deliver(part("a", "3"), there)
		two.answers(actors.Queued)
		three.answers(actors.Queued)
		require.Equal(t, was("2{}", messages.State_STATE_PENDING), r.cancel("a", "2{}"))
		r.state(one.task, messages.State_STATE_RUNNING)
		require.Equal(t, here, r.record("a").Owner)
		r.commit(one.completed(b, "1"))
		in := r.fromInbox(two.task, third)
		in.cancelled()
		require.Equal(t, "noop", r.unit(two.task).Type)
		in = r.fromInbox(three.task, third) // its turn has come with that answer
		r.commit(in.completed(in.run(), "3"))
		require.Positive(t, r.record("a").TTL)
	},
	"what waits for a cancelled task's owner goes on": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		one.run()
		two := r.deliver(part("a", "2"), there)
		two.answers(actors.Queued)
		r.cancel("a", "1")
		require.Empty(t, r.record("a").Owner)
		in := r.fromInbox(two.task, third)
		r.commit(in.completed(in.run(), "2"))
		one.cancelled()
		require.Positive(t, r.record("a").TTL)
	},
	"a task is cancelled with all of its units": func(t *testing.T, r *rig) {
		r.submit(submission(part("a", "never")))
		done, runs := r.deliver(part("a", "done"), here), r.deliver(part("a", "a/b"), here)
		r.commit(done.completed(done.run(), "ok"))
		b := runs.run()
		require.NoError(t, r.step(b, runs.task, messages.Step{Name: "x/state", Status: messages.StepDone}))
		waits := r.deliver(part("a", "waits"), there)
		waits.answers(actors.Queued)
		retries := r.deliver(part("a", "retries"), here)
		r.commit(retries.retry(retries.run(), time.Hour))
		require.Equal(t, []actors.CancelledUnit{
			{Unit: "a/b", Was: messages.State_STATE_RUNNING},
			{Unit: "never", Was: messages.State_STATE_PENDING},
			{Unit: "retries", Was: messages.State_STATE_RETRYING},
		}, r.cancel("a", ""))
		r.state(done.task, messages.State_STATE_SUCCEEDED)
		runs.cancelled()
		retries.cancelled()
		r.deliver(part("a", "never"), here).cancelled()
	},
	"a unit at work keeps the task while another is cancelled": func(t *testing.T, r *rig) {
		r.submit(submission(part("a", "1")))
		two := r.deliver(part("a", "2"), here)
		b := two.run()
		three := r.deliver(part("a", "3"), there)
		three.answers(actors.Queued)
		r.cancel("a", "1")
		require.Equal(t, here, r.record("a").Owner)
		require.EqualValues(t, 1, r.record("a").Queued)
		require.Zero(t, r.record("a").TTL, "units 2 and 3 are open")
		r.commit(two.completed(b, "ok"))
		r.fromInbox(three.task, there).run()
	},
	"what has ended stays as it is": func(t *testing.T, r *rig) {
		ended := func(id string, want messages.State) {
			t.Helper()
			_, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: id})
			require.ErrorIs(t, err, actors.ErrEnded)
			var how *actors.EndedError
			require.ErrorAs(t, err, &how)
			require.Equal(t, actors.EndedError{ID: id, State: want}, *how)
		}
		w := r.deliver(newTask("ok"), here)
		r.commit(w.completed(w.run(), "ok"))
		ended("ok", messages.State_STATE_SUCCEEDED)
		r.state(w.task, messages.State_STATE_SUCCEEDED)
		w = r.deliver(part("ok", "2"), here)
		r.commit(w.rejected(w.run(), messages.Reason_REASON_REJECTED, "no"))
		ended("ok", messages.State_STATE_FAILED)
		r.submit(submission(part("ok", "3")))
		r.cancel("ok", "")
		ended("ok", messages.State_STATE_CANCELLED)
		require.Len(t, r.World.Dead(t), 1)
		require.EqualValues(t, 1, r.World.Count(t, "cancelled"))
	},
	"nobody is no task": func(t *testing.T, r *rig) {
		r.deliver(part("a", "1"), here).run()
		for _, c := range []actors.Cancellation{{ID: "unknown"}, {ID: "a", Unit: "2"}} {
			_, err := r.State.Cancel(t.Context(), c)
			require.ErrorIs(t, err, actors.ErrNoTask)
		}
		_, err := r.State.Task(t.Context(), "unknown")
		require.ErrorIs(t, err, actors.ErrNoTask)
		require.Len(t, r.record("a").Units, 1)
	},
	"a producer's own entry, not begun yet, is cancelled by its type": func(t *testing.T, r *rig) {
		for _, unit := range []string{"", "1"} {
			w := r.deliver(part("a{}", unit), here)
			ended, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: "a{}", Unit: unit, Type: "noop", Reason: "not wanted", By: "a test"})
			require.NoError(t, err)
			require.Equal(t, was(unit, messages.State_STATE_PENDING), ended)
			w.cancelled()
		}
	},
	"a dead node's task is not brought back": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		r.cancel("a", "")
		r.World.Live(t, here, false)
		w.on(there).cancelled()
		require.Zero(t, r.unit(w.task).Ledger)
	},
	"a crashed actor's task is not brought back": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		r.cancel("a", "")
		req := w.again().request()
		req.Crash = "boom"
		b, err := r.State.Begin(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, actors.CancelledBefore, b.Answer)
		require.Zero(t, r.unit(w.task).Ledger)
		require.Equal(t, "not wanted", r.unit(w.task).Error)
	},
	"a trial ends": func(t *testing.T, r *rig) {
		one := r.deliver(newTask("a"), here)
		one, b := one.kill([]string{there, third}, time.Second)
		require.True(t, b.Trial)
		for _, node := range []string{here, there} {
			r.World.Live(t, node, true)
		}
		two := r.deliver(newTask("b"), here)
		two.run()
		r.die(here, two.task, time.Second)
		two = two.on(there)
		two.run()
		r.die(there, two.task, time.Second)
		two = two.on(third)
		two.answers(actors.Later)
		r.cancel("a", "")
		require.True(t, two.run().Trial, "the place is free")
		one.cancelled()
	},
	"a condemned unit is cancelled, not failed": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.deliveries = 9
		b := w.answers(actors.Condemned)
		r.cancel("a", "")
		r.lost(w.rejected(b, b.Reason, b.Detail))
		w.cancelled()
	},
	"long words are kept": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		long := strings.Repeat("why not? ", 100)
		_, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: "a", Reason: long, TTL: time.Hour})
		require.NoError(t, err)
		require.Equal(t, long, r.unit(w.task).Error)
		rec := r.record("a")
		require.Equal(t, long, rec.Log[0].Detail)
		require.InDelta(t, time.Hour, rec.TTL, float64(time.Minute))
	},
	"for ever": func(t *testing.T, r *rig) {
		r.submit(submission(newTask("a")))
		_, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: "a", TTL: -1})
		require.NoError(t, err)
		require.Zero(t, r.record("a").TTL)
		require.Equal(t, "no reason was given", r.unit(newTask("a")).Error)
		w := r.deliver(part("a", "2"), here)
		r.commit(w.completed(w.run(), "ok"))
		require.Positive(t, r.record("a").TTL, "the last unit's end says how long")
	},
}
