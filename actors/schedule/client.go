package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-run/weir/actors"
)

// ErrInCode: nodes declare a schedule of that name in code; a client cannot change it. It can pause it.
var ErrInCode = errors.New("declared in code")

// Client adds schedules while the nodes run, and looks at all of a stream. It may be used from any number of goroutines and
// has nothing to close.
type Client struct {
	desk  actors.ScheduleDesk
	tasks *actors.Client
}

// NewClient is for the stream that names names; the group matters to RunNow alone. No I/O. The state must keep schedules, as
// redisstate and memstate do.
func NewClient(state actors.State, names actors.Names, opts ...actors.ClientOption) (*Client, error) {
	tasks, err := actors.NewClient(state, names, opts...)
	if err != nil {
		return nil, err
	}
	desk, ok := state.(actors.ScheduleDesk)
	if !ok {
		return nil, fmt.Errorf("new client: %T keeps no schedules", state)
	}
	return &Client{desk: desk, tasks: tasks}, nil
}

// Added is what became of a schedule that was added.
type Added string

const (
	// New: there was none of that name.
	New Added = "new"
	// Changed: it replaced another one under its name; what is next follows from the new one.
	Changed Added = "changed"
	// Known: it stood there just so.
	Known Added = "known"
)

// Add adds a schedule, or puts it in the place of one that a client added before under its name; a pause goes on. Nodes
// learn of it within seconds. It has no When. ErrInvalid; ErrInCode.
func (c *Client) Add(ctx context.Context, s Schedule) (Added, error) {
	ready, err := Compile(s)
	if err != nil {
		return "", err
	}
	if s.When != nil {
		return "", fmt.Errorf("schedule %q: %w: When is code, which a client cannot give to the nodes", s.Name, ErrInvalid)
	}
	if _, err := ready.Submission(c.tasks, time.Now(), time.Now()); err != nil {
		return "", fmt.Errorf("schedule %q: %w: %w", s.Name, ErrInvalid, err)
	}
	there, err := c.desk.Schedules(ctx, s.Name)
	if err != nil {
		return "", err
	}
	next := ready.Next(there.Now)
	if next.IsZero() {
		return "", fmt.Errorf("schedule %q: %w: At (%s) has passed", s.Name, ErrInvalid, timeText(s.At))
	}
	got, err := c.desk.DeclareSchedule(ctx, actors.ScheduleDeclaration{Name: s.Name, Definition: ready.Data, Hash: ready.Hash, Next: next})
	switch {
	case err != nil:
		return "", err
	case got == actors.ScheduleNew:
		return New, nil
	case got == actors.ScheduleChanged:
		return Changed, nil
	case got == actors.ScheduleTaken:
		return "", fmt.Errorf("schedule %q: %w", s.Name, ErrInCode)
	}
	return Known, nil
}

// Status is a schedule and how it stands.
type Status struct {
	actors.ScheduleRecord
	// Schedule is what its definition says, without When. HasWhen says that it has one.
	Schedule Schedule
	HasWhen  bool
	// Err is why the definition cannot be read here, or Broken as an error.
	Err error
}

