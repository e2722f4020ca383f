package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// Job is one activation, as a runtime hands it to Activate. Authors never see it.
type Job struct {
	Agent Agent
	// Handler is the part of the task's type after the slash; see Agents.Find.
	Handler string
	Task    *messages.Task
	// Names are the runtime's. The public stream tells effects of tasks apart that are named by nothing but their entry's id;
	// the fields' names are those that spawned and emitted tasks are written under. nil: the default fields, no stream.
	Names *Names
	// Begun is the store's answer Run to Begin.
	Begun Begun
	// Store keeps the checkpoints. One that cannot put an entry on every stream says so: CanEmit(stream string) error.
	Store StateStore
	// Agents are those of the node, for what the node can know of a child before it is spawned; nil for none.
	Agents Agents
	// Desk takes what steps publish; nil drops it.
	Desk StateDesk
	// MaxResult is the largest result of a step or a handler in bytes. 0 means 1 MiB.
	MaxResult int
	// MaxPayload is the largest payload of a task that the handler spawns or emits. 0 means 1 MiB.
	MaxPayload int
	// Remember is how long an emitted id is remembered, so that it is added once; see RememberIDs. 0 means 24 hours.
	Remember time.Duration
	// Logger is what Context.Log writes to, and where misuse that would go unseen is warned of, at most once a minute an
	// agent. nil is silent.
	Logger *slog.Logger
	// Rates are the buckets that this node knows of, and Quotas shares them out; without it steps take what they want.
	Rates  map[string]Rate
	Quotas QuotaStore
	// OnQuiet is told that a provider asked for a pause, and which bucket it closed for how long. nil is allowed.
	OnQuiet func(bucket string, d time.Duration)
	// OnStep is told of each attempt of a step that really ran, on the handler's goroutine or a branch's; it must not
	// block. nil is allowed.
	OnStep func(StepEvent)
	// OnReplay is told of each name that was answered without running: a step by its checkpoint or by Verify, a wait that is
	// over, a child that was spawned before. It is called as OnStep is. nil is allowed.
	OnReplay func(name string)
	// OnStuck is told when an attempt or a handler outlives its Timeout, and when it comes back after all, on any goroutine;
	// it must not block. nil is allowed.
	OnStuck func(StuckEvent)
	// Wait waits out the delays shorter than a second; nil waits on a timer. It returns early when ctx ends.
	Wait func(ctx context.Context, d time.Duration)
	// Jitter gives a number from 0 to 1; nil is random.
	Jitter func() float64
}

const defaultMaxResult = 1 << 20

func (j *Job) stream() string {
	if j.Names == nil {
		return ""
	}
	return j.Names.Stream
}

func (j *Job) fieldNames() messages.FieldNames {
	if j.Names == nil {
		return messages.FieldNames{}.WithDefaults()
	}
	return j.Names.Fields.WithDefaults()
}

// StepEvent is one attempt of a step that ran.
type StepEvent struct {
	TaskID, Unit, Type, Step string
	Attempt                  int
	Began                    time.Time
	Took                     time.Duration
	// Err is nil for an attempt that gave a result.
	Err error
}

// Verdict is what an activation came to, with all that a commit needs.
type Verdict struct {
	// Outcome is OUTCOME_UNSPECIFIED when nothing may be written: another owner has the unit, and Err wraps ErrLeaseLost.
	Outcome messages.Outcome
	Charge  messages.Charge
	// Classes as in Commit.
	Classes     ErrorClasses
	ContentType string
	Result      []byte
	// Error is Err's text, cut to 4 KiB.
	Error  string
	After  time.Duration
	Reason messages.Reason
	Detail string
	// Waits, Spawns, Emits and Doubt as in Commit.
	Waits  []Wait
	Spawns []Spawning
	Emits  []Emission
	Doubt  string
	// Err is what the handler returned, or what was latched before; nil for OUTCOME_COMPLETED.
	Err error
	// Misuses are what the author did wrong without the outcome telling, such as going on after ErrParked.
	Misuses []string
}

// Commit fills in a commit of this verdict; the caller adds TTL, DeadTTL and Index.
func (v Verdict) Commit(t *messages.Task, fence Fence, entry messages.Ref) Commit {
	return Commit{
		TaskID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(), Fence: fence, Entry: entry,
		Outcome: v.Outcome, Charge: v.Charge, Classes: v.Classes, ContentType: v.ContentType, Result: v.Result, Error: v.Error,
		After: v.After, Reason: v.Reason, Detail: v.Detail,
		Waits: v.Waits, Spawns: v.Spawns, Emits: v.Emits, Doubt: v.Doubt,
	}
}

