package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func timer(name string, d time.Duration) actors.Wait {
	return actors.Wait{Name: name, Kind: actors.WaitFirst, For: d}
}

// await is what actors.Await waits for.
func await(name string, d time.Duration) actors.Wait {
	return actors.Wait{Name: name, Kind: actors.WaitFirst, For: d, Closes: true, Slots: []actors.Slot{{Message: name, Nth: 1}}}
}

func firstOf(name string, d time.Duration, slots ...actors.Slot) actors.Wait {
	return actors.Wait{Name: name, Kind: actors.WaitFirst, For: d, Slots: slots}
}

func allOf(name string, d time.Duration, slots ...actors.Slot) actors.Wait {
	return actors.Wait{Name: name, Kind: actors.WaitAll, For: d, Slots: slots}
}

func nth(message string, n int) actors.Slot { return actors.Slot{Message: message, Nth: n} }

// parked is the commit of a unit that waits.
func (w *work) parked(b actors.Begun, waits ...actors.Wait) actors.Commit {
	c := w.outcome(b, messages.Outcome_OUTCOME_PARKED)
	c.Error, c.Waits = "waits", waits
	return c
}

// park lets the unit wait, and acknowledges its entry.
func (w *work) park(waits ...actors.Wait) {
	w.t.Helper()
	w.commit(w.parked(w.run(), waits...))
	w.World.Ack(w.t, w.ref)
	w.state(w.task, messages.State_STATE_WAITING)
}

func (r *rig) resume(c actors.Commit) {
	r.t.Helper()
	require.ErrorIs(r.t, r.State.Commit(r.t.Context(), c), actors.ErrResume)
}

// goesOn takes the entry that a woken unit continues with, and begins it on another node.
func (r *rig) goesOn(task *messages.Task) (*work, actors.Begun) {
	r.t.Helper()
	r.state(task, messages.State_STATE_PENDING)
	in := r.fromInbox(task, there)
	b := in.run()
	require.True(r.t, b.Steps, "it has a checkpoint to load")
	return in, b
}

// waited is how a wait of a unit ended; it must have.
func (r *rig) waited(task *messages.Task, name string) messages.Waited {
	r.t.Helper()
	steps, err := r.State.Steps(r.t.Context(), task.GetTaskId(), task.GetUnit())
	require.NoError(r.t, err)
	for _, s := range steps {
		if s.Name == name {
			require.Equal(r.t, messages.StepWaited, s.Status)
			require.WithinRange(r.t, time.UnixMilli(s.EndedMS), time.UnixMilli(s.BeganMS), r.World.Now(r.t))
			w, err := messages.DecodeWaited(name, s.Value)
			require.NoError(r.t, err)
			return w
		}
	}
	require.Failf(r.t, "no checkpoint", "wait %q goes on", name)
	return messages.Waited{}
}

func (r *rig) waits(task *messages.Task) (names []string) {
	r.t.Helper()
	for _, u := range r.record(task.GetTaskId()).Units {
		if u.Unit == task.GetUnit() {
			for _, w := range u.Waits {
				names = append(names, w.Name)
			}
		}
	}
	return names
}

// nothingLeft is what must be true of a task that has ended: all that stands of it has a time to live, and nothing waits.
func (r *rig) nothingLeft(id string) {
	r.t.Helper()
	standing := r.World.Standing(r.t, id)
	require.Contains(r.t, standing, "")
	require.NotContains(r.t, standing, ":waits")
	for end, ttl := range standing {
		require.Positive(r.t, ttl, "time to live of …%s", end)
	}
	for member := range r.World.Due(r.t) {
		require.NotContains(r.t, member, "w:")
	}
}

// kept is what must be true of one that has not: nothing of it expires.
func (r *rig) kept(id string) {
	r.t.Helper()
	for end, ttl := range r.World.Standing(r.t, id) {
		require.Zero(r.t, ttl, "time to live of …%s", end)
	}
}

