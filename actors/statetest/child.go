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

func spawn(name string, child *messages.Task) actors.Spawning {
	return actors.Spawning{Name: name, Task: submission(child)}
}

// kids spawns n children k0, k1, … of the task.
func kids(id string, n int) (spawns []actors.Spawning) {
	for i := range n {
		name := fmt.Sprint("k", i)
		spawns = append(spawns, spawn(name, newTask(id+"/"+name)))
	}
	return spawns
}

// joinOf waits for children k0, k1, …
func joinOf(name string, n int, d time.Duration) actors.Wait {
	w := actors.Wait{Name: name, Kind: actors.WaitJoin, For: d}
	for i := range n {
		w.Children = append(w.Children, fmt.Sprint("k", i))
	}
	return w
}

// spawning is the commit of a unit that waits in "all" for n children that it starts.
func (w *work) spawning(b actors.Begun, n int, d time.Duration) actors.Commit {
	c := w.parked(b, joinOf("all", n, d))
	c.Spawns = kids(w.task.GetTaskId(), n)
	return c
}

// family parks a new unit that waits for n children, and takes their entries.
func (r *rig) family(id string, n int, d time.Duration) (parent *work, children []*work) {
	r.t.Helper()
	parent = r.deliver(newTask(id), here)
	r.commit(parent.spawning(parent.run(), n, d))
	r.World.Ack(r.t, parent.ref)
	r.state(parent.task, messages.State_STATE_WAITING)
	return parent, r.children(n)
}

// children takes the entries of n children.
func (r *rig) children(n int) (all []*work) {
	r.t.Helper()
	got := r.World.TakeInbox(r.t, consumerOf(here))
	require.Len(r.t, got, n, "children in the inbox")
	for _, d := range got {
		require.Equal(r.t, d.Field("task_id"), d.Field(messages.ControlID))
		require.Equal(r.t, "0", d.Field(messages.ControlWake))
		require.Equal(r.t, messages.NoOrigin, d.Field(messages.ControlOrigin))
		require.Equal(r.t, "kept \x00\xff", d.Field("x-own"))
		task := part(d.Field("task_id"), d.Field("step"))
		task.Payload = []byte(d.Field("payload"))
		all = append(all, &work{rig: r, task: task, ref: d.Ref, deliveries: 1, node: here, act: 1})
	}
	return all
}

func (w *work) succeed(result string) {
	w.t.Helper()
	w.commit(w.completed(w.run(), result))
	w.World.Ack(w.t, w.ref)
}

func (w *work) failed() {
	w.t.Helper()
	w.commit(w.rejected(w.run(), messages.Reason_REASON_REJECTED, "no luck"))
	w.World.Ack(w.t, w.ref)
}

// child is the checkpoint of a child; there must be one.
func (r *rig) child(parent *messages.Task, name string) messages.Step {
	r.t.Helper()
	steps, err := r.State.Steps(r.t.Context(), parent.GetTaskId(), parent.GetUnit())
	require.NoError(r.t, err)
	for _, s := range steps {
		if s.Name == name {
			return s
		}
	}
	require.Failf(r.t, "no checkpoint", "child %q", name)
	return messages.Step{}
}

func (r *rig) open(parent *messages.Task, name string) {
	r.t.Helper()
	require.Equal(r.t, messages.StepSpawned, r.child(parent, name).Status, "child %q", name)
}

// ended expects a child to have a result, or a failure that begins so.
func (r *rig) ended(parent *messages.Task, name, result, failure string) {
	r.t.Helper()
	s := r.child(parent, name)
	require.Equal(r.t, messages.StepChild, s.Status)
	require.Equal(r.t, result, string(s.Value))
	require.True(r.t, strings.HasPrefix(s.Error, failure) && (s.Error == "") == (failure == ""), "failure %q", s.Error)
	require.WithinRange(r.t, time.UnixMilli(s.EndedMS), time.UnixMilli(s.BeganMS), r.World.Now(r.t))
	if failure == "" && result != "" {
		require.Equal(r.t, "text/plain", s.ContentType)
	}
}

