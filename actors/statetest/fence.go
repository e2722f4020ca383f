package statetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func done(name, value string) messages.Step {
	return messages.Step{Name: name, Status: messages.StepDone, Attempts: 1, BeganMS: 1, EndedMS: 2, ContentType: "t", Value: []byte(value)}
}

var fenceCases = map[string]func(*testing.T, *rig){
	"number, incarnation and activation must all match": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		for _, f := range []actors.Fence{
			{},
			{Number: b.Fence.Number + 1, Incarnation: here, Activation: 1},
			{Number: b.Fence.Number, Incarnation: there, Activation: 1},
			{Number: b.Fence.Number, Incarnation: here, Activation: 2},
		} {
			bad := b
			bad.Fence = f
			r.lost(w.completed(bad, "no"))
			r.lost(w.retry(bad, 0))
			r.lost(w.rejected(bad, messages.Reason_REASON_REJECTED, "no"))
			require.ErrorIs(t, r.step(bad, w.task, done("s", "v")), actors.ErrLeaseLost)
		}
		r.state(w.task, messages.State_STATE_RUNNING)
		require.Empty(t, r.World.Dead(t))
		require.Empty(t, r.World.Due(t))
	},
	"an ended activation writes nothing more": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.commit(w.completed(b, "first"))
		require.ErrorIs(t, r.step(b, w.task, done("s", "v")), actors.ErrLeaseLost)
		r.lost(w.retry(b, 0))
		r.lost(w.rejected(b, messages.Reason_REASON_REJECTED, "no"))
		require.Equal(t, "first", string(r.unit(w.task).Result))
		w = r.deliver(newTask("b"), here)
		b = w.run()
		r.commit(w.rejected(b, messages.Reason_REASON_REJECTED, "no"))
		r.lost(w.retry(b, 0))
		r.lost(w.completed(b, "late"))
		r.state(w.task, messages.State_STATE_FAILED)
		require.Empty(t, r.World.Due(t))
	},
	"a retry is not ended by what it replaced": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.commit(w.retry(b, 0))
		r.lost(w.completed(b, "late"))
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, there)
		in.run()
		r.lost(w.retry(b, 0))
		r.lost(w.completed(b, "late"))
		require.EqualValues(t, 1, r.unit(w.task).Ledger.Failures)
	},
	"what was given back is completed by nobody late": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.commit(w.outcome(b, messages.Outcome_OUTCOME_INTERRUPTED))
		r.lost(w.completed(b, "late"))
		require.ErrorIs(t, r.step(b, w.task, done("s", "v")), actors.ErrLeaseLost)
		r.state(w.task, messages.State_STATE_PENDING)
	},
	"fences of one task's units do not disturb each other": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here)
		b1, b2 := one.run(), two.run()
		require.Greater(t, b2.Fence.Number, b1.Fence.Number)
		require.NoError(t, r.step(b1, one.task, done("s", "one")))
		require.NoError(t, r.step(b2, two.task, done("s", "two")))
		r.commit(one.completed(b1, "1"))
		r.commit(two.completed(b2, "2"))
	},
	"an unknown task has no fence": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := actors.Begun{Fence: actors.Fence{Number: 1, Incarnation: here, Activation: 1}}
		r.lost(w.completed(b, "x"))
		require.ErrorIs(t, r.step(b, w.task, done("s", "v")), actors.ErrLeaseLost)
		_, err := r.State.Task(t.Context(), "a")
		require.ErrorIs(t, err, actors.ErrNoTask)
	},
	"checkpoints survive the activation, short and long, in their order": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		steps := []messages.Step{
			done("plan:1", "short"),
			done("pay/{x}%", allBytes(300)),
			{Name: "call", Status: messages.StepIntent, Attempts: 2, BeganMS: 9},
			{Name: "spent", Status: messages.StepSpent, Attempts: 5, BeganMS: 12, EndedMS: 13, Error: "no such host\nat all"},
		}
		for i := range steps {
			steps[i].BeganMS = int64(100 * (i + 1))
			require.NoError(t, r.step(b, w.task, steps[i]))
			require.NoError(t, r.step(b, w.task, steps[i]), "a lost reply")
		}
		got, err := r.State.Steps(t.Context(), "a", "")
		require.NoError(t, err)
		require.Equal(t, steps, got)
		w2 := w.again()
		b2 := w2.run()
		require.True(t, b2.Steps)
		require.ErrorIs(t, r.step(b, w.task, done("late", "x")), actors.ErrLeaseLost)
		r.commit(w2.retry(b2, 0))
		r.World.Promote(t, "a", "")
		require.True(t, r.fromInbox(w.task, there).run().Steps)
		require.Equal(t, steps, r.record("a").Units[0].Steps)
	},
	"a checkpoint moves between short and long": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		for _, n := range []int{0, 500, 3, 64, 65, 1, 100_000, 2} {
			want := done("s", allBytes(n))
			if n == 0 {
				want.Value = nil
			}
			require.NoError(t, r.step(b, w.task, want))
			got, err := r.State.Steps(t.Context(), "a", "")
			require.NoError(t, err)
			require.Equal(t, []messages.Step{want}, got, "%d bytes", n)
		}
	},
	"steps belong to their unit": func(t *testing.T, r *rig) {
		units := []string{"", "a", "a/b", "step", "step:x", "%2F", "{}"}
		for _, u := range units {
			w := r.deliver(part("t", u), here)
			require.NoError(t, r.step(w.run(), w.task, done("s/"+u, "of "+u)))
		}
		for _, u := range units {
			got, err := r.State.Steps(t.Context(), "t", u)
			require.NoError(t, err)
			require.Equal(t, []messages.Step{done("s/"+u, "of "+u)}, got, "unit %q", u)
		}
		rec := r.record("t")
		require.Len(t, rec.Units, len(units))
		for _, u := range rec.Units {
			require.Equal(t, []messages.Step{done("s/"+u.Unit, "of "+u.Unit)}, u.Steps)
		}
	},
	"no steps are no error": func(t *testing.T, r *rig) {
		got, err := r.State.Steps(t.Context(), "nobody", "")
		require.NoError(t, err)
		require.Empty(t, got)
	},
	"began is renewed, created is not": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		require.Eventually(t, func() bool { return r.World.Now(t).After(b.Created.Add(2 * time.Millisecond)) }, 5*time.Second, time.Millisecond)
		again := w.again().run()
		require.True(t, again.Created.Equal(b.Created))
		require.True(t, r.unit(w.task).Began.After(b.Created))
	},
}
