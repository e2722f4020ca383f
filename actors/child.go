package actors

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// Child is a task that a handler has spawned, whose result is an R.
type Child[R any] struct{ child }

// child is a Child with its type erased.
type child struct {
	act      *activation
	name, id string
	err      error // why it was not spawned
	ended    bool  // as far as the Joins so far have told
	end      messages.Step
}

// Spawn starts a child: a task of its own in the same group, whose end its parent is told. It starts with the commit that
// parks or completes this unit, and an activation that fails or dies before that has started nothing. The name is one of
// the activation's steps and waits: a child that was spawned under it is not spawned again, whatever t says now.
//
// The child's id is "<task id>/<name>" where t names none, with the unit between where there is one. A task of that id that
// is there already, and is the same work and nobody's child, becomes the child; an id that is taken otherwise makes a child
// that has failed (id_conflict). The child's result comes with Join; without one it is a task that goes on by itself when its
// parent has ended.
//
// Cancelling the parent cancels the children that are open then, within a tick or two, and theirs; nothing of what they did
// is undone. A parent that fails leaves its children running: when its dead letter is retried it finds how they have ended.
// How a child ended is told once: a dead letter of the child that is retried later is no news to the parent.
//
// A task that cannot be spawned is ErrMisuse, or ErrTooLarge, and ends the unit: a bad type or payload, a handler that this
// node's agent lacks. That no agent has the type is not known here; the child waits for a node that does.
func Spawn[R any](c *Context, name string, t NewTask) *Child[R] {
	k := &Child[R]{child{act: c.act, name: name}}
	k.err = c.spawn(&k.child, storable(reflect.TypeFor[R]()), t)
	return k
}

// Name is that of its Spawn.
func (k *Child[R]) Name() string { return k.name }

// ID is the child's task id.
func (k *Child[R]) ID() string { return k.id }

// Get returns the child's result, once a Join has ended after it: until then, and for a child that a Join went on without,
// it says false, in every activation alike. A child that ended without a result is a *ChildError, one whose result does
// not decode as R a *MessageError.
func (k *Child[R]) Get() (result R, ended bool, err error) {
	switch {
	case k.err != nil:
		return result, false, k.err
	case !k.ended:
		return result, false, nil
	case k.end.Error != "":
		return result, true, &ChildError{Name: k.name, Task: taskErrorOf(k.id, k.end.Error)}
	}
	result, err = decode[R](stored{k.end.ContentType, k.end.Value}, false)
	if err != nil {
		return result, true, &MessageError{Wait: k.name, Err: err}
	}
	return result, true, nil
}

// taskErrorOf reads how a child ended: its state, then why.
func taskErrorOf(id, text string) *TaskError {
	word, detail, _ := strings.Cut(text, " ")
	e := &TaskError{ID: id, State: messages.State_STATE_FAILED, Detail: detail}
	if word == StateName(messages.State_STATE_CANCELLED) {
		e.State, e.Reason = messages.State_STATE_CANCELLED, "cancelled"
	}
	if word, rest, _ := strings.Cut(detail, " "); slices.Contains(messages.ReasonNames(), strings.TrimSuffix(word, ":")) {
		e.Reason, e.Detail = strings.TrimSuffix(word, ":"), rest
	}
	return e
}

// spawn answers a child from its checkpoint, or takes it into the next commit.
func (c *Context) spawn(k *child, bad error, t NewTask) error {
	what := fmt.Sprintf("spawn %q", k.name)
	if err := c.named("spawn", k.name); err != nil {
		return err
	}
	defer c.leave()
	if bad != nil {
		return c.misuse("%s: result: %v", what, bad)
	}
	job := c.act.job
	k.id = cmp.Or(t.ID, join(job.Task.GetTaskId(), job.Task.GetUnit(), k.name))
	cp, found, err := c.act.kept("spawn", k.name, messages.StepSpawned, messages.StepChild)
	if err != nil {
		return err
	}
	if found {
		if cp.Status == messages.StepSpawned {
			k.id = cmp.Or(string(cp.Value), k.id)
		}
		return nil
	}
	if a, handler, ok := job.Agents.Find(t.Type); ok && !a.Handler(handler) {
		return c.misuse("%s: the agent of %q has no handler %q", what, t.Type, handler)
	}
	t.ID = k.id
	sub, err := job.submission(t)
	if err == nil && sub.ID == job.Task.GetTaskId() && sub.Unit == job.Task.GetUnit() {
		err = errors.New("a task cannot be its own child")
	}
	if err == nil {
		err = c.act.start("", sub, func(s *starting) { s.spawns = append(s.spawns, Spawning{Name: k.name, Task: sub}) })
	}
	return c.refused(what, err)
}

// JoinOption is an argument of Join.
type JoinOption interface{ joinOption(*joining) }

