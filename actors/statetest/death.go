package statetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// kill lets nodes die in turn while they run w, each after ran; it returns the entry in the last one's hands, begun.
func (w *work) kill(nodes []string, ran time.Duration) (*work, actors.Begun) {
	w.t.Helper()
	b := w.run()
	for _, next := range nodes {
		w.die(w.node, w.task, ran)
		w.World.Live(w.t, next, true)
		w = w.on(next)
		b = w.begin()
	}
	return w, b
}

var deathCases = map[string]func(*testing.T, *rig){
	"a death is charged once, with how long it ran": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		first := w.run()
		r.die(here, w.task, 3*time.Second)
		w2 := w.on(there)
		b := w2.run()
		require.Equal(t, actors.Ledger{Deaths: 1}, b.Ledger)
		require.Equal(t, b, w2.run(), "the same call again")
		require.Greater(t, b.Fence.Number, first.Fence.Number)
		require.False(t, b.Trial)
		r.World.Live(t, here, true)
		r.lost(w.completed(first, "zombie"))
		log := r.record("a").Log
		require.NotEmpty(t, log)
		require.Equal(t, "died", log[0].What)
		require.Contains(t, log[0].Detail, "3000 ms")
		r.commit(w2.completed(b, "ok"))
	},
	"a node without a last tick ran for nothing": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.run()
		r.World.Live(t, here, false)
		require.Equal(t, actors.Ledger{Deaths: 1}, w.on(there).run().Ledger)
		require.Contains(t, r.record("a").Log[0].Detail, "soon after it began")
	},
	"the second death puts a unit on trial, the third and fourth are blamed": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("poison"), here)
		w, b := w.kill([]string{there}, 3*time.Second)
		require.False(t, b.Trial)
		r.die(there, w.task, 3*time.Second)
		w = w.on(third)
		b = w.run()
		require.True(t, b.Trial)
		require.Equal(t, actors.Ledger{Deaths: 2}, b.Ledger)
		require.Equal(t, b, w.run(), "on trial still, when asked again")

		r.die(third, w.task, 3100*time.Millisecond)
		r.World.Live(t, here, true)
		w = w.on(here)
		w.act = 7
		b = w.run()
		require.Equal(t, actors.Ledger{Deaths: 3, Blamed: 1}, b.Ledger)
		require.True(t, b.Trial)

		r.die(here, w.task, 3200*time.Millisecond)
		r.World.Live(t, there, true)
		w = w.on(there)
		w.act = 8
		b = w.answers(actors.Condemned)
		require.Equal(t, actors.Ledger{Deaths: 4, Blamed: 2}, b.Ledger)
		require.Equal(t, messages.Reason_REASON_KILLS_NODES, b.Reason)
		require.Contains(t, b.Detail, "3100")
		require.Contains(t, b.Detail, "3200")
		require.Equal(t, b, w.begin(), "the same call again")
		r.commit(w.rejected(b, b.Reason, b.Detail))
		dead := r.World.Dead(t)
		require.Len(t, dead, 1)
		require.Equal(t, messages.Reason_REASON_KILLS_NODES, dead[0].GetReason())
		require.Equal(t, b.Detail, dead[0].GetDetail())
	},
	"a poison that kills after ten seconds is found out by its sixth death": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("poison"), here)
		var b actors.Begun
		for i, want := range []actors.Ledger{
			{}, {Deaths: 1}, {Deaths: 2}, {Deaths: 3}, {Deaths: 4}, {Deaths: 5, Blamed: 1}, {Deaths: 6, Blamed: 2},
		} {
			w.act = uint64(10 + i)
			b = w.begin()
			require.Equal(t, want, b.Ledger, "the trials are 4, 8, 16 and 17 s long")
			r.die(w.node, w.task, 10*time.Second)
			next := here
			if w.node == here {
				next = there
			}
			r.World.Live(t, next, true)
			w = w.on(next)
		}
		require.Equal(t, actors.Condemned, b.Answer)
	},
	"a death long after the trial is nobody's": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("long"), here)
		w, b := w.kill([]string{there, third}, time.Second)
		require.True(t, b.Trial)
		r.die(third, w.task, time.Hour)
		r.World.Live(t, here, true)
		w = w.on(here)
		w.act = 9
		require.Equal(t, actors.Ledger{Deaths: 3}, w.run().Ledger)
	},
	"the judge's own death leaves the sentence": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("poison"), here)
		w, b := w.kill([]string{there, third, here, there}, time.Second)
		require.Equal(t, actors.Condemned, b.Answer)
		req := w.again().request()
		req.Crash = "panic while it was set aside"
		crashed, err := r.State.Begin(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, actors.Condemned, crashed.Answer)
		require.Equal(t, b.Detail, crashed.Detail)
		r.die(there, w.task, time.Second)
		r.World.Live(t, third, true)
		w = w.on(third)
		w.act = 9
		c := w.answers(actors.Condemned)
		require.Equal(t, b.Reason, c.Reason)
		require.Equal(t, b.Detail, c.Detail)
		require.Greater(t, c.Fence.Number, b.Fence.Number)
	},
	"deaths after very different times are no proof": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w, _ = w.kill([]string{there, third, here}, 2500*time.Millisecond)
		r.die(here, w.task, 5500*time.Millisecond)
		r.World.Live(t, there, true)
		w = w.on(there)
		w.act = 8
		require.Equal(t, actors.Ledger{Deaths: 4, Blamed: 2}, w.run().Ledger)
	},
	"one suspect a node, the others wait": func(t *testing.T, r *rig) {
		a, b := r.deliver(newTask("a"), here), r.deliver(newTask("b"), here)
		a, _ = a.kill([]string{there}, 5*time.Second)
		r.World.Live(t, here, true)
		b, _ = b.kill([]string{there}, 5*time.Second)
		r.World.Tick(t, there, r.World.Now(t).Add(5*time.Second))
		r.World.Live(t, there, false)
		a, b = a.on(third), b.on(third)
		onTrial := a.run()
		require.True(t, onTrial.Trial)
		for range 3 {
			wait := b.answers(actors.Later).Wait
			require.GreaterOrEqual(t, wait, 250*time.Millisecond)
			require.LessOrEqual(t, wait, time.Second)
		}
		require.EqualValues(t, 2, r.unit(b.task).Ledger.Deaths, "charged once, however often it asks")
		r.commit(a.completed(onTrial, "innocent"))
		begun := b.run()
		require.True(t, begun.Trial, "the end of the first is the turn of the next")
		require.Equal(t, actors.Ledger{Deaths: 2}, begun.Ledger)
	},
	"a suspect goes on trial when the node asks for it": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w, _ = w.kill([]string{there}, time.Second)
		r.die(there, w.task, time.Second)
		w = w.on(third)
		for range 3 {
			b, err := r.State.Begin(t.Context(), w.request())
			require.NoError(t, err)
			require.Equal(t, actors.Later, b.Answer)
			require.Zero(t, b.Wait, "nothing stands in its way")
		}
		require.EqualValues(t, 2, r.unit(w.task).Ledger.Deaths, "charged once, however often it asks")
		r.die(third, w.task, time.Second) // which runs nothing of it
		r.World.Live(t, here, true)
		w = w.on(here)
		w.act = 7
		require.Equal(t, actors.Ledger{Deaths: 2}, w.run().Ledger)
	},
	"a trial ends by time too, and is not blamed afterwards": func(t *testing.T, r *rig) {
		a, b := r.deliver(newTask("a"), here), r.deliver(newTask("b"), here)
		a, _ = a.kill([]string{there}, time.Second)
		r.World.Live(t, here, true)
		b, _ = b.kill([]string{there}, time.Second)
		r.World.Live(t, there, false)
		a, b = a.on(third), b.on(third)
		require.True(t, a.run().Trial)
		b.answers(actors.Later)
		r.World.EndTrial(t, third)
		require.True(t, b.run().Trial)
		r.World.Live(t, third, false)
		r.World.Live(t, here, true)
		a = a.on(here)
		a.act = 20
		require.Equal(t, actors.Ledger{Deaths: 3}, a.run().Ledger)
		b = b.on(there)
		b.act = 20
		r.World.Live(t, there, true)
		require.Equal(t, actors.Ledger{Deaths: 3, Blamed: 1}, b.run().Ledger)
	},
	"a suspect that crashes while another is on trial is charged once": func(t *testing.T, r *rig) {
		a, b := r.deliver(newTask("a"), here), r.deliver(newTask("b"), here)
		a, _ = a.kill([]string{there}, time.Second)
		r.World.Live(t, here, true)
		b, _ = b.kill([]string{there}, time.Second)
		r.World.Live(t, there, false)
		a, b = a.on(third), b.on(third)
		require.True(t, b.run().Trial)
		r.World.EndTrial(t, third)
		require.True(t, a.run().Trial)
		req := b.again().request()
		req.Crash = "boom"
		for range 3 {
			got, err := r.State.Begin(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, actors.Later, got.Answer)
		}
		r.World.EndTrial(t, third)
		req.Trial = true
		got, err := r.State.Begin(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, actors.Ledger{Deaths: 2, Crashes: 1}, got.Ledger)
	},
	"what was given back died of nothing": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.commit(w.outcome(b, messages.Outcome_OUTCOME_INTERRUPTED))
		r.World.Live(t, here, false)
		require.Equal(t, actors.Ledger{Interruptions: 1}, w.on(there).run().Ledger)
	},
}
