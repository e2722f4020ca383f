package statetest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// family is what must be true of a unit's children, of its join, and of its parent.
type family struct {
	parent *unitModel
	name   string // as its parent spawned it
	kids   map[string]*kid
	gone   bool // it has ended for good, and hears of nothing any more
	join   *actors.Wait
	joined bool
}

// kid is a child as its parent knows it: state is 0 while it is open.
type kid struct {
	unit  *unitModel
	state messages.State
}

// park commits a unit that waits for children, some of which it starts.
func (m *model) park(rt *rapid.T) {
	u, f, h := m.fenceOf(rt)
	join := actors.Wait{
		Name: "join", Kind: actors.WaitJoin, For: -1, Need: rapid.IntRange(0, 2).Draw(rt, "need"), KeepGoing: rapid.Bool().Draw(rt, "keep going"),
	}
	c := actors.Commit{Outcome: messages.Outcome_OUTCOME_PARKED}
	for i := range rapid.IntRange(1, 3).Draw(rt, "children") {
		name := fmt.Sprint("k", i)
		join.Children = append(join.Children, name)
		c.Spawns = append(c.Spawns, spawn(name, newTask(fmt.Sprint(u.task.GetTaskId(), "+", u.task.GetUnit(), name))))
	}
	if len(u.task.GetTaskId()) > 10 {
		rt.Skip("a family of three generations is enough")
	}
	if rapid.Bool().Draw(rt, "retry first") {
		c.Outcome = messages.Outcome_OUTCOME_RETRY
	}
	c.Waits = []actors.Wait{join}
	m.commitAs(u, f, h, c)
}

// start does what a commit with a good fence starts. It says whether a parked unit need not wait.
func (m *model) start(u *unitModel, c actors.Commit) bool {
	for _, s := range c.Spawns {
		if u.kids[s.Name] != nil {
			continue
		}
		child := &unitModel{task: newTask(s.Task.ID), state: messages.State_STATE_PENDING, outs: map[actors.Fence]messages.Outcome{}}
		child.parent, child.name = u, s.Name
		m.units[s.Task.ID+"/"] = child
		if u.kids == nil {
			u.kids = map[string]*kid{}
		}
		u.kids[s.Name] = &kid{unit: child}
	}
	if len(c.Waits) == 0 {
		return false
	}
	if !u.joined && u.join == nil {
		u.join = &c.Waits[0]
	}
	u.look()
	return u.joined && c.Outcome == messages.Outcome_OUTCOME_PARKED
}

// look ends the unit's join where it is over.
func (u *unitModel) look() {
	if u.join == nil {
		return
	}
	open, results, failures := 0, 0, 0
	for _, name := range u.join.Children {
		switch u.kids[name].state {
		case 0:
			open++
		case messages.State_STATE_SUCCEEDED:
			results++
		default:
			failures++
		}
	}
	if open == 0 || u.join.Need > 0 && results >= u.join.Need || !u.join.KeepGoing && failures > 0 {
		u.join, u.joined = nil, true
	}
}

// ended tells the parent of a unit that has ended, and dooms its children where it was cancelled.
func (m *model) ended(u *unitModel) {
	if !final(u.state) {
		return
	}
	u.join = nil
	if u.state != messages.State_STATE_FAILED {
		u.gone = true
		for _, k := range u.kids {
			if k.state == 0 && u.state == messages.State_STATE_CANCELLED {
				m.doomed = append(m.doomed, k.unit)
			}
		}
	}
	p := u.parent
	if p == nil || p.gone || p.kids[u.name].state != 0 {
		return
	}
	p.kids[u.name].state = u.state
	if p.look(); p.joined && p.state == messages.State_STATE_WAITING {
		p.state = messages.State_STATE_PENDING
	}
}

// turn is a tick: the children of those that were cancelled are.
func (m *model) turn(*rapid.T) {
	m.World.Turn(m.t)
	doomed := m.doomed
	m.doomed = nil
	for _, u := range doomed {
		if final(u.state) {
			continue
		}
		if u.state == messages.State_STATE_RUNNING && m.owners[u.task.GetTaskId()] == u.fence.Incarnation {
			delete(m.owners, u.task.GetTaskId())
		}
		u.state, u.outs[u.fence] = messages.State_STATE_CANCELLED, messages.Outcome_OUTCOME_CANCELLED
		m.ended(u)
	}
	for id, owner := range m.owners { // should a dead one come back, it may own nothing
		if m.live[owner] {
			continue
		}
		rec, err := m.State.Task(m.t.Context(), id)
		if err != nil {
			m.fatalf("task: %v", err)
		}
		if rec.Owner == "" {
			delete(m.owners, id)
		}
	}
}

// checkKids compares what the record says of a unit's children with the model.
func (m *model) checkKids(u *unitModel) {
	rec, err := m.State.Task(m.t.Context(), u.task.GetTaskId())
	if err != nil {
		m.fatalf("task: %v", err)
	}
	for i := range rec.Units {
		if rec.Units[i].Unit != u.task.GetUnit() {
			continue
		}
		got := rec.Units[i].Children()
		if len(got) != len(u.kids) {
			m.fatalf("%d children, expected %d", len(got), len(u.kids))
		}
		for _, k := range got {
			if want := u.kids[k.Name]; want == nil || want.state != k.State {
				m.fatalf("child %q of %q is %v, expected %+v", k.Name, rec.ID, k.State, want)
			}
		}
		if open := len(rec.Units[i].Waits) > 0; open != (u.join != nil) {
			m.fatalf("%q waits: %t, expected %+v", rec.ID, open, u.join)
		}
	}
}
