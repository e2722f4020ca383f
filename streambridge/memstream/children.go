package memstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-run/weir/messages"
)

// child is what a unit has spawned.
type child struct {
	id, unit string
	ended    bool
	good     bool // it ended with a result
}

// join is what an open join waits for.
type join struct {
	open              map[string]bool // the names of its children that have not ended
	results, failures int
}

// Spawning is a child on its way.
type Spawning struct {
	Name, ID, Unit, Work, Type string
	Fields                     []messages.Pair
}

// Spawn starts children of a unit, but for those whose names have checkpoints.
func (tx *Tx) Spawn(t *Task, u *Unit, kids []Spawning) {
	n := 0
	for _, k := range kids {
		if _, known := u.Steps[k.Name]; known {
			continue
		}
		tx.w.spawn(t, u, k, tx.NowMS)
		n++
	}
	switch n {
	case 0:
		return
	case 1:
		t.note(tx.NowMS, "spawned", "1 child")
	default:
		t.note(tx.NowMS, "spawned", fmt.Sprint(n, " children"))
	}
	t.Ties = true
	tx.w.keepMail(t.ID)
}

// spawn starts a child. A unit of that identity that is there already becomes the child where it is the same work and nobody
// else's child; else the child has FAILED at once.
func (w *world) spawn(t *Task, u *Unit, k Spawning, now int64) {
	if t.children == nil {
		t.children = map[WaitKey]*child{}
	}
	if u.Steps == nil {
		u.Steps = map[string][]byte{}
	}
	key, me := WaitKey{u.Name, k.Name}, &child{id: k.ID, unit: k.Unit}
	t.children[key] = me
	step := messages.Step{Status: messages.StepSpawned, Attempts: 1, BeganMS: now, Value: []byte(k.ID)}
	its := w.task(k.ID).unit(k.Unit)
	parent := ParentKey{t.ID, key}
	switch why := w.refuseChild(its, k, parent); {
	case why != "":
		step.Status, step.EndedMS, step.Value, step.Error = messages.StepChild, now, nil, "FAILED id_conflict: "+why
		me.ended = true
	case its != nil && Ended(its.State):
		step = childStep(its, now, now)
		me.ended, me.good = true, step.Error == ""
	default:
		if its == nil {
			its = w.newChild(k, now)
		}
		its.Parent = &parent
		w.task(k.ID).Ties = true
		w.keepMail(k.ID)
	}
	u.Steps[k.Name] = messages.EncodeStep(step)
}

// refuseChild is why that identity cannot be the child.
func (w *world) refuseChild(its *Unit, k Spawning, parent ParentKey) string {
	const other = "its id is taken by other work"
	switch {
	case its == nil:
		if m := w.data.marks[w.keys.Submitted(k.ID)]; m != nil {
			if mark, ok := m.units[k.Unit]; ok && mark.Work != k.Work {
				return other
			}
		}
	case its.Work != "" && its.Work != k.Work:
		return other
	case its.Parent != nil && *its.Parent != parent:
		return "it is a child of task " + its.Parent.Task + " already"
	}
	return ""
}

// newChild makes the record of a child, and its entry.
func (w *world) newChild(k Spawning, now int64) *Unit {
	t := w.makeTask(k.ID)
	w.expire(t, now, 0)
	u := &Unit{Name: k.Unit, Type: k.Type, Work: k.Work, CreatedMS: now}
	t.Units[k.Unit] = u
	w.become(t, u, messages.State_STATE_PENDING, now, false)
	w.toInbox(now, withControl(k.Fields, k.ID, messages.NoOrigin, 0))
	return u
}

// childStep is the checkpoint of a child that has ended, as its parent has it.
func childStep(u *Unit, beganMS, now int64) messages.Step {
	s := messages.Step{Status: messages.StepChild, Attempts: 1, BeganMS: beganMS, EndedMS: now}
	if u.State == messages.State_STATE_SUCCEEDED {
		s.ContentType, s.Value = u.ContentType, u.Result
		return s
	}
	s.Error = strings.TrimPrefix(u.State.String(), "STATE_") + " "
	if u.Reason != 0 {
		s.Error += messages.ReasonName(u.Reason) + ": "
	}
	s.Error += u.Error
	s.Error = s.Error[:min(len(s.Error), 4096)]
	return s
}

