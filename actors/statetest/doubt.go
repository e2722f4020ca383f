package statetest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// inDoubt delivers a task that ends in doubt on a step, with the intent of it as its checkpoint.
func (r *rig) inDoubt(task *messages.Task, step string) *work {
	r.t.Helper()
	w := r.deliver(task, here)
	b := w.run()
	require.NoError(r.t, r.step(b, task, messages.Step{Name: step, Status: messages.StepIntent, Attempts: 3, BeganMS: 77}))
	r.commit(w.doubt(b, step))
	r.World.Ack(r.t, w.ref)
	return w
}

func (w *work) doubt(b actors.Begun, step string) actors.Commit {
	c := w.outcome(b, messages.Outcome_OUTCOME_PARKED)
	c.Doubt, c.Error = step, "in doubt: step "+step
	return c
}

func (w *work) resolve(how actors.Resolving, step string) actors.Resolution {
	return actors.Resolution{
		ID: w.task.GetTaskId(), Unit: w.task.GetUnit(), Step: step, How: how, Reason: "I looked", By: "a person", TTL: week,
	}
}

func (r *rig) resolved(res actors.Resolution) {
	r.t.Helper()
	require.NoError(r.t, r.State.Resolve(r.t.Context(), res))
}

// noDoubt expects that the unit is not in doubt on that step.
func (r *rig) noDoubt(res actors.Resolution, state messages.State, doubt string) {
	r.t.Helper()
	err := r.State.Resolve(r.t.Context(), res)
	var none *actors.NoDoubtError
	require.ErrorAs(r.t, err, &none)
	require.Equal(r.t, actors.NoDoubtError{ID: res.ID, Unit: res.Unit, Step: res.Step, State: state, Doubt: doubt}, *none)
}

// doubts lists what is in doubt.
func (r *rig) doubts() []string {
	r.t.Helper()
	_, names := r.list(actors.TaskQuery{Doubt: true, Limit: 2})
	return names
}