var childCases = map[string]func(*testing.T, *rig){
	"a child has a record, an entry and a parent": func(t *testing.T, r *rig) {
		w := r.deliver(part("a:{1}", "u/2"), here)
		c := w.parked(w.run(), await("x", -1))
		c.Spawns = []actors.Spawning{spawn("k: 1", part("a:{1}/k", "v:3"))}
		r.commit(c)
		r.commit(c) // a lost reply
		child := r.children(1)[0]
		u := r.unit(child.task)
		require.Equal(t, messages.State_STATE_PENDING, u.State)
		require.Equal(t, "noop", u.Type)
		require.Equal(t, &actors.ParentRecord{ID: "a:{1}", Unit: "u/2", Name: "k: 1"}, u.Parent)
		require.WithinDuration(t, r.World.Now(t), u.Created, 5*time.Second)
		require.Zero(t, u.Ledger)
		s := r.child(w.task, "k: 1")
		require.Equal(t, messages.StepSpawned, s.Status)
		require.Equal(t, "a:{1}/k", string(s.Value))
		rec := r.record("a:{1}")
		require.Equal(t, "1 child", rec.Log[0].Detail)
		require.Equal(t, []actors.ChildRecord{{Name: "k: 1", ID: "a:{1}/k"}}, rec.Units[0].Children())
		require.Nil(t, rec.Units[0].Parent)
		r.kept("a:{1}")
		r.kept("a:{1}/k")

		b := child.run()
		require.False(t, b.Steps)
		require.Equal(t, actors.Ledger{}, b.Ledger)
		r.commit(child.completed(b, "ok"))
		r.ended(w.task, "k: 1", "ok", "")
		r.nothingLeft("a:{1}/k")
		rec = r.record("a:{1}")
		require.Equal(t, []actors.ChildRecord{{Name: "k: 1", State: messages.State_STATE_SUCCEEDED}}, rec.Units[0].Children())
	},
	"a child runs once, whoever repeats what": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 1, -1)
		child := children[0]
		b := child.run()
		require.Equal(t, b, child.run())
		c := child.completed(b, "ok")
		r.commit(c)
		r.commit(c)
		child.answers(actors.AlreadyDone)
		_, b = r.goesOn(parent.task)
		require.True(t, b.Steps)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)), "the parent is woken once")
	},
	"who completes may leave children behind": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.completed(w.run(), "ok")
		c.Spawns = kids("a", 2)
		r.commit(c)
		r.commit(c)
		r.state(w.task, messages.State_STATE_SUCCEEDED)
		r.nothingLeft("a")
		for _, child := range r.children(2) {
			require.Equal(t, "a", r.unit(child.task).Parent.ID)
			child.succeed("left alone")
			r.nothingLeft(child.task.GetTaskId())
		}
		r.open(w.task, "k0")
		r.nothingLeft("a")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"a retry starts children too": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), time.Hour)
		c.Spawns = kids("a", 1)
		r.commit(c)
		r.commit(c)
		r.children(1)[0].succeed("ok")
		r.state(w.task, messages.State_STATE_RETRYING)
		r.ended(w.task, "k0", "ok", "")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)), "a retry comes at its time")
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, there)
		b := in.run()
		require.True(t, b.Steps)
		r.resume(in.parked(b, joinOf("all", 1, -1)))
	},
	"who fails, is cancelled or interrupted starts nothing": func(t *testing.T, r *rig) {
		for _, outcome := range []messages.Outcome{
			messages.Outcome_OUTCOME_REJECTED, messages.Outcome_OUTCOME_CANCELLED, messages.Outcome_OUTCOME_INTERRUPTED,
		} {
			w := r.deliver(newTask(outcome.String()), here)
			c := w.outcome(w.run(), outcome)
			c.Spawns = kids(outcome.String(), 1)
			r.commit(c)
			require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		}
	},
	"a fence that is old starts nothing": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		w.again().run()
		r.lost(w.spawning(b, 2, -1))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"a child that was spawned is not spawned again, whatever is said of it": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), timer("now", 0))
		c.Spawns = kids("a", 1)
		r.resume(c)
		r.resume(c)
		c.Waits = []actors.Wait{timer("later", time.Hour)}
		c.Spawns = []actors.Spawning{spawn("k0", newTask("another")), spawn("k1", newTask("a/k1"))}
		r.commit(c)
		require.Equal(t, "a/k0", r.children(2)[0].task.GetTaskId())
		require.Equal(t, "a/k0", string(r.child(w.task, "k0").Value))
		_, err := r.State.Unit(t.Context(), "another", "")
		require.ErrorIs(t, err, actors.ErrNoTask)
	},
	"an id that is taken ends the child at once": func(t *testing.T, r *rig) {
		other := newTask("taken")
		other.Payload = []byte("other work")
		r.deliver(other, here).run()
		r.submit(submission(&messages.Task{TaskId: "submitted", Type: "noop", Payload: []byte("other work")}))
		_, _ = r.family("a", 1, -1)

		w := r.deliver(newTask("b"), here)
		c := w.parked(w.run(), actors.Wait{Name: "all", Kind: actors.WaitJoin, For: -1, Children: []string{"1", "2", "3"}, KeepGoing: true})
		c.Spawns = []actors.Spawning{spawn("1", newTask("taken")), spawn("2", newTask("a/k0")), spawn("3", newTask("submitted"))}
		r.resume(c)
		r.resume(c)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		r.ended(w.task, "1", "", "FAILED id_conflict: its id is taken by other work")
		r.ended(w.task, "2", "", "FAILED id_conflict: it is a child of task a already")
		r.ended(w.task, "3", "", "FAILED id_conflict: its id is taken by other work")
		require.Equal(t, messages.Waited{}, r.waited(w.task, "all"))
		require.Equal(t, "a", r.unit(newTask("a/k0")).Parent.ID)
		r.state(other, messages.State_STATE_RUNNING)
		require.Equal(t, messages.State_STATE_FAILED, r.record("b").Units[0].Children()[0].State)
	},
	"the same work that is there becomes the child": func(t *testing.T, r *rig) {
		runs, over, gone := r.deliver(newTask("runs"), there), r.deliver(newTask("over"), there), r.deliver(newTask("gone"), there)
		b := runs.run()
		over.succeed("long ago")
		gone.failed()
		r.submit(submission(newTask("submitted")))

		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), actors.Wait{Name: "all", Kind: actors.WaitJoin, For: -1, Children: []string{"1", "2", "3", "4"}, KeepGoing: true})
		for i, id := range []string{"runs", "over", "gone", "submitted"} {
			c.Spawns = append(c.Spawns, spawn(fmt.Sprint(i+1), newTask(id)))
		}
		r.commit(c)
		r.open(w.task, "1")
		r.ended(w.task, "2", "long ago", "")
		r.ended(w.task, "3", "", "FAILED rejected: no luck")
		r.open(w.task, "4")
		child := r.children(1)[0]
		require.Equal(t, "submitted", child.task.GetTaskId())
		child.succeed("four")
		r.deliver(child.task, there).answers(actors.AlreadyDone)
		r.commit(runs.completed(b, "one"))
		r.ended(w.task, "1", "one", "")
		require.Equal(t, messages.Waited{}, r.waited(w.task, "all"))
		_, _ = r.goesOn(w.task)
		require.Nil(t, r.unit(over.task).Parent)
	},
	"a child may be a unit of its parent's task": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), joinOf("all", 2, -1))
		c.Spawns = []actors.Spawning{spawn("k0", part("a", "1")), spawn("k1", part("a", "2"))}
		r.commit(c)
		for i, child := range r.children(2) {
			r.kept("a")
			child.succeed(fmt.Sprint(i))
		}
		in, b := r.goesOn(w.task)
		r.ended(w.task, "k1", "1", "")
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a new part of a task that has ended may be a child": func(t *testing.T, r *rig) {
		r.deliver(part("x", "1"), here).succeed("ok")
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), joinOf("all", 1, -1))
		c.Spawns = []actors.Spawning{spawn("k0", part("x", "2"))}
		r.commit(c)
		r.kept("x")
		r.children(1)[0].succeed("ok")
		r.nothingLeft("x")
	},
	"long names, ids and results": func(t *testing.T, r *rig) {
		long := strings.Repeat("x:", 200)
		w := r.deliver(newTask(long), here)
		c := w.parked(w.run(), actors.Wait{Name: "all", Kind: actors.WaitJoin, For: -1, Children: []string{long}})
		c.Spawns = []actors.Spawning{spawn(long, newTask(long+"/k"))}
		r.commit(c)
		child := r.children(1)[0]
		require.Equal(t, &actors.ParentRecord{ID: long, Name: long}, r.unit(child.task).Parent)
		require.Equal(t, long+"/k", string(r.child(w.task, long).Value))
		child.succeed(allBytes(100_000))
		r.ended(w.task, long, allBytes(100_000), "")
		in, b := r.goesOn(w.task)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft(long)
		r.nothingLeft(long + "/k")
	},
	"a message that came before its child is kept": func(t *testing.T, r *rig) {
		r.send(mailing("a/k0", "x", "", "early"), 1)
		_, children := r.family("a", 1, -1)
		r.kept("a/k0")
		children[0].park(await("y", -1))
		r.send(mailing("a/k0", "y", "", "now"), 1)
		in, b := r.goesOn(children[0].task)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a/k0")
	},
	"a child for later waits for its time": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 1, -1)
		child := children[0]
		child.due = r.World.Now(t).Add(time.Hour)
		child.answers(actors.Elsewhere)
		r.state(child.task, messages.State_STATE_SCHEDULED)
		r.World.Ack(t, child.ref)
		r.World.Promote(t, "a/k0", "")
		r.fromInbox(child.task, here).succeed("ok")
		r.ended(parent.task, "k0", "ok", "")
		r.nothingLeft("a/k0")
	},
	"a child that is never begun is condemned": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 1, -1)
		children[0].deliveries = 4
		b := children[0].answers(actors.Condemned)
		require.Equal(t, messages.Reason_REASON_NEVER_BEGUN, b.Reason)
		r.commit(children[0].rejected(b, b.Reason, b.Detail))
		r.ended(parent.task, "k0", "", "FAILED never_begun: ")
	},
	"an end is told, however it comes": func(t *testing.T, r *rig) {
		for name, how := range map[string]struct {
			end  func(child *work)
			says string
		}{
			"failed":    {func(c *work) { c.failed() }, "FAILED rejected: no luck"},
			"cancelled": {func(c *work) { r.cancel(c.task.GetTaskId(), "") }, "CANCELLED not wanted"},
			"cancelled as it ran": {func(c *work) {
				c.run()
				r.cancel(c.task.GetTaskId(), "")
			}, "CANCELLED not wanted"},
			"gave up itself": {func(c *work) { r.commit(c.outcome(c.run(), messages.Outcome_OUTCOME_CANCELLED)) }, "CANCELLED "},
			"buried":         {func(c *work) { r.World.Bury(t, c.ref, c.task) }, "FAILED budget_spent: spent"},
			"lost its body": {func(c *work) {
				b := c.run()
				r.World.Trim(t, c.ref)
				r.commit(c.retry(b, 0))
			}, "FAILED body_gone: "},
			"lost its copy": {func(c *work) {
				r.commit(c.retry(c.run(), 0))
				r.World.Uncopy(t, c.task.GetTaskId(), "")
				r.World.Turn(t)
			}, "FAILED body_gone: "},
			"could not be woken": {func(c *work) {
				c.park(timer("nap", time.Minute))
				r.World.Uncopy(t, c.task.GetTaskId(), "")
				r.World.Pass(t, time.Minute)
				r.World.Turn(t)
			}, "FAILED body_gone: "},
		} {
			parent, children := r.family(name, 1, -1)
			how.end(children[0])
			r.ended(parent.task, "k0", "", how.says)
			require.Equal(t, messages.Waited{}, r.waited(parent.task, "all"), name)
			in := r.fromInbox(parent.task, here)
			in.succeed("ok")
			r.nothingLeft(name)
			r.nothingLeft(name + "/k0")
		}
	},
	"a letter that is retried is no news to the parent": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 1, -1)
		children[0].failed()
		in, b := r.goesOn(parent.task)
		r.World.RetryLetter(t)
		child := r.fromInbox(children[0].task, here)
		rec := r.record("a/k0")
		require.Equal(t, "from the dead letters; its parent is not told again", rec.Log[len(rec.Log)-1].Detail)
		r.kept("a/k0")
		child.succeed("late")
		r.ended(parent.task, "k0", "", "FAILED rejected: no luck")
		r.nothingLeft("a/k0")
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"a letter that is completed is no news to the parent": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 1, -1)
		children[0].failed()
		r.World.CompleteLetter(t)
		r.ended(parent.task, "k0", "", "FAILED rejected: no luck")
	},
	"a parent that has failed leaves its children alone, and goes on with them when its letter is retried": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), 0)
		c.Spawns = kids("a", 3)
		c.Waits = []actors.Wait{joinOf("all", 3, time.Hour)}
		r.commit(c)
		children := r.children(3)
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		in.failed()
		require.Empty(t, r.World.Due(t))
		for end, ttl := range r.World.Standing(t, "a") {
			require.Positive(t, ttl, "time to live of …%s", end)
		}
		r.World.Turn(t)
		children[0].succeed(allBytes(999))
		r.state(children[1].task, messages.State_STATE_PENDING)
		r.ended(w.task, "k0", allBytes(999), "")
		for end, ttl := range r.World.Standing(t, "a") {
			require.Positive(t, ttl, "time to live of …%s", end)
		}
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))

		r.World.RetryLetter(t)
		in = r.fromInbox(w.task, here)
		in.act = 3
		r.kept("a")
		c = in.parked(in.run(), joinOf("all", 3, -1))
		c.Spawns = kids("a", 3)
		r.commit(c)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)), "nothing is started again")
		children[1].succeed("one")
		children[2].succeed("two")
		in, b := r.goesOn(w.task)
		require.Equal(t, messages.Waited{}, r.waited(w.task, "all"))
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a failed parent that is completed by hand hears of nothing more": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.retry(w.run(), 0)
		c.Spawns = kids("a", 1)
		r.commit(c)
		child := r.children(1)[0]
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, here)
		in.act = 2
		in.failed()
		r.World.CompleteLetter(t)
		child.succeed("ok")
		r.open(w.task, "k0")
		r.nothingLeft("a")
	},
	"cancelling a parent cancels its open children, and theirs": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 4, time.Hour)
		children[0].succeed("done before")
		b := children[1].run()
		r.commit(children[2].spawning(children[2].run(), 1, -1))
		grandchild := r.children(1)[0]
		require.Len(t, r.cancel("a", ""), 1)
		r.nothingLeft("a")
		for range 3 { // a generation a turn
			r.World.Turn(t)
		}
		require.Empty(t, r.World.Due(t))
		r.state(children[0].task, messages.State_STATE_SUCCEEDED)
		for _, w := range append(children[1:], grandchild) {
			u := r.unit(w.task)
			require.Equal(t, messages.State_STATE_CANCELLED, u.State, w.task.GetTaskId())
			require.Equal(t, "its parent was cancelled", u.Error)
			w.answers(actors.CancelledBefore)
			r.nothingLeft(w.task.GetTaskId())
		}
		r.lost(children[1].completed(b, "late"))
		r.open(parent.task, "k1")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"a parent that cancels itself cancels its children": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		c := w.parked(b, timer("now", 0))
		c.Spawns = kids("a", 1)
		r.resume(c)
		r.commit(w.outcome(b, messages.Outcome_OUTCOME_CANCELLED))
		r.World.Turn(t)
		r.state(r.children(1)[0].task, messages.State_STATE_CANCELLED)
	},
	"cancelling one unit leaves the children of another": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here)
		for i, w := range []*work{one, two} {
			c := w.parked(w.run(), joinOf("all", 1, -1))
			c.Spawns = []actors.Spawning{spawn("k0", newTask(fmt.Sprint("child", i)))}
			r.commit(c)
		}
		children := r.children(2)
		r.cancel("a", "1")
		r.World.Turn(t)
		r.state(children[0].task, messages.State_STATE_CANCELLED)
		children[1].succeed("ok")
		in, b := r.goesOn(two.task)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a child whose parent is forgotten ends all the same": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.completed(w.run(), "ok")
		c.TTL, c.Spawns = time.Millisecond, kids("a", 1)
		r.commit(c)
		child := r.children(1)[0]
		require.Eventually(t, func() bool { return len(r.World.Standing(t, "a")) == 0 }, 10*time.Second, time.Millisecond)
		child.succeed("ok")
		require.Empty(t, r.World.Standing(t, "a"))
	},
	"a parent's death changes nothing for its children": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 2, -1)
		children[0].succeed("0")
		children[1].succeed("1")
		in := r.fromInbox(parent.task, here)
		in.run()
		r.World.Live(t, here, false)
		in = in.on(there)
		b := in.run()
		require.Equal(t, actors.Ledger{Deaths: 1}, b.Ledger)
		c := in.completed(b, "ok")
		c.Spawns = kids("a", 2)
		r.commit(c)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(there)))
	},
	"a thousand children in one commit": func(t *testing.T, r *rig) {
		const n = 1000
		parent, children := r.family("a", n, -1)
		for i, child := range children {
			require.Equal(t, fmt.Sprint("a/k", i), child.task.GetTaskId(), "in order")
			child.succeed(fmt.Sprint(i))
		}
		in, b := r.goesOn(parent.task)
		require.Equal(t, messages.Waited{}, r.waited(parent.task, "all"))
		require.Len(t, r.record("a").Units[0].Children(), n)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"a thousand children are cancelled in turns": func(t *testing.T, r *rig) {
		const n = 1000
		_, children := r.family("a", n, -1)
		r.cancel("a", "")
		for range n / 200 {
			r.World.Turn(t)
		}
		require.Empty(t, r.World.Due(t))
		for _, child := range children {
			r.state(child.task, messages.State_STATE_CANCELLED)
		}
	},
}