// dropChildren forgets what a unit that has ended for good has spawned. It returns the members of those that are open.
func (t *Task) dropChildren(unit string) (open []string) {
	for key, c := range t.children {
		if key.Unit != unit {
			continue
		}
		if !c.ended {
			open = append(open, member(c.id, c.unit))
		}
		delete(t.children, key)
	}
	return open
}

// openJoin notes which of its children a join waits for.
func (t *Task) openJoin(key WaitKey, wait *messages.Wait) {
	j := &join{open: map[string]bool{}}
	for _, name := range wait.Children {
		switch c := t.children[WaitKey{key.Unit, name}]; {
		case c == nil:
		case !c.ended:
			j.open[name] = true
		case c.good:
			j.results++
		default:
			j.failures++
		}
	}
	if t.joins == nil {
		t.joins = map[WaitKey]*join{}
	}
	t.joins[key] = j
}

// over says whether none of the join's children is open, enough have a result, or one has none and that ends it.
func (j *join) over(wait *messages.Wait) bool {
	return wait.Need > 0 && j.results >= wait.Need || !wait.KeepGoing && j.failures > 0 || len(j.open) == 0
}

// joinOver says how a join has ended; ok is false while it goes on. ripe says that its time is over.
func (t *Task) joinOver(key WaitKey, wait *messages.Wait, ripe bool) (waited messages.Waited, ok bool) {
	j := t.joins[key]
	if !j.over(wait) {
		if !ripe {
			return waited, false
		}
		waited.Timeout = true
	}
	if len(j.open) == 0 {
		return waited, true
	}
	waited.Children = []string{}
	for _, name := range wait.Children {
		if !j.open[name] {
			waited.Children = append(waited.Children, name)
		}
	}
	return waited, true
}

// tell lets the parent of a unit that has ended know how, once; what is over by that ends, and the parent goes on. One that
// has ended for good has no open children any more and is left alone.
func (w *world) tell(t *Task, u *Unit, now int64) {
	if u.Parent == nil {
		return
	}
	p, key := w.task(u.Parent.Task), u.Parent.WaitKey
	if p == nil {
		return
	}
	c := p.children[key]
	if c == nil || c.ended || c.id != t.ID || c.unit != u.Name {
		return
	}
	parent, some := p.Units[key.Unit], false
	joins := p.openJoins(key.Unit)
	for _, j := range joins {
		// Its time may be over, and no tick has seen it yet.
		if at, timed := w.due[j.timer(p.ID)]; timed && at <= now && w.lookAt(p, j, now) {
			some = true
		}
	}
	began := now
	if old, err := messages.DecodeStep(key.Name, parent.Steps[key.Name]); err == nil {
		began = old.BeganMS
	}
	step := childStep(u, began, now)
	parent.Steps[key.Name] = messages.EncodeStep(step)
	c.ended, c.good = true, step.Error == ""
	for _, j := range joins {
		if p.childEnded(j, key.Name, c.good) && w.lookAt(p, j, now) {
			some = true
		}
	}
	if some {
		w.wakeUnit(p, key.Unit, now)
	}
}

// openJoins lists a unit's open joins in the order of their fields.
func (t *Task) openJoins(unit string) (keys []WaitKey) {
	for key := range t.joins {
		if key.Unit == unit {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b WaitKey) int { return cmp.Compare(a.field(), b.field()) })
	return keys
}

// childEnded takes a child out of a join, and reports whether that is over now.
func (t *Task) childEnded(key WaitKey, name string, good bool) bool {
	j := t.joins[key]
	if j == nil || !j.open[name] {
		return false
	}
	delete(j.open, name)
	if good {
		j.results++
	} else {
		j.failures++
	}
	return j.over(t.Waits[key])
}
