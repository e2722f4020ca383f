package statetest

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var identityCases = map[string]func(*testing.T, *rig){
	"odd ids are ids like any other": func(t *testing.T, r *rig) {
		ids := []string{
			"a{b}c", "{}", "a:b", "a%3Ab", "with spaces", "nul\x00inside", "new\nline", "ünï", strings.Repeat("x", messages.MaxTaskID),
			"a:long", "a:log", "a", "1:2", "%", "%25", "a/b",
		}
		for i, id := range ids {
			task := newTask(id)
			require.False(t, r.submit(submission(task))[0].Known, "%q", id)
			w := r.deliver(task, here)
			b := w.run()
			require.EqualValues(t, 1, b.Fence.Number, "%q shares no record", id)
			require.NoError(t, r.step(b, task, done("s", id)))
			if i%2 == 0 {
				r.commit(w.retry(b, 0))
				r.World.Promote(t, id, "")
				in := r.fromInbox(task, here)
				in.act = 2
				w, b = in, in.run()
			}
			r.commit(w.completed(b, "of "+id))
		}
		for _, id := range ids {
			require.Equal(t, "of "+id, string(r.unit(newTask(id)).Result))
			rec := r.record(id)
			require.Equal(t, id, rec.ID)
			require.Len(t, rec.Units, 1)
			require.Equal(t, id, string(rec.Units[0].Steps[0].Value))
		}
	},
	"odd units are units like any other": func(t *testing.T, r *rig) {
		units := []string{"", "1", "a/b", "a:b", "{x}", "%", "owner", "fence", "nul\x00", strings.Repeat("u", 500)}
		for _, u := range units {
			w := r.deliver(part("t", u), here)
			b := w.run()
			r.commit(w.retry(b, 0))
			r.World.Promote(t, "t", u)
			in := r.fromInbox(w.task, here)
			in.act = 2
			r.commit(in.completed(in.run(), "of "+u))
		}
		rec := r.record("t")
		require.Len(t, rec.Units, len(units))
		for _, u := range rec.Units {
			require.Equal(t, "of "+u.Unit, string(u.Result))
			require.EqualValues(t, 1, u.Ledger.Failures)
		}
	},
	"long and odd types": func(t *testing.T, r *rig) {
		for i, kind := range []string{strings.Repeat("t", 200), "a{b}/c:d%", "agent/handler"} {
			task := newTask(strings.Repeat("x", i+1))
			task.Type = kind
			w := r.deliver(task, here)
			r.commit(w.retry(w.run(), 0))
			require.Equal(t, kind, r.unit(task).Type)
			require.Equal(t, []string{member(task)}, r.World.Index(t, messages.State_STATE_RETRYING, kind))
			r.World.Promote(t, task.GetTaskId(), "")
			in := r.fromInbox(task, here)
			in.act = 2
			b := in.run()
			require.Empty(t, r.World.Index(t, messages.State_STATE_RETRYING, kind))
			r.commit(in.completed(b, "ok"))
		}
	},
	"many at once, each its own answer": func(t *testing.T, r *rig) {
		const n = 200
		var wg sync.WaitGroup
		for i := range n {
			w := r.deliver(newTask("t"+strings.Repeat("x", i)), here)
			w.act = uint64(i + 1)
			wg.Go(func() {
				b, err := r.State.Begin(t.Context(), w.request())
				if err != nil || b.Answer != actors.Run || b.Fence.Activation != w.act {
					t.Errorf("begin %d: %+v, %v", i, b, err)
					return
				}
				if err := r.step(b, w.task, done("s", w.task.GetTaskId())); err != nil {
					t.Errorf("checkpoint %d: %v", i, err)
				}
				if err := r.State.Commit(t.Context(), w.completed(b, w.task.GetTaskId())); err != nil {
					t.Errorf("commit %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		for i := range n {
			task := newTask("t" + strings.Repeat("x", i))
			require.Equal(t, task.GetTaskId(), string(r.unit(task).Result))
		}
		require.EqualValues(t, n, r.World.Count(t, "succeeded"))
	},
	"two nodes ask for one task at once, one gets it": func(t *testing.T, r *rig) {
		for i := range 20 {
			task := newTask(strings.Repeat("x", i+1))
			a, b := r.deliver(task, here), r.deliver(task, there)
			var got [2]actors.Begun
			var wg sync.WaitGroup
			for j, ask := range []func() (actors.Begun, error){
				func() (actors.Begun, error) { return r.State.Begin(t.Context(), a.request()) },
				func() (actors.Begun, error) { return r.Other.Begin(t.Context(), b.request()) },
			} {
				wg.Go(func() {
					var err error
					if got[j], err = ask(); err != nil {
						t.Errorf("begin: %v", err)
					}
				})
			}
			wg.Wait()
			answers := map[actors.Answer]int{got[0].Answer: 1}
			answers[got[1].Answer]++
			require.Equal(t, map[actors.Answer]int{actors.Run: 1, actors.Queued: 1}, answers)
		}
	},
}