type joinOption func(*joining)

func (f joinOption) joinOption(j *joining) { f(j) }

// Need lets a Join end as soon as n children have given a result. The others go on, and are not cancelled.
func Need(n int) JoinOption {
	return joinOption(func(j *joining) { j.wait.Need, j.some = n, true })
}

// KeepGoing lets children fail: without it a Join ends with the first that does.
func KeepGoing() JoinOption {
	return joinOption(func(j *joining) { j.wait.KeepGoing = true })
}

// Join waits until all the children have ended, or as its options say, for at most the given time, and returns the results
// that are there, in the order of kids. A child that fails, or is cancelled, or whose result does not decode as R, ends it
// with a *ChildError or a *MessageError, unless the join keeps going; then Get tells which. Fewer results than Need asks for
// are the same. Results that are there are returned beside an error, ErrTimeout too.
//
// What it returns is written once: a later activation gets the same, whatever has become of the children since. For the
// rest see Await.
func Join[R any](c *Context, name string, timeout time.Duration, kids []*Child[R], opts ...JoinOption) ([]R, error) {
	j := joining{wait: Wait{Name: name, Kind: WaitJoin}, kids: make([]*child, len(kids))}
	for i, k := range kids {
		if k != nil {
			j.kids[i] = &k.child
		}
	}
	late, err := j.run(c, timeout, opts)
	if err != nil {
		return nil, err
	}
	var out []R
	var failed []error
	for _, k := range kids {
		r, ended, err := k.Get()
		switch {
		case err != nil:
			failed = append(failed, err)
		case ended:
			out = append(out, r)
		}
	}
	return out, j.verdict(len(out), failed, late)
}

// joining is a Join under way.
type joining struct {
	wait Wait
	kids []*child
	some bool // Need was given
}

// run waits, and tells the children which of them have ended.
func (j *joining) run(c *Context, timeout time.Duration, opts []JoinOption) (late *waitError, err error) {
	bad := j.configure(c, timeout, opts)
	if bad == nil && len(j.kids) == 0 {
		if err := c.named("join", j.wait.Name); err != nil {
			return nil, err
		}
		c.leave()
		return nil, nil
	}
	end, err := c.wait("join", j.wait, bad, fmt.Sprintf("waits in %q for %d children", j.wait.Name, len(j.kids)))
	if err != nil {
		return nil, err
	}
	ended := map[string]bool{}
	for _, name := range end.Children {
		ended[name] = true
	}
	for _, k := range j.kids {
		if end.Children != nil && !ended[k.name] {
			continue
		}
		cp := c.act.steps[k.name]
		if cp.Status != messages.StepChild {
			return nil, c.act.latchTo(fmt.Errorf("join %q: child %q is said to have ended, and its checkpoint is %q: %w",
				j.wait.Name, k.name, cp.Status, messages.ErrStep))
		}
		k.ended, k.end = true, cp
	}
	if end.Timeout {
		late = &waitError{kind: "join", name: j.wait.Name, after: timeout}
	}
	return late, nil
}

func (j *joining) configure(c *Context, timeout time.Duration, opts []JoinOption) (bad error) {
	j.wait.For, bad = limitOf(timeout)
	for _, o := range opts {
		if o == nil {
			return errors.Join(bad, errors.New("a nil option"))
		}
		o.joinOption(j)
	}
	seen := map[string]bool{}
	for _, k := range j.kids {
		switch {
		case k == nil || k.act == nil:
			return errors.Join(bad, errors.New("a child that Spawn has not made"))
		case k.act != c.act:
			return errors.Join(bad, fmt.Errorf("child %q is of another activation", k.name))
		case seen[k.name]:
			return errors.Join(bad, fmt.Errorf("child %q is there twice", k.name))
		}
		seen[k.name] = true
		j.wait.Children = append(j.wait.Children, k.name)
	}
	if n := j.wait.Need; j.some && (n < 1 || n > len(j.kids)) {
		bad = errors.Join(bad, fmt.Errorf("Need(%d) of %d children", n, len(j.kids)))
	}
	return bad
}

// maxJoined is how many failed children an error names.
const maxJoined = 10

func (j *joining) verdict(results int, failed []error, late *waitError) error {
	why := errors.Join(failed[:min(len(failed), maxJoined)]...)
	switch {
	case j.some && results >= j.wait.Need:
		return nil
	case late != nil:
		return late
	case j.some:
		return fmt.Errorf("join %q: %d of %d children gave a result where %d are needed: %w", j.wait.Name, results, len(j.kids), j.wait.Need, why)
	case len(failed) > 0 && !j.wait.KeepGoing:
		return fmt.Errorf("join %q: %d of %d children failed: %w", j.wait.Name, len(failed), len(j.kids), why)
	}
	return nil
}
