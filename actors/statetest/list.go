package statetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// list reads all pages of a query and returns what is in them as "<id>/<unit>".
func (r *rig) list(q actors.TaskQuery) (items []actors.TaskItem, names []string) {
	r.t.Helper()
	for more := true; more; more = q.After != "" {
		page, err := r.State.Tasks(r.t.Context(), q)
		require.NoError(r.t, err)
		require.LessOrEqual(r.t, len(page.Tasks), max(q.Limit, 100))
		for _, t := range page.Tasks {
			items, names = append(items, t), append(names, t.ID+"/"+t.Unit.Unit)
		}
		q.After = page.Next
	}
	return items, names
}

// moments waits until the store's clock shows another millisecond, so that what follows is newer.
func (r *rig) moments() {
	r.t.Helper()
	now := r.World.Now(r.t)
	require.Eventually(r.t, func() bool { return r.World.Now(r.t).After(now.Add(2 * time.Millisecond)) }, 5*time.Second, time.Millisecond)
}

var listCases = map[string]func(*testing.T, *rig){
	"each state is listed, the newest change first": func(t *testing.T, r *rig) {
		ends := map[messages.State]func(w *work, b actors.Begun) actors.Commit{
			messages.State_STATE_FAILED: func(w *work, b actors.Begun) actors.Commit {
				return w.rejected(b, messages.Reason_REASON_REJECTED, "no "+strings.Repeat("!", 100))
			},
			messages.State_STATE_RETRYING:  func(w *work, b actors.Begun) actors.Commit { return w.retry(b, time.Hour) },
			messages.State_STATE_WAITING:   func(w *work, b actors.Begun) actors.Commit { return w.outcome(b, messages.Outcome_OUTCOME_PARKED) },
			messages.State_STATE_CANCELLED: func(w *work, b actors.Begun) actors.Commit { return w.outcome(b, messages.Outcome_OUTCOME_CANCELLED) },
			messages.State_STATE_SUCCEEDED: func(w *work, b actors.Begun) actors.Commit {
				c := w.completed(b, strings.Repeat("r", 100))
				c.Index = true
				return c
			},
		}
		began := r.World.Now(t)
		for state, end := range ends {
			for i := range 3 {
				w := r.deliver(part(fmt.Sprint(actors.StateName(state), "{}", i), "u:"), here)
				r.commit(end(w, w.run()))
				r.moments()
			}
		}
		for state := range ends {
			items, names := r.list(actors.TaskQuery{State: state, Since: began.Add(-time.Second)})
			name := actors.StateName(state) + "{}"
			require.Equal(t, []string{name + "2/u:", name + "1/u:", name + "0/u:"}, names)
			u := items[0].Unit
			require.Equal(t, state, u.State)
			require.Equal(t, "noop", u.Type)
			require.Empty(t, u.Result)
			one := *r.unit(part(items[0].ID, "u:"))
			one.Result, one.ContentType = nil, ""
			require.Equal(t, one, u)
			_, names = r.list(actors.TaskQuery{State: state, Since: u.Updated})
			require.Len(t, names, 1, "since then")
			_, names = r.list(actors.TaskQuery{State: state, Type: "another"})
			require.Empty(t, names)
		}
		_, names := r.list(actors.TaskQuery{Limit: 4})
		require.Len(t, names, 3*len(ends), "all of them together")
	},
	"pages neither repeat nor leave out": func(t *testing.T, r *rig) {
		const n = 60
		want := map[string]bool{}
		for i := range n { // many in one millisecond
			task := newTask(fmt.Sprint("t", i))
			task.Type = []string{"a", "a/x", "b:{}"}[i%3]
			w := r.deliver(task, here)
			w.act = uint64(i + 1)
			r.commit(w.retry(w.run(), time.Hour))
			want[task.GetTaskId()+"/"] = true
		}
		for _, limit := range []int{1, 7, 20, n, n + 1} {
			items, names := r.list(actors.TaskQuery{State: messages.State_STATE_RETRYING, Limit: limit})
			got := map[string]bool{}
			for _, name := range names {
				got[name] = true
			}
			require.Len(t, names, n, "limit %d", limit)
			require.Equal(t, want, got, "limit %d", limit)
			for i := 1; i < n; i++ {
				require.False(t, items[i].Unit.Updated.After(items[i-1].Unit.Updated), "limit %d", limit)
			}
		}
		for kind, most := range map[string]int{"a": 40, "a/x": 20, "b:{}": 20, "b": 0, "x": 0} {
			_, names := r.list(actors.TaskQuery{State: messages.State_STATE_RETRYING, Type: kind, Limit: 3})
			require.Len(t, names, most, kind)
		}
	},
	"a page goes on where the one before ended, whatever has changed": func(t *testing.T, r *rig) {
		var all []*work
		for i := range 10 {
			w := r.deliver(newTask(fmt.Sprint("t", i)), here)
			w.act = uint64(i + 1)
			r.commit(w.retry(w.run(), time.Hour))
			all = append(all, w)
		}
		q := actors.TaskQuery{State: messages.State_STATE_RETRYING, Limit: 4}
		page, err := r.State.Tasks(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, page.Tasks, 4)
		q.After = page.Next
		seen := map[string]bool{}
		for _, i := range page.Tasks {
			seen[i.ID] = true
		}
		r.cancel(page.Tasks[3].ID, "") // the end of the page before is gone
		gone := ""
		for _, w := range all {
			if id := w.task.GetTaskId(); !seen[id] {
				gone = id
				r.cancel(id, "")
				break
			}
		}
		_, names := r.list(q)
		require.Len(t, names, 5)
		for _, name := range names {
			require.NotEqual(t, gone+"/", name)
			require.NotContains(t, seen, strings.TrimSuffix(name, "/"))
		}
	},
	"what is for later is listed with its time, also where no entry of it is in the stream": func(t *testing.T, r *rig) {
		at := r.World.Now(t).Add(time.Hour).Truncate(time.Second)
		var tasks []actors.Submission
		for i := range 10 {
			s := submission(part(fmt.Sprint("t{}:", i), "u:"))
			s.At = at.Add(time.Duration(i/4) * time.Minute) // several at one time
			tasks = append(tasks, s)
		}
		r.submit(tasks...)
		for i := range 3 {
			w := r.deliver(newTask(fmt.Sprint("own", i)), here)
			w.act, w.due = uint64(i+1), at
			w.answers(actors.Elsewhere)
			r.moments()
		}
		r.cancel("t{}:3", "")
		r.cancel("own1", "")
		var want []string
		for _, n := range []int{0, 1, 2, 4, 5, 6, 7, 8, 9} {
			want = append(want, fmt.Sprintf("t{}:%d/u:", n))
		}
		want = append([]string{"own2/", "own0/"}, want...)
		for _, limit := range []int{1, 2, 3, 7, 11, 100} {
			items, names := r.list(actors.TaskQuery{State: messages.State_STATE_SCHEDULED, Limit: limit})
			require.Equal(t, want, names, "limit %d", limit)
			for _, item := range items {
				require.Equal(t, messages.State_STATE_SCHEDULED, item.Unit.State)
				require.Equal(t, "noop", item.Unit.Type)
				require.WithinDuration(t, at, item.Unit.Due, time.Hour)
				require.False(t, item.Unit.Due.Before(at))
			}
		}
		_, names := r.list(actors.TaskQuery{Limit: 3})
		require.Len(t, names, len(want)+2, "with the cancelled ones")
		_, names = r.list(actors.TaskQuery{State: messages.State_STATE_SCHEDULED, Type: "another"})
		require.Empty(t, names)
		_, names = r.list(actors.TaskQuery{State: messages.State_STATE_SCHEDULED, Since: r.World.Now(t).Add(time.Minute)})
		require.Empty(t, names)
	},
	"what runs is listed by its entry": func(t *testing.T, r *rig) {
		one := r.deliver(newTask("a{}"), here)
		one.run()
		waits := r.deliver(newTask("b"), there)
		two := r.deliver(part("c", "u/v"), there)
		two.run()
		retries := r.deliver(newTask("d"), here)
		r.commit(retries.retry(retries.run(), 0))
		r.World.Ack(t, retries.ref)
		r.World.Promote(t, "d", "")
		in := r.fromInbox(retries.task, third)
		in.run()
		r.submit(submission(newTask("e")))

		for _, limit := range []int{1, 2, 100} {
			items, names := r.list(actors.TaskQuery{State: messages.State_STATE_RUNNING, Limit: limit})
			require.Equal(t, []string{"a{}/", "c/u/v", "d/"}, names)
			require.Equal(t, one.ref, items[0].Entry)
			require.Equal(t, consumerOf(here), items[0].Consumer)
			require.EqualValues(t, 1, items[0].Deliveries)
			require.Equal(t, *r.unit(one.task), items[0].Unit)
			require.Equal(t, in.ref, items[2].Entry)
			require.Equal(t, actors.Ledger{Failures: 1}, items[2].Unit.Ledger)

			items, names = r.list(actors.TaskQuery{State: messages.State_STATE_PENDING, Limit: limit})
			require.Equal(t, []string{"b/", "e/"}, names)
			require.Equal(t, consumerOf(there), items[0].Consumer)
			require.Equal(t, waits.ref, items[0].Entry)
			require.Equal(t, "noop", items[0].Unit.Type)
			require.WithinDuration(t, r.World.Now(t), items[0].Unit.Created, time.Minute)
			require.Empty(t, items[1].Consumer)
		}
		_, names := r.list(actors.TaskQuery{State: messages.State_STATE_RUNNING, Since: r.World.Now(t).Add(time.Minute)})
		require.Empty(t, names)
		_, names = r.list(actors.TaskQuery{State: messages.State_STATE_PENDING, Type: "other"})
		require.Empty(t, names)
	},
	"what has not begun is listed where it waits": func(t *testing.T, r *rig) {
		back := r.deliver(newTask("back"), here)
		r.commit(back.outcome(back.run(), messages.Outcome_OUTCOME_INTERRUPTED))
		r.commit(r.deliver(newTask("ended"), here).completedNow())
		owner := r.deliver(part("owned", "1"), here)
		b := owner.run()
		next := r.deliver(part("owned", "2"), there)
		next.answers(actors.Queued)
		saved := r.deliver(newTask("saved"), here)
		r.World.Save(t, saved.ref, "saved", "")
		r.World.Trim(t, saved.ref)
		lost := r.deliver(newTask("lost"), here)
		r.World.Trim(t, lost.ref)
		named := r.World.Deliver(t, false, consumerOf(here), []messages.Pair{{Name: "type", Value: "noop"}, {Name: "event_id", Value: "ev"}})
		nameless := r.World.Deliver(t, false, consumerOf(here), []messages.Pair{{Name: "type", Value: "noop"}, {Name: "weir.id", Value: "not ours"}})
		_, names := r.list(actors.TaskQuery{State: messages.State_STATE_PENDING, Limit: 2})
		require.Equal(t, []string{"back/", "saved/", "ev/", nameless.ID + "/"}, names, "not what waits for an owner")
		require.NotEqual(t, named, nameless)
		r.commit(owner.completed(b, "ok"))
		_, names = r.list(actors.TaskQuery{State: messages.State_STATE_PENDING, Limit: 2})
		require.Equal(t, []string{"back/", "saved/", "ev/", nameless.ID + "/", "owned/2"}, names)
	},
	"a cursor of another list is an error": func(t *testing.T, r *rig) {
		for _, state := range []messages.State{messages.State_STATE_FAILED, messages.State_STATE_RUNNING} {
			_, err := r.State.Tasks(t.Context(), actors.TaskQuery{State: state, After: "%%"})
			require.ErrorContains(t, err, "is not where a page")
		}
		items, _ := r.list(actors.TaskQuery{})
		require.Empty(t, items)
	},
}

// completedNow begins and completes.
func (w *work) completedNow() actors.Commit {
	w.t.Helper()
	return w.completed(w.run(), "ok")
}