// Activate calls the handler once, on the caller's goroutine (under a Timeout on one of its own), and turns what it did into a verdict under the agent's budget.
// It writes checkpoints, never the outcome.
//
// ctx bounds the activation; its cause says why it ended: ErrLeaseLost, ErrCancelled, ErrDraining (as is any other cause).
// A handler's panic leaves Activate as it is, or as a *Panic from a goroutine of Weir's; the caller charges it as a crash.
// So does runtime.Goexit, which only the caller's deferred function can see. The job must not be changed any more.
func Activate(ctx context.Context, job *Job) Verdict {
	ready, v := Prepare(ctx, job)
	if ready == nil {
		return v
	}
	return ready.Run()
}

// Ready is an activation whose message is decoded.
//
// Activate in two halves is for a runtime with a hundred thousand handlers that sleep. What a goroutine costs is the
// stack that it once needed, and decoding needs more than most handlers: prepared on one goroutine and run on a fresh one,
// a sleeping handler stands on 4 kB instead of 8 or 16.
type Ready struct {
	act  *activation
	call bound
}

// Prepare decodes the job's message. It returns nil where the handler is not to run; the verdict says why. A panic of the
// message's own decoding leaves Prepare as it is.
func Prepare(ctx context.Context, job *Job) (*Ready, Verdict) {
	if v, spent := Spent(job.Begun.Ledger, job.Agent.Budget()); spent {
		return nil, v
	}
	find, ok := job.Agent.routes[job.Handler]
	if !ok {
		return nil, rejected(messages.Reason_REASON_UNKNOWN_HANDLER,
			fmt.Errorf("the agent of %q has no handler %q", job.Task.GetType(), job.Handler))
	}
	a := newActivation(ctx, job)
	call, err := find(stored{job.Task.GetContentType(), job.Task.GetPayload()})
	if err != nil {
		return nil, a.settle(&Context{act: a}, stored{}, err)
	}
	return &Ready{act: a, call: call}, Verdict{}
}

// Run calls the handler; once. See Activate.
func (r *Ready) Run() Verdict {
	a := r.act
	if d := a.job.Agent.set.timeout; d > 0 {
		return r.bounded(d)
	}
	c := &Context{act: a}
	defer a.end()
	out, err := r.call(c)
	return a.settle(c, out, err)
}

// settle makes the verdict of what the handler returned. It is a function of its own because its big values would stand
// on the stack of every handler that sleeps.
//
//go:noinline
func (a *activation) settle(c *Context, out stored, err error) Verdict {
	v, job := a.verdict(c, out, err), a.job
	v.Misuses = a.misuses()
	if len(v.Misuses) > 0 {
		job.Agent.warn.warn(job.Logger, job.Task, v.Misuses)
	}
	age := time.Duration(0)
	if !job.Begun.Created.IsZero() {
		age = time.Since(job.Begun.Created)
	}
	return Decide(v, job.Begun.Ledger, job.Agent.Budget(), age, a.jitter())
}

// Crashed is the verdict on an activation that ended in a panic or by Goexit and is not restarted any more: a retry that is
// charged as a crash. The caller settles it with Decide.
func Crashed(text string) Verdict {
	return Verdict{Outcome: messages.Outcome_OUTCOME_RETRY, Charge: messages.Charge_CHARGE_CRASH, Error: clip(text)}
}

// verdict judges a handler's return. What was latched wins over it.
func (a *activation) verdict(c *Context, out stored, err error) Verdict {
	if latched := a.latched(); latched != nil {
		if err == nil {
			a.note("the handler returned a result although it was told: %v", latched)
		}
		return a.stopped(latched)
	}
	if c.parked != nil {
		if err == nil || !errors.Is(err, ErrParked) {
			a.note("the handler returned %s although it is parked (%s): return the error", resultOr(err), c.parked.why)
		}
		v := c.parked.verdict()
		if a.starting != nil {
			v.Spawns = a.starting.spawns
		}
		return v
	}
	// A result that is ready when the node drains, or the time is over, is kept; a lost or cancelled task's is not wanted.
	if cause := a.cause(); cause != nil && (err != nil || errors.Is(cause, ErrLeaseLost) || errors.Is(cause, ErrCancelled)) {
		return a.stopped(cause)
	}
	if err != nil {
		return failed(a.classify(err))
	}
	if len(out.data) > a.maxResult() {
		return rejected(messages.Reason_REASON_TOO_LARGE, tooLarge("the result", len(out.data), a.maxResult()))
	}
	v := Verdict{Outcome: messages.Outcome_OUTCOME_COMPLETED, ContentType: out.contentType, Result: out.data}
	if a.starting != nil {
		v.Spawns, v.Emits = a.starting.spawns, a.starting.emits
	}
	return v
}

