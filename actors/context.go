package actors

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/weir-run/weir/messages"
)

// Context is a handler's view of its task. It is not a context.Context, so that an effect outside a Step, which would run
// again on every activation, does not compile by accident. It belongs to the goroutine that the handler was called on;
// Parallel gives each branch one of its own.
type Context struct {
	act *activation
	// busy is the name of the durable call that is going on: a second one at the same time is misuse. It guards parked.
	busy   atomic.Pointer[string]
	parked *parking // this branch gave up its place
}

// parking is why an activation gives up its place, and what brings it back: the first of its waits, and of its times.
type parking struct {
	after time.Duration // of a step's next attempt; 0 for none
	waits []Wait
	doubt string // the step whose effect is unknown: a person decides
	why   string
}

func (p *parking) err() error { return fmt.Errorf("%s: %w", p.why, ErrParked) }

func (p *parking) verdict() Verdict {
	v := Verdict{Outcome: messages.Outcome_OUTCOME_PARKED, Waits: p.waits, Doubt: p.doubt, Error: clip(p.why), Err: p.err()}
	if p.after > 0 {
		// Free: the step counts its own attempts. One that is in doubt besides has time: it is still in doubt then.
		v.Outcome, v.Charge, v.After, v.Doubt = messages.Outcome_OUTCOME_RETRY, messages.Charge_CHARGE_WAIT, p.after, ""
	}
	return v
}

// and is what two branches of Parallel wait for: both go on when the unit is back, and who has nothing yet parks again.
func (p *parking) and(q *parking) *parking {
	if p == nil {
		return q
	}
	both := &parking{after: p.after, waits: slices.Concat(p.waits, q.waits), doubt: cmp.Or(p.doubt, q.doubt), why: p.why}
	if both.after == 0 || q.after > 0 && q.after < both.after {
		both.after = q.after
	}
	if len(both.why)+len(q.why) < maxErrorText {
		both.why += "; " + q.why
	}
	return both
}

// Context is for logs, traces and repeatable reads. It ends, with a cause, when the lease is lost (ErrLeaseLost), the task
// is cancelled (ErrCancelled), the node drains (ErrDraining) or the agent's Timeout is over (ErrTimeout).
func (c *Context) Context() context.Context {
	return context.WithValue(c.act.ctx, stepKey{}, &stepValue{act: c.act})
}

// ID is the task's id.
func (c *Context) ID() string { return c.act.job.Task.GetTaskId() }

// Info is what is known of the unit besides its message.
type Info struct {
	TaskID string
	// Unit is the entry's own step; empty for the whole task.
	Unit string
	// Type is "agent" or "agent/handler".
	Type string
	// Attempt is the number of this charged attempt, from 1. All else is the same in every activation.
	Attempt int
	// CreatedAt is when the producer made the task; where it did not say, when it was first begun.
	CreatedAt time.Time
	// EventID, Source and TraceParent are the producer's, or empty.
	EventID, Source, TraceParent string
	// Origin is the id of the producer's entry.
	Origin string
	// Root is the id of the task that this one comes from by way of Emit and Spawn, however far; its own id where it began
	// the chain.
	Root string
	// Due is the tick of the schedule that the task is for, or the time that a producer's entry named for it; the zero time
	// without either. A late run has the tick it is late for.
	Due time.Time
	// Fields are the producer's fields that Weir gives no meaning.
	Fields []Field
}

// Field is a producer's field; name and value may hold any bytes.
type Field = messages.Pair

// Info tells what is known of the unit.
func (c *Context) Info() Info {
	job := c.act.job
	t, created := job.Task, job.Begun.Created
	if ms := t.GetCreatedAtMs(); ms != 0 {
		created = time.UnixMilli(ms)
	}
	return Info{
		TaskID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(), Attempt: int(job.Begun.Ledger.Attempt()), CreatedAt: created,
		EventID: t.GetEventId(), Source: t.GetSource(), TraceParent: t.GetTraceparent(), Origin: t.GetOrigin(),
		Root: job.root(), Due: t.Due(job.fieldNames()), Fields: fieldsOf(t),
	}
}

// root is the id of the task that a chain began with.
func (j *Job) root() string {
	if id := field(j.Task, j.fieldNames().Root); id != "" && len(id) <= messages.MaxTaskID && utf8.ValidString(id) {
		return id
	}
	return j.Task.GetTaskId()
}

