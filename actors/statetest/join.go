package statetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var joinCases = map[string]func(*testing.T, *rig){
	"a join ends when none of its children is open": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 3, time.Hour)
		rec := r.record("a").Units[0].Waits[0]
		require.Equal(t, messages.WaitJoin, rec.Kind)
		require.Equal(t, []string{"k0", "k1", "k2"}, rec.Children)
		require.WithinDuration(t, r.World.Now(t).Add(time.Hour), rec.Deadline, 5*time.Second)
		for i, n := range []int{2, 0, 1} {
			r.state(parent.task, messages.State_STATE_WAITING)
			require.Len(t, r.waits(parent.task), 1, "after %d", i)
			children[n].succeed("ok")
		}
		require.Equal(t, messages.Waited{}, r.waited(parent.task, "all"))
		require.Empty(t, r.waits(parent.task))
		require.Empty(t, r.World.Due(t))
		_, _ = r.goesOn(parent.task)
		log := r.record("a").Log
		require.Equal(t, "joined", log[len(log)-1].What)
	},
	"a failure ends a join that does not keep going": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 3, -1)
		children[2].succeed("ok")
		children[1].failed()
		require.Equal(t, messages.Waited{Children: []string{"k1", "k2"}}, r.waited(parent.task, "all"))
		_, _ = r.goesOn(parent.task)
		children[0].succeed("late")
		r.ended(parent.task, "k0", "late", "")
		require.Equal(t, messages.Waited{Children: []string{"k1", "k2"}}, r.waited(parent.task, "all"))
	},
	"a join that keeps going waits for those that fail": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.spawning(w.run(), 2, -1)
		c.Waits[0].KeepGoing = true
		r.commit(c)
		children := r.children(2)
		children[0].failed()
		r.state(w.task, messages.State_STATE_WAITING)
		children[1].failed()
		require.Equal(t, messages.Waited{}, r.waited(w.task, "all"))
		_, _ = r.goesOn(w.task)
	},
	"enough results end a join": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.spawning(w.run(), 4, -1)
		c.Waits[0].KeepGoing, c.Waits[0].Need = true, 2
		r.commit(c)
		children := r.children(4)
		children[3].succeed("ok")
		children[0].failed()
		r.state(w.task, messages.State_STATE_WAITING)
		children[1].succeed("ok")
		require.Equal(t, messages.Waited{Children: []string{"k0", "k1", "k3"}}, r.waited(w.task, "all"))
		in, b := r.goesOn(w.task)
		r.open(w.task, "k2")
		r.commit(in.completed(b, "ok"))
		children[2].succeed("nobody wants it")
		r.nothingLeft("a")
	},
	"results that are too few end a join when none is open": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.spawning(w.run(), 2, -1)
		c.Waits[0].KeepGoing, c.Waits[0].Need = true, 2
		r.commit(c)
		children := r.children(2)
		children[0].failed()
		children[1].succeed("ok")
		require.Equal(t, messages.Waited{}, r.waited(w.task, "all"))
	},
	"a failure ends a join that needs some": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.spawning(w.run(), 3, -1)
		c.Waits[0].Need = 1
		r.commit(c)
		r.children(3)[1].failed()
		require.Equal(t, messages.Waited{Children: []string{"k1"}}, r.waited(w.task, "all"))
	},
	"the time of a join is over": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 2, time.Minute)
		children[1].succeed("ok")
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		require.Equal(t, messages.Waited{Timeout: true, Children: []string{"k1"}}, r.waited(parent.task, "all"))
		in, b := r.goesOn(parent.task)
		children[0].succeed("late")
		r.ended(parent.task, "k0", "late", "")
		require.Equal(t, messages.Waited{Timeout: true, Children: []string{"k1"}}, r.waited(parent.task, "all"))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"the time of a join is over, and no tick has seen it yet": func(t *testing.T, r *rig) {
		parent, children := r.family("a", 1, time.Minute)
		r.World.Pass(t, time.Minute)
		children[0].succeed("late")
		require.Equal(t, messages.Waited{Timeout: true, Children: []string{}}, r.waited(parent.task, "all"))
		r.ended(parent.task, "k0", "late", "")
		_, _ = r.goesOn(parent.task)
		require.Empty(t, r.World.Due(t))
	},
	"a join of no time tells what is there": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.spawning(w.run(), 1, 0)
		r.resume(c)
		require.Equal(t, messages.Waited{Timeout: true, Children: []string{}}, r.waited(w.task, "all"))
	},
	"what ended before its join counts": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.parked(w.run(), await("go", -1))
		c.Spawns = kids("a", 3)
		r.commit(c)
		children := r.children(3)
		children[0].succeed("0")
		children[1].failed()
		r.send(mailing("a", "go", "", "!"), 1)
		in, b := r.goesOn(w.task)
		need := joinOf("need", 3, -1)
		need.Need, need.KeepGoing = 1, true
		r.resume(in.parked(b, need))
		require.Equal(t, messages.Waited{Children: []string{"k0", "k1"}}, r.waited(w.task, "need"))
		r.resume(in.parked(b, joinOf("all", 3, -1)))
		require.Equal(t, messages.Waited{Children: []string{"k0", "k1"}}, r.waited(w.task, "all"))
		only := actors.Wait{Name: "only", Kind: actors.WaitJoin, For: -1, Children: []string{"k0"}}
		r.resume(in.parked(b, only))
		require.Equal(t, messages.Waited{}, r.waited(w.task, "only"))
		keep := joinOf("keep", 3, -1)
		keep.KeepGoing = true
		r.commit(in.parked(b, keep))
		children[2].succeed("2")
		require.Equal(t, messages.Waited{}, r.waited(w.task, "keep"))
	},
	"a child that ends while its parent runs is seen by the commit": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		c := w.parked(b, timer("now", 0))
		c.Spawns = kids("a", 2)
		r.resume(c)
		children := r.children(2)
		children[0].succeed("0")
		children[1].succeed("1")
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)), "who runs is not woken")
		c = w.parked(b, joinOf("all", 2, -1))
		r.resume(c)
		r.resume(c)
		r.commit(w.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"two joins of one unit": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		left := actors.Wait{Name: "left", Kind: actors.WaitJoin, For: -1, Children: []string{"k0", "k1"}}
		right := actors.Wait{Name: "right", Kind: actors.WaitJoin, For: time.Hour, Children: []string{"k1", "k2"}}
		c := w.parked(w.run(), left, right)
		c.Spawns = kids("a", 3)
		r.commit(c)
		children := r.children(3)
		children[1].succeed("1")
		require.Equal(t, []string{"left", "right"}, r.waits(w.task))
		children[0].succeed("0")
		require.Equal(t, []string{"right"}, r.waits(w.task))
		in, b := r.goesOn(w.task)
		children[2].succeed("2")
		require.Empty(t, r.waits(w.task))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)), "who runs is not woken")
		r.resume(in.parked(b, right))
	},
	"a unit in doubt is not woken by its children": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.spawning(w.run(), 1, -1)
		c.Doubt = "pay"
		r.commit(c)
		r.children(1)[0].succeed("ok")
		r.state(w.task, messages.State_STATE_WAITING)
		require.Equal(t, messages.Waited{}, r.waited(w.task, "all"))
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
	"a parent whose copy is gone has failed, and its own parent hears of it": func(t *testing.T, r *rig) {
		top, children := r.family("a", 1, -1)
		mid := children[0]
		r.commit(mid.spawning(mid.run(), 1, -1))
		r.World.Ack(t, mid.ref)
		leaf := r.children(1)[0]
		r.World.Uncopy(t, "a/k0", "")
		leaf.succeed("ok")
		require.Equal(t, messages.Reason_REASON_BODY_GONE, r.unit(mid.task).Reason)
		require.Len(t, r.World.Dead(t), 1)
		r.ended(top.task, "k0", "", "FAILED body_gone: ")
		in, b := r.goesOn(top.task)
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a cancelled parent waits for nothing any more": func(t *testing.T, r *rig) {
		_, children := r.family("a", 1, time.Hour)
		r.cancel("a", "")
		r.nothingLeft("a")
		children[0].succeed("before the tick")
		r.World.Turn(t)
		r.state(children[0].task, messages.State_STATE_SUCCEEDED)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(here)))
	},
}
