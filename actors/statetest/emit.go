package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// next is another public stream that shares the hash tag of ours.
func (r *rig) next(name string) string { return "{" + r.Names.Stream + "}:" + name }

func emission(stream string, task *messages.Task) actors.Emission {
	s := submission(task)
	s.TTL = time.Hour
	return actors.Emission{Stream: stream, Task: s}
}

// emitting is a completion that emits.
func (w *work) emitting(b actors.Begun, emits ...actors.Emission) actors.Commit {
	c := w.completed(b, "ok")
	c.Emits = emits
	return c
}

var emitCases = map[string]func(*testing.T, *rig){
	"what is emitted is there with the result, once and in order": func(t *testing.T, r *rig) {
		tools, replies := r.next("tools"), r.next("replies")
		w := r.deliver(newTask("a"), here)
		b := w.run()
		c := w.emitting(b, emission(tools, newTask("a/{1}")), emission(replies, newTask("a/{1}")), emission(tools, part("a/{1}", "u:")))
		require.Empty(t, r.World.Stream(t, tools))
		r.commit(c)
		r.commit(c) // a lost reply
		got := r.World.Stream(t, tools)
		require.Len(t, got, 2)
		require.Equal(t, fieldsOf(newTask("a/{1}")), got[0].Fields)
		require.Equal(t, fieldsOf(part("a/{1}", "u:")), got[1].Fields)
		require.Len(t, r.World.Stream(t, replies), 1)
		require.Len(t, r.World.Public(t), 1)
		require.InDelta(t, time.Hour, r.World.Marker(t, tools, "a/{1}"), float64(time.Minute))
		r.state(w.task, messages.State_STATE_SUCCEEDED)
		r.nothingLeft("a")
	},
	"an outcome that is no success emits nothing": func(t *testing.T, r *rig) {
		for i, outcome := range []messages.Outcome{
			messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_PARKED, messages.Outcome_OUTCOME_REJECTED,
			messages.Outcome_OUTCOME_CANCELLED, messages.Outcome_OUTCOME_INTERRUPTED,
		} {
			w := r.deliver(newTask(fmt.Sprint("a", i)), here)
			c := w.outcome(w.run(), outcome)
			c.Emits = []actors.Emission{emission(r.next("tools"), newTask("b"))}
			r.commit(c)
		}
		require.Empty(t, r.World.Stream(t, r.next("tools")))
	},
	"a fence that is old emits nothing": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		w.again().run()
		r.lost(w.emitting(b, emission(r.next("tools"), newTask("b"))))
		require.Empty(t, r.World.Stream(t, r.next("tools")))
	},
	"an id that is known there with the same work adds nothing": func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			w := r.deliver(newTask(id), here)
			r.commit(w.emitting(w.run(), emission(r.next("tools"), newTask("same"))))
			r.state(w.task, messages.State_STATE_SUCCEEDED)
		}
		require.Len(t, r.World.Stream(t, r.next("tools")), 1)
	},
	"an id that is taken there refuses the commit, and nothing is written": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.emitting(w.run(), emission(r.next("tools"), newTask("taken"))))
		other := newTask("taken")
		other.Payload = []byte("other work")
		w = r.deliver(newTask("b"), here)
		b := w.run()
		c := w.emitting(b, emission(r.next("tools"), newTask("free")), emission(r.next("tools"), other))
		c.Spawns = kids("b", 1)
		for range 2 {
			err := r.State.Commit(t.Context(), c)
			require.ErrorIs(t, err, actors.ErrNotEmitted)
			require.ErrorIs(t, err, actors.ErrConflict)
			require.ErrorContains(t, err, `"taken"`)
			require.ErrorContains(t, err, "tools")
		}
		r.state(w.task, messages.State_STATE_RUNNING)
		require.Len(t, r.World.Stream(t, r.next("tools")), 1)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		r.commit(w.rejected(b, messages.Reason_REASON_MISUSE, "id taken"))
		require.Len(t, r.World.Dead(t), 1)

		r.World.RetryLetter(t)
		in := r.fromInbox(w.task, here)
		in.act = 2
		r.commit(in.emitting(in.run(), emission(r.next("tools"), newTask("free"))))
		require.Len(t, r.World.Stream(t, r.next("tools")), 2)
	},
	"a submission finds what was emitted, and the other way round": func(t *testing.T, r *rig) {
		r.submit(submission(newTask("known")))
		w := r.deliver(newTask("a"), here)
		r.commit(w.emitting(w.run(), emission(r.Names.Stream, newTask("known")), emission(r.Names.Stream, newTask("new"))))
		require.True(t, r.submit(submission(newTask("new")))[0].Known)
		require.Len(t, r.World.Public(t), 3, "known, a and new")
		require.Equal(t, "noop", r.unit(newTask("new")).Type)
	},
	"a unit, its children and what it emits are one fact": func(t *testing.T, r *rig) {
		w := r.deliver(part("a", "u"), here)
		c := w.emitting(w.run(), emission(r.next("tools"), newTask("b")))
		c.Spawns, c.Index = kids("a", 2), true
		r.commit(c)
		require.Len(t, r.World.Stream(t, r.next("tools")), 1)
		require.Len(t, r.World.TakeInbox(t, consumerOf(here)), 2)
		require.Equal(t, []string{member(w.task)}, r.World.Index(t, messages.State_STATE_SUCCEEDED, "noop"))
	},
	"thousands at once": func(t *testing.T, r *rig) {
		const n = 5000
		w := r.deliver(newTask("a"), here)
		c := w.emitting(w.run())
		for i := range n {
			c.Emits = append(c.Emits, emission(r.next(fmt.Sprint("s", i%2)), newTask(fmt.Sprint("b", i))))
		}
		r.commit(c)
		require.Len(t, r.World.Stream(t, r.next("s1")), n/2)
	},
}