var waitCases = map[string]func(*testing.T, *rig){
	"a timer wakes its unit when its time is over, and no sooner": func(t *testing.T, r *rig) {
		w := r.deliver(part("a:{1}", "u/2"), here)
		w.park(timer("nap: 1", time.Hour))
		due := "w:a%3A%7B1%7D:u/2:nap%3A 1"
		require.WithinDuration(t, r.World.Now(t).Add(time.Hour), r.World.Due(t)[due], 5*time.Second)
		rec := r.record("a:{1}")
		require.Empty(t, rec.Owner)
		require.Len(t, rec.Units[0].Waits, 1)
		open := rec.Units[0].Waits[0]
		require.Equal(t, "nap: 1", open.Name)
		require.Equal(t, messages.WaitTimer, open.Kind)
		require.WithinDuration(t, r.World.Now(t), open.Since, 5*time.Second)
		require.WithinDuration(t, open.Since.Add(time.Hour), open.Deadline, 0)
		r.kept("a:{1}")

		r.World.Pass(t, 59*time.Minute)
		r.World.Turn(t)
		r.state(w.task, messages.State_STATE_WAITING)
		require.Equal(t, []string{member(w.task)}, r.World.Index(t, messages.State_STATE_WAITING, "noop"))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))

		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		require.Empty(t, r.World.Index(t, messages.State_STATE_WAITING, "noop"))
		require.Empty(t, r.World.Due(t))
		require.Empty(t, r.waits(w.task))
		r.deliver(w.task, here).answers(actors.Elsewhere)
		in, b := r.goesOn(w.task)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "nap: 1"))
		require.Equal(t, actors.Ledger{}, b.Ledger, "waiting costs nothing")
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a:{1}")
	},
	"a timer of no time is over at once": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), timer("nap", 0))
		r.resume(c)
		r.resume(c) // a lost reply
		r.state(w.task, messages.State_STATE_RUNNING)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "nap"))
		require.Empty(t, r.World.Due(t))
		require.True(t, r.World.Pending(t, w.ref))
	},
	"a deadline is set once, and neither a replay nor another node moves it": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(timer("long", time.Hour), timer("short", time.Minute))
		at := r.World.Due(t)["w:a::long"]
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		in, b := r.goesOn(w.task)
		require.WithinDuration(t, at.Add(-time.Minute), r.World.Due(t)["w:a::long"], 0)
		r.commit(in.parked(b, timer("long", time.Hour)))
		require.WithinDuration(t, at.Add(-time.Minute), r.World.Due(t)["w:a::long"], 0)
		require.Equal(t, []string{"long"}, r.waits(w.task))
	},
	"a wait without an end is never due": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", -1))
		require.Empty(t, r.World.Due(t))
		require.Zero(t, r.record("a").Units[0].Waits[0].Deadline)
		r.World.Turn(t)
		r.state(w.task, messages.State_STATE_WAITING)
	},
	"a wait that ends while its unit runs is seen by the commit": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), time.Hour)
		c.Waits = []actors.Wait{timer("nap", time.Minute)}
		r.commit(c)
		r.commit(c)
		r.state(w.task, messages.State_STATE_RETRYING)
		require.Len(t, r.World.Due(t), 2)
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		b := in.run()
		require.False(t, b.Steps)
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		r.state(w.task, messages.State_STATE_RUNNING)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)), "who runs is not woken")
		c = in.parked(b, timer("nap", time.Minute))
		r.resume(c)
		r.resume(c)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a wait that ends while its unit retries leaves the retry alone": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), time.Hour)
		c.Waits = []actors.Wait{timer("nap", time.Minute), timer("now", 0)}
		r.commit(c)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "now"))
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		r.state(w.task, messages.State_STATE_RETRYING)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "nap"))
		r.World.Pass(t, time.Hour)
		r.World.Turn(t)
		in := r.fromInbox(w.task, there)
		require.True(t, in.run().Steps)
	},
	"a commit that parked says so again after its unit was woken": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), timer("nap", time.Minute))
		r.commit(c)
		r.commit(c)
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		r.commit(c)
		r.state(w.task, messages.State_STATE_PENDING)
		r.lost(w.completed(actors.Begun{Fence: c.Fence}, "late"))
		_, _ = r.goesOn(w.task)
		r.lost(c)
	},
	"a unit that was only interrupted was not parked": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.commit(w.outcome(b, messages.Outcome_OUTCOME_INTERRUPTED))
		r.lost(w.parked(b, timer("nap", time.Minute)))
	},
	"an end takes the open waits along, however it comes": func(t *testing.T, r *rig) {
		for _, outcome := range []messages.Outcome{
			messages.Outcome_OUTCOME_COMPLETED, messages.Outcome_OUTCOME_REJECTED, messages.Outcome_OUTCOME_CANCELLED,
		} {
			id := outcome.String()
			w := r.deliver(newTask(id), here)
			c := w.retry(w.run(), 0)
			c.Waits = []actors.Wait{timer("nap", time.Hour), await("x", -1)}
			r.commit(c)
			r.World.Promote(t, id, "")
			in := r.fromInbox(w.task, here)
			in.act = 2
			b := in.run()
			require.Equal(t, []string{"nap", "x"}, r.waits(w.task))
			r.kept(id)
			r.commit(in.outcome(b, outcome))
			require.Empty(t, r.waits(w.task))
			r.nothingLeft(id)
		}
	},
	"a cancelled unit waits for nothing any more, and hears of nothing": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(timer("nap", time.Hour), await("x", -1))
		_, err := r.State.Cancel(t.Context(), actors.Cancellation{ID: "a", TTL: week})
		require.NoError(t, err)
		require.Empty(t, r.waits(w.task))
		require.Empty(t, r.World.Due(t))
		r.nothingLeft("a")
		r.refused(mailing("a", "x", "", "too late"), actors.Mailed{}, actors.ErrEnded)
		r.World.Turn(t)
		r.state(w.task, messages.State_STATE_CANCELLED)
	},
	"an interruption keeps the waits": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), 0)
		c.Waits = []actors.Wait{timer("nap", time.Hour)}
		r.commit(c)
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		r.commit(in.outcome(in.run(), messages.Outcome_OUTCOME_INTERRUPTED))
		require.Equal(t, []string{"nap"}, r.waits(w.task))
		in = in.on(there)
		b := in.run()
		r.commit(in.parked(b, timer("nap", time.Hour)))
		require.Equal(t, []string{"nap"}, r.waits(w.task))
	},
	"a death keeps the waits, and what ended meanwhile is there": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), 0)
		c.Waits = []actors.Wait{timer("nap", time.Minute), await("x", time.Hour)}
		r.commit(c)
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		in.run()
		r.World.Live(t, here, false)
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		in = in.on(there)
		b := in.run()
		require.Equal(t, actors.Ledger{Failures: 1, Deaths: 1}, b.Ledger)
		require.True(t, b.Steps)
		require.Equal(t, []string{"x"}, r.waits(w.task))
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "nap"))
	},
	"the end of one unit leaves the waits of another": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "1:1"), here)
		b := two.run()
		one.park(timer("nap", time.Hour))
		r.commit(two.completed(b, "ok"))
		require.Equal(t, []string{"nap"}, r.waits(one.task))
		r.kept("a")
		r.World.Pass(t, time.Hour)
		r.World.Turn(t)
		in, b := r.goesOn(one.task)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"names that look like paths are kept apart": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "b"), here), r.deliver(part("a", "b/c"), here)
		one.park(timer("c/d", time.Hour))
		two.park(timer("d", time.Hour))
		require.Equal(t, []string{"c/d"}, r.waits(one.task))
		require.Equal(t, []string{"d"}, r.waits(two.task))
	},
	"a unit in doubt is not woken by a wait": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), timer("nap", time.Minute))
		c.Doubt = "pay"
		r.commit(c)
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		r.state(w.task, messages.State_STATE_WAITING)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "nap"))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		require.Empty(t, r.World.Due(t))
	},
	"a unit whose entry has lost its body cannot wait": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.World.Trim(t, w.ref)
		c := w.parked(b, timer("nap", time.Minute), await("x", -1))
		r.commit(c)
		r.commit(c)
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_BODY_GONE, u.Reason)
		require.Len(t, r.World.Dead(t), 1)
		r.nothingLeft("a")
	},
	"a unit whose copy is gone when its wait ends is FAILED with a letter": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), timer("nap", time.Minute), await("x", -1))
		r.commit(c)
		r.World.Uncopy(t, "a", "")
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_BODY_GONE, u.Reason)
		dead := r.World.Dead(t)
		require.Len(t, dead, 1)
		require.Equal(t, "a", dead[0].GetTaskId())
		require.Equal(t, "noop", dead[0].GetType())
		require.Empty(t, r.World.Index(t, messages.State_STATE_WAITING, "noop"))
		require.Equal(t, []string{member(w.task)}, r.World.Index(t, messages.State_STATE_FAILED, "noop"))
		r.nothingLeft("a")
		r.commit(c) // a lost reply
	},
	"hundreds of timers end in turns": func(t *testing.T, r *rig) {
		const n = 450
		for i := range n {
			w := r.deliver(newTask(fmt.Sprint("t", i)), here)
			w.park(timer("nap", time.Hour))
		}
		r.World.Pass(t, time.Hour)
		for range 3 {
			r.World.Turn(t)
		}
		require.Len(t, r.World.TakeInbox(t, consumerOf(there)), n)
		require.Empty(t, r.World.Due(t))
	},
	"a wait that says nothing of its end is refused": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		require.ErrorContains(t, r.State.Commit(t.Context(), w.parked(b, actors.Wait{Name: "x", Slots: []actors.Slot{nth("x", 1)}})), `wait "x"`)
		require.ErrorContains(t, r.State.Commit(t.Context(), w.parked(b, firstOf("x", 0, nth("x", 0)))), `wait "x"`)
		r.state(w.task, messages.State_STATE_RUNNING)
	},
}