func fieldsOf(t *messages.Task) []Field {
	fields := make([]Field, len(t.GetFields()))
	for i, f := range t.GetFields() {
		fields[i] = Field{Name: string(f.GetName()), Value: string(f.GetValue())}
	}
	return fields
}

// Field is the first of the producer's fields with that name, or "".
func (c *Context) Field(name string) string { return field(c.act.job.Task, name) }

func field(t *messages.Task, name string) string {
	for _, f := range t.GetFields() {
		if string(f.GetName()) == name {
			return string(f.GetValue())
		}
	}
	return ""
}

// Fields are the producer's fields that Weir gives no meaning, in their order.
func (c *Context) Fields() []Field { return slices.Clip(fieldsOf(c.act.job.Task)) }

// Log writes with the task's name on every line. While the activation replays finished steps it is silent below WARN, so
// that a line is not written again each time.
func (c *Context) Log() *slog.Logger {
	base := c.act.job.Logger
	if base == nil {
		return slog.New(slog.DiscardHandler)
	}
	t := c.act.job.Task
	log := slog.New(&replayHandler{base.Handler(), &c.act.live}).With("task_id", t.GetTaskId(), "type", t.GetType())
	if t.GetUnit() != "" {
		log = log.With("unit", t.GetUnit())
	}
	return log
}

// Key is the key of one effect for the world outside (StepContext.Key): task id, unit and step, escaped so that no two
// effects ever share one. unit is empty for the whole task.
func Key(taskID, unit, step string) string { return messages.EffectKey(taskID, unit, step) }

// misuse ends the unit: it is latched, and the unit fails without retry.
func (c *Context) misuse(format string, args ...any) error {
	err := fmt.Errorf("%w: %s", ErrMisuse, fmt.Sprintf(format, args...))
	c.act.note("%s", fmt.Sprintf(format, args...))
	return c.act.latchTo(err)
}

// enter begins a durable call: nothing latched, the Context not in use, the activation not over. what says it to the
// author, such as `step "pay"`. leave must follow when it returns nil.
func (c *Context) enter(what string) error {
	if !c.busy.CompareAndSwap(nil, &what) {
		if latched := c.act.latched(); latched != nil {
			return latched
		}
		during := "another durable call"
		if b := c.busy.Load(); b != nil {
			during = *b
		}
		return c.misuse("%s during %s: neither call one inside the other nor use a Context on two goroutines (see Parallel)", what, during)
	}
	if err := c.stopped(what); err != nil {
		c.leave()
		return err
	}
	return nil
}

func (c *Context) leave() { c.busy.Store(nil) }

// stopped is what a durable call answers without acting, or nil.
func (c *Context) stopped(what string) error {
	a := c.act
	a.mu.Lock()
	latch, ended := a.latch, a.ended
	a.mu.Unlock()
	switch {
	case latch != nil:
		return latch
	case ended:
		return fmt.Errorf("%w: %s after its handler returned", ErrMisuse, what)
	}
	if p := c.parked; p != nil {
		a.note("%s was called after ErrParked (%s): return that error at once", what, p.why)
		return p.err()
	}
	if cause := a.cause(); cause != nil {
		return a.latchTo(cause)
	}
	return nil
}

// named begins a durable call under a name of its own.
func (c *Context) named(kind, name string) error {
	what := fmt.Sprintf("%s %q", kind, name)
	if err := c.enter(what); err != nil {
		return err
	}
	err := checkName(name)
	if err == nil {
		err = c.act.claim(name)
	}
	if err != nil {
		defer c.leave()
		return c.misuse("%s: %v", what, err)
	}
	return nil
}

// maxStepName keeps keys of effects, and fields of the task's hash, readable.
const maxStepName = 256

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name must not be empty")
	case len(name) > maxStepName:
		return fmt.Errorf("a name of %d bytes must have at most %d", len(name), maxStepName)
	case !utf8.ValidString(name):
		return fmt.Errorf("a name must be UTF-8")
	}
	return nil
}

// park gives up this branch's place: every later durable call on it answers ErrParked.
func (c *Context) park(p *parking) error {
	c.parked = p
	return p.err()
}
