package actors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// starting is what an activation starts beside its own task. It goes with the commit that parks or completes the unit and
// never before, so that an activation that dies has started nothing. The activation's mu guards it: branches spawn too.
type starting struct {
	spawns []Spawning
	emits  []Emission
	taken  map[string]bool // identities, by where they go
	size   int
}

// What one commit may start: it is one script.
const (
	maxStarts     = 10_000
	maxStartBytes = 16 << 20
)

// Emit adds a task to another stream when this unit completes, and only then: in the commit that writes its result. A
// unit that fails, or is cancelled, emits nothing. On a cluster both streams share a hash tag, such as {agent}:tasks and
// {agent}:tools; a stream that cannot be written with our own is refused.
//
// The task's id is "<task id>/<last part of the stream's name>" where t names none, with the unit between where there is
// one. It carries the id of the task that the chain began with (Info.Root). A stream that is full takes it all the same:
// what was done is not undone. An id that is known there with the same work adds nothing. One that is taken there by other
// work fails the unit, with the reason misuse and a dead letter, and nothing of what it emits is added: the letter may be
// retried once the id is forgotten there, or with code that chooses another, and goes on from the checkpoints.
//
// It is no step and has no name; every activation calls it again. A task that cannot be emitted is ErrMisuse, or
// ErrTooLarge, and ends the unit.
func Emit(c *Context, stream string, t NewTask) error {
	what := fmt.Sprintf("emit to %q", stream)
	if err := c.enter(what); err != nil {
		return err
	}
	defer c.leave()
	sub, err := c.emission(stream, t)
	if err == nil {
		err = c.act.start(stream, sub, func(s *starting) { s.emits = append(s.emits, Emission{stream, sub}) })
	}
	return c.refused(what, err)
}

// emission is the task as an entry of that stream.
func (c *Context) emission(stream string, t NewTask) (Submission, error) {
	job := c.act.job
	if err := (Names{Stream: stream}).WithDefaults().Validate(); err != nil || stream == "" {
		return Submission{}, cmp.Or(err, errors.New("the stream has no name"))
	}
	if s, ok := job.Store.(interface{ CanEmit(stream string) error }); ok {
		if err := s.CanEmit(stream); err != nil {
			return Submission{}, err
		}
	}
	if t.ID == "" {
		t.ID = join(job.effectID(), job.Task.GetUnit(), stage(stream))
	}
	sub, err := job.submission(t)
	sub.TTL = cmp.Or(job.Remember, defaultRemember)
	return sub, err
}

// stage is the last part of a stream's name.
func stage(stream string) string {
	s := strings.TrimRight(stream, ":{}")
	return cmp.Or(s[strings.LastIndexAny(s, ":{}")+1:], stream)
}

// join makes the id of a task that another one starts.
func join(id, unit, name string) string {
	if unit != "" {
		id += "/" + unit
	}
	return id + "/" + name
}

// submission checks a task that this one starts; it has an id.
func (j *Job) submission(t NewTask) (Submission, error) {
	if t.Delay != 0 || !t.At.IsZero() || t.Unique != "" || t.For != 0 {
		return Submission{}, fmt.Errorf("Delay, At, Unique and For are for Submit alone; a task that is to begin later begins with a Sleep: %w", ErrInvalid)
	}
	f := j.fieldNames()
	if !slices.ContainsFunc(t.Fields, func(p Field) bool { return p.Name == f.Root }) {
		t.Fields = append(slices.Clip(t.Fields), Field{Name: f.Root, Value: j.root()})
	}
	return submission(t, f, cmp.Or(j.MaxPayload, defaultMaxPayload), time.Now())
}

// start takes a task into the commit, once.
func (a *activation) start(where string, sub Submission, add func(*starting)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starting == nil {
		a.starting = &starting{taken: map[string]bool{}}
	}
	s := a.starting
	for _, f := range sub.Fields {
		s.size += len(f.Name) + len(f.Value)
	}
	identity := messages.PackFields([]Field{{Name: where}, {Name: sub.ID, Value: sub.Unit}})
	switch {
	case s.taken[identity]:
		return fmt.Errorf("a second task %q: give each an id of its own", sub.ID)
	case len(s.taken) == maxStarts:
		return fmt.Errorf("more than %d tasks of one activation: start some from each of several waits, or let children start them", maxStarts)
	case s.size > maxStartBytes:
		return tooLarge("what one activation starts", s.size, maxStartBytes)
	}
	s.taken[identity] = true
	add(s)
	return nil
}

// refused ends the unit for a task that cannot be started: an author who drops the error must not complete without it.
func (c *Context) refused(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrTooLarge):
		return c.act.latchTo(fmt.Errorf("%s: %w", what, err))
	}
	return c.misuse("%s: %v", what, err)
}