var doubtCases = map[string]func(*testing.T, *rig){
	"a doubt is shown and listed, the latest first": func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b{}", "c"} {
			r.inDoubt(part(id, "u/1"), "pay:x")
			r.moments()
		}
		w := r.deliver(newTask("waits"), here)
		r.commit(w.outcome(w.run(), messages.Outcome_OUTCOME_PARKED))
		require.Equal(t, []string{"c/u/1", "b{}/u/1", "a/u/1"}, r.doubts())
		items, _ := r.list(actors.TaskQuery{Doubt: true, Type: "noop"})
		require.Len(t, items, 3)
		require.Equal(t, "pay:x", items[0].Unit.Doubt)
		require.Equal(t, messages.State_STATE_WAITING, items[0].Unit.State)
		require.Equal(t, "pay:x", r.unit(part("a", "u/1")).Doubt)
		require.Equal(t, "pay:x", r.record("a").Units[0].Doubt)
		_, names := r.list(actors.TaskQuery{Doubt: true, Type: "other"})
		require.Empty(t, names)
		require.Empty(t, r.unit(w.task).Doubt)
	},
	"what was done goes on with the result that a person gives": func(t *testing.T, r *rig) {
		for _, result := range []string{"", "ok", allBytes(300)} {
			w := r.inDoubt(part("a{}"+result[:min(len(result), 2)], "u"), "pay:%")
			res := w.resolve(actors.ResolveDone, "pay:%")
			res.ContentType, res.Result = "text/plain", []byte(result)
			r.resolved(res)
			r.resolved(res) // a lost reply
			u := r.unit(w.task)
			require.Equal(t, messages.State_STATE_PENDING, u.State)
			require.Empty(t, u.Doubt)
			require.Empty(t, r.doubts())
			in := r.fromInbox(w.task, there)
			b := in.run()
			require.True(t, b.Steps)
			steps, err := r.State.Steps(t.Context(), w.task.GetTaskId(), "u")
			require.NoError(t, err)
			require.Len(t, steps, 1)
			require.Positive(t, steps[0].EndedMS)
			want := messages.Step{Name: "pay:%", Status: messages.StepFound, Attempts: 3, BeganMS: 77, EndedMS: steps[0].EndedMS, ContentType: "text/plain"}
			if result != "" {
				want.Value = []byte(result)
			}
			require.Equal(t, want, steps[0])
			log := r.record(w.task.GetTaskId()).Log
			require.Equal(t, "resolved", log[len(log)-1].What)
			require.Equal(t, "pay:%: done, I looked (by a person)", log[len(log)-1].Detail)
			r.resolved(res)
			r.commit(in.completed(b, "ok"))
			r.noDoubt(in.resolve(actors.ResolveRerun, "pay:%"), messages.State_STATE_SUCCEEDED, "")
		}
	},
	"what did not happen runs again": func(t *testing.T, r *rig) {
		w := r.inDoubt(newTask("a"), "pay")
		res := w.resolve(actors.ResolveRerun, "pay")
		r.resolved(res)
		r.resolved(res)
		in := r.fromInbox(w.task, here)
		in.act = 2
		b := in.run()
		steps, err := r.State.Steps(t.Context(), "a", "")
		require.NoError(t, err)
		require.Empty(t, steps)
		// In doubt once more: what was said before does not count.
		require.NoError(t, r.step(b, w.task, messages.Step{Name: "pay", Status: messages.StepIntent, Attempts: 1, Value: make([]byte, 99)}))
		r.commit(in.doubt(b, "pay"))
		require.Equal(t, []string{"a/"}, r.doubts())
		r.resolved(res)
		require.Equal(t, messages.State_STATE_PENDING, r.unit(w.task).State)
		steps, err = r.State.Steps(t.Context(), "a", "")
		require.NoError(t, err)
		require.Empty(t, steps, "a long one, too")
	},
	"what is given up is a dead letter": func(t *testing.T, r *rig) {
		w := r.inDoubt(part("a{}", "u"), "pay")
		res := w.resolve(actors.ResolveFail, "pay")
		r.resolved(res)
		r.resolved(res)
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_IN_DOUBT, u.Reason)
		require.Contains(t, u.Error, "I looked (by a person)")
		require.Empty(t, r.doubts())
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		require.Greater(t, r.record("a{}").TTL, week-time.Minute)
		dead := r.World.Dead(t)
		require.Len(t, dead, 1)
		require.Equal(t, messages.Reason_REASON_IN_DOUBT, dead[0].GetReason())
		require.Contains(t, dead[0].GetDetail(), "step pay")
		require.Equal(t, w.ref, dead[0].GetEntry().Ref())
		require.Equal(t, "a{}", dead[0].GetTaskId())
		require.Equal(t, "u", dead[0].GetUnit())
		require.Equal(t, "noop", dead[0].GetType())
		require.EqualValues(t, 1, r.World.Count(t, "failed"))
		r.deliver(w.task, here).answers(actors.AlreadyDone)
	},
	"what is not in doubt on that step is not settled": func(t *testing.T, r *rig) {
		w := r.inDoubt(newTask("a"), "pay")
		for _, how := range []actors.Resolving{actors.ResolveDone, actors.ResolveRerun, actors.ResolveFail} {
			r.noDoubt(w.resolve(how, "mail"), messages.State_STATE_WAITING, "pay")
		}
		r.resolved(w.resolve(actors.ResolveRerun, "pay"))
		r.noDoubt(w.resolve(actors.ResolveDone, "pay"), messages.State_STATE_PENDING, "")
		r.noDoubt(w.resolve(actors.ResolveFail, "pay"), messages.State_STATE_PENDING, "")
		in := r.fromInbox(w.task, there)
		b := in.run()
		r.noDoubt(w.resolve(actors.ResolveDone, "pay"), messages.State_STATE_RUNNING, "")
		r.commit(in.completed(b, "ok"))

		waits := r.deliver(newTask("b"), here)
		r.commit(waits.outcome(waits.run(), messages.Outcome_OUTCOME_PARKED))
		r.noDoubt(waits.resolve(actors.ResolveRerun, "pay"), messages.State_STATE_WAITING, "")
		for _, res := range []actors.Resolution{
			{ID: "nobody", Step: "pay", How: actors.ResolveRerun}, {ID: "a", Unit: "2", Step: "pay", How: actors.ResolveRerun},
		} {
			require.ErrorIs(t, r.State.Resolve(t.Context(), res), actors.ErrNoTask)
		}
		for _, res := range []actors.Resolution{
			{ID: "a", How: actors.ResolveRerun},
			{ID: "a", Step: "pay"},
			{ID: "a", Step: "pay", How: actors.ResolveFail, Result: []byte("x")},
			{ID: "a", Step: "pay", How: actors.ResolveDone, ContentType: "no type\n"},
		} {
			require.ErrorIs(t, r.State.Resolve(t.Context(), res), actors.ErrInvalid)
		}
	},
	"a doubt ends with its unit": func(t *testing.T, r *rig) {
		w := r.inDoubt(newTask("a"), "pay")
		r.cancel("a", "")
		require.Empty(t, r.doubts())
		require.Empty(t, r.unit(w.task).Doubt)
		r.noDoubt(w.resolve(actors.ResolveRerun, "pay"), messages.State_STATE_CANCELLED, "")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"without a body it cannot go on, and says so": func(t *testing.T, r *rig) {
		for _, how := range []actors.Resolving{actors.ResolveDone, actors.ResolveRerun, actors.ResolveFail} {
			w := r.deliver(newTask(how.String()), here)
			b := w.run()
			r.World.Trim(t, w.ref)
			r.commit(w.doubt(b, "pay"))
			err := r.State.Resolve(t.Context(), w.resolve(how, "pay"))
			reason := messages.Reason_REASON_BODY_GONE
			if how == actors.ResolveFail {
				require.NoError(t, err)
				reason = messages.Reason_REASON_IN_DOUBT
			} else {
				require.ErrorIs(t, err, actors.ErrBodyGone)
			}
			u := r.unit(w.task)
			require.Equal(t, messages.State_STATE_FAILED, u.State)
			require.Equal(t, reason, u.Reason)
			require.Equal(t, reason, r.World.Dead(t)[len(r.World.Dead(t))-1].GetReason())
		}
		require.Empty(t, r.doubts())
	},
	"a parking whose reply was lost is not refused when a person was quick": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.commit(w.doubt(b, "pay"))
		r.resolved(w.resolve(actors.ResolveDone, "pay"))
		r.commit(w.doubt(b, "pay"))
		r.state(w.task, messages.State_STATE_PENDING)
		require.Empty(t, r.doubts())
	},
	"long words are kept whole in the letter, and short in the timeline": func(t *testing.T, r *rig) {
		w := r.inDoubt(newTask("a"), "pay")
		res := w.resolve(actors.ResolveFail, "pay")
		res.Reason, res.By = strings.Repeat("why ", 200), ""
		r.resolved(res)
		require.Contains(t, r.World.Dead(t)[0].GetDetail(), res.Reason)
		for _, l := range r.record("a").Log {
			if l.What == "resolved" {
				require.Len(t, l.Detail, 300)
			}
		}
	},
}