// List returns all schedules of the stream, or those with the names, in order of their names.
func (c *Client) List(ctx context.Context, names ...string) ([]Status, error) {
	list, err := c.desk.Schedules(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := make([]Status, len(list.Schedules))
	for i, r := range list.Schedules {
		out[i].ScheduleRecord = r
		if r.Definition != nil {
			out[i].Schedule, out[i].HasWhen, out[i].Err = read(r.Definition)
		}
		if r.Broken != "" {
			out[i].Err = errors.New(r.Broken)
		}
	}
	return out, nil
}

// Pause keeps a schedule from firing until Resume, whatever nodes start meanwhile. actors.ErrNoSchedule.
func (c *Client) Pause(ctx context.Context, name string) error {
	return c.desk.PauseSchedule(ctx, name)
}

// Resume lets a paused schedule go on with its next tick; those that have passed are not made up for. actors.ErrNoSchedule.
func (c *Client) Resume(ctx context.Context, name string) error {
	for {
		one, now, err := c.one(ctx, name)
		if err != nil {
			return err
		}
		var next time.Time
		if one.Definition != nil {
			ready, err := one.ready()
			if err != nil {
				return err
			}
			next = ready.Next(now)
		}
		err = c.desk.ResumeSchedule(ctx, name, one.Hash, next)
		if !errors.Is(err, actors.ErrConflict) {
			return err
		}
		// It was changed in between: look again.
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Remove forgets a schedule. inCode says that nodes declare it: they stop at once, until one of them starts anew.
// actors.ErrNoSchedule.
func (c *Client) Remove(ctx context.Context, name string) (inCode bool, err error) {
	return c.desk.RemoveSchedule(ctx, name)
}

// RunNow submits the schedule's task at once, whatever its pause, its condition and the task before: its Due is now, and its
// id tells. What is next stays as it is. actors.ErrNoSchedule; as Submit.
func (c *Client) RunNow(ctx context.Context, name string) (*actors.Task, error) {
	one, now, err := c.one(ctx, name)
	if err != nil {
		return nil, err
	}
	ready, err := one.ready()
	if err != nil {
		return nil, err
	}
	t, err := ready.task(c.tasks, now)
	if err != nil {
		return nil, err
	}
	return c.tasks.Submit(ctx, t)
}

func (c *Client) one(ctx context.Context, name string) (Status, time.Time, error) {
	list, err := c.desk.Schedules(ctx, name)
	if err != nil {
		return Status{}, time.Time{}, err
	}
	if len(list.Schedules) == 0 {
		return Status{}, time.Time{}, fmt.Errorf("schedule %q: %w", name, actors.ErrNoSchedule)
	}
	return Status{ScheduleRecord: list.Schedules[0]}, list.Now, nil
}

// ready makes a schedule of its definition, which may have a condition that is not here.
func (s Status) ready() (*Compiled, error) {
	if s.Definition == nil {
		return nil, fmt.Errorf("schedule %q: %w: %s", s.Name, ErrInvalid, s.Broken)
	}
	one, _, err := read(s.Definition)
	if err != nil {
		return nil, fmt.Errorf("schedule %q: its definition cannot be read here: %w", s.Name, err)
	}
	return Compile(one)
}

// read reads a definition from the store; when says that there is a condition in code.
func read(definition []byte) (s Schedule, when bool, err error) {
	err = json.Unmarshal(definition, &s)
	if errors.Is(s.broken, errWhen) {
		s.broken, when = nil, true
	}
	return s, when, err
}

// FromDefinition compiles a schedule that a client added, as the store has it. The error wraps ErrInvalid.
func FromDefinition(definition []byte) (*Compiled, error) {
	var s Schedule
	if err := json.Unmarshal(definition, &s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Compile(s)
}

// Submission is a tick's task on its way to the stream.
func (c *Compiled) Submission(tasks *actors.Client, tick, now time.Time) (actors.Submission, error) {
	t, err := c.task(tasks, tick)
	if err != nil {
		return actors.Submission{}, err
	}
	return tasks.Submission(t, now)
}

func (c *Compiled) task(tasks *actors.Client, tick time.Time) (actors.NewTask, error) {
	t, due := c.Task, tasks.Names().Fields.Due
	if slices.ContainsFunc(t.Fields, func(f actors.Field) bool { return f.Name == due }) {
		return t, fmt.Errorf("schedule %q: %w: Task.Fields: %q is the tick, which the schedule writes itself", c.Name, ErrInvalid, due)
	}
	t.ID = TaskID(c.Name, tick)
	t.Fields = append(slices.Clip(t.Fields), actors.Field{Name: due, Value: strconv.FormatInt(tick.UnixMilli(), 10)})
	return t, nil
}