func resultOr(err error) string {
	if err == nil {
		return "a result"
	}
	return "another error"
}

// stopped is the verdict on an activation that was ended from outside, or by misuse.
func (a *activation) stopped(err error) Verdict {
	v := Verdict{Error: clip(err.Error()), Err: err}
	var late *timeoutError
	switch {
	case errors.Is(err, ErrLeaseLost):
	case errors.Is(err, messages.ErrStep):
		return rejected(messages.Reason_REASON_BAD_STATE, err)
	case errors.Is(err, ErrMisuse):
		return rejected(messages.Reason_REASON_MISUSE, err)
	case errors.Is(err, ErrTooLarge):
		return rejected(messages.Reason_REASON_TOO_LARGE, err)
	case errors.Is(err, ErrCancelled):
		v.Outcome = messages.Outcome_OUTCOME_CANCELLED
	case errors.As(err, &late):
		v.Outcome, v.Charge = messages.Outcome_OUTCOME_RETRY, messages.Charge_CHARGE_TIMEOUT
	default:
		v.Outcome, v.Charge = messages.Outcome_OUTCOME_INTERRUPTED, messages.Charge_CHARGE_INTERRUPTION
	}
	return v
}

// failed turns a handler's error into a verdict: the error protocol. The strongest word in the chain wins.
func failed(err error) Verdict {
	var (
		payload  *payloadError
		message  *MessageError
		child    *ChildError
		awaited  *waitError
		reject   *rejectError
		step     *StepError
		limit    *limitError
		retry    *retryError
		late     *timeoutError
		verdict  = Verdict{Outcome: messages.Outcome_OUTCOME_RETRY, Charge: messages.Charge_CHARGE_FAILURE, Error: clip(err.Error()), Err: err}
		rejectAs = func(r messages.Reason) Verdict { return rejected(r, err) }
	)
	switch {
	case errors.As(err, &payload):
		return rejectAs(messages.Reason_REASON_BAD_PAYLOAD)
	case errors.Is(err, ErrMisuse):
		return rejectAs(messages.Reason_REASON_MISUSE)
	case errors.As(err, &step):
		return rejectAs(step.class.reason())
	case errors.As(err, &message):
		return rejectAs(messages.Reason_REASON_BAD_PAYLOAD)
	case errors.As(err, &reject), errors.As(err, &awaited), errors.As(err, &child):
		return rejectAs(messages.Reason_REASON_REJECTED)
	case errors.Is(err, ErrTooLarge):
		return rejectAs(messages.Reason_REASON_TOO_LARGE)
	case errors.As(err, &limit):
		verdict.Charge, verdict.After = messages.Charge_CHARGE_WAIT, limit.after
	case errors.As(err, &retry):
		verdict.After = retry.after
	case errors.As(err, &late):
		verdict.Charge = messages.Charge_CHARGE_TIMEOUT
	}
	return verdict
}

func rejected(reason messages.Reason, err error) Verdict {
	text := clip(err.Error())
	return Verdict{
		Outcome: messages.Outcome_OUTCOME_REJECTED, Charge: messages.Charge_CHARGE_FAILURE,
		Error: text, Reason: reason, Detail: text, Err: err,
	}
}

func tooLarge(what string, size, most int) error {
	return fmt.Errorf("%s has %d bytes where %d are allowed: %w", what, size, most, ErrTooLarge)
}

const maxErrorText = 4096

// clip makes an error's text fit to be stored: valid UTF-8 of at most 4 KiB.
func clip(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

func (a *activation) maxResult() int {
	if a.job.MaxResult > 0 {
		return a.job.MaxResult
	}
	return defaultMaxResult
}

func (a *activation) jitter() float64 {
	if a.job.Jitter != nil {
		return a.job.Jitter()
	}
	return rand.Float64() //nolint:gosec // spreads retries, guards nothing
}

func (a *activation) classify(err error) error {
	if f := a.job.Agent.set.classify; f != nil {
		if better := f(err); better != nil {
			return better
		}
	}
	return err
}
