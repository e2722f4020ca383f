// Package actorstest calls a handler without a runtime and without Redis.
//
//	x := actorstest.New(t)
//	reply, err := actorstest.Call(x, refund.Handle, &pb.RefundRequested{Text: "broken"})
//
// Steps really run, on the fakes that the test gave its agent. Delays of retries take no time. A call that completes is
// run a second time from its checkpoints, as after a crash of the process, and the test fails when that does not agree:
// a value that left a step by a captured variable, a step under a random name, a clock read outside a step.
package actorstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// T is one task: calls on it continue from its checkpoints.
type T struct {
	tb       testing.TB
	tolerate bool
	opts     []actors.AgentOption
	task     *messages.Task
	created  time.Time
	log      *slog.Logger

	mu        sync.Mutex
	number    uint64 // of the activation
	kept      store
	ran       map[string]bool // steps that this activation ran
	replayed  map[string]bool // steps that their checkpoints answered
	misuses   []string
	published []actors.Chunk
}

// Option is an argument of New.
type Option func(*T)

// TolerateMisuse lets the test look at Misuses instead of failing on each.
func TolerateMisuse() Option { return func(x *T) { x.tolerate = true } }

// ID is the task's id. Default "task-1".
func ID(id string) Option { return func(x *T) { x.task.TaskId = id } }

// Unit makes the calls those of a part of the task, as an entry with a step of its own does.
func Unit(name string) Option { return func(x *T) { x.task.Unit = name } }

// Fields are the producer's fields that Context.Field sees.
func Fields(fields ...actors.Field) Option {
	return func(x *T) {
		for _, f := range fields {
			x.task.Fields = append(x.task.Fields, &messages.Field{Name: []byte(f.Name), Value: []byte(f.Value)})
		}
	}
}

// With gives the handler its agent's options, such as actors.Classify.
func With(opts ...actors.AgentOption) Option {
	return func(x *T) { x.opts = append(x.opts, opts...) }
}

// New makes a task that no handler has seen. What handlers log goes to the test's output.
func New(tb testing.TB, opts ...Option) *T {
	tb.Helper()
	x := &T{
		tb: tb, created: time.Now(), kept: newStore(),
		task: &messages.Task{TaskId: "task-1", Type: "test"},
		log:  slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, o := range opts {
		o(x)
	}
	return x
}

// maxTurns ends a call whose step is rate limited for ever.
const maxTurns = 1000

// Call runs the handler on the message until it ends or really waits, and returns its result as a reader of the task
// would get it. A step's longer delays end one activation and begin the next, as they do in a runtime, in no time.
//
// The error is the handler's own, or what the runtime made of the call: ErrParked when it waits (a step is in doubt),
// ErrMisuse, ErrTooLarge. One that a runtime would try the task again for is returned too: call again on the same T for the
// next attempt. A panic of the handler is the test's.
func Call[M, R any](x *T, h func(*actors.Context, M) (R, error), m M) (R, error) {
	x.tb.Helper()
	var zero R
	agent := actors.Func(h).With(x.opts...)
	if err := agent.Err(); err != nil {
		x.misuse(err.Error())
		return zero, err
	}
	contentType, payload, err := actors.Encode(m)
	if err != nil {
		x.misuse(err.Error())
		return zero, err
	}
	x.task.ContentType, x.task.Payload = contentType, payload
	v := x.activate(agent)
	for turn := 1; waits(v); turn++ {
		if turn == maxTurns {
			x.tb.Errorf("the handler still waits after %d activations: %v", turn, v.Err)
			return zero, v.Err
		}
		v = x.activate(agent)
	}
	x.report(v)
	if v.Outcome != messages.Outcome_OUTCOME_COMPLETED {
		return zero, v.Err
	}
	r, err := result[R](v)
	if err != nil {
		x.tb.Errorf("the result does not decode: %v", err)
		return zero, err
	}
	again(x, agent, v, r)
	return r, nil
}

// waits: a step gave up its place until its next attempt is due.
func waits(v actors.Verdict) bool {
	return v.Outcome == messages.Outcome_OUTCOME_RETRY && errors.Is(v.Err, actors.ErrParked)
}

func result[R any](v actors.Verdict) (R, error) {
	if v.ContentType == "" && len(v.Result) == 0 {
		var none R
		return none, nil
	}
	return actors.Decode[R](v.ContentType, v.Result)
}

// again runs the handler from its checkpoints, which must agree with the first run.
func again[R any](x *T, agent actors.Agent, first actors.Verdict, r R) {
	x.tb.Helper()
	before := x.called()
	v := x.activate(agent)
	if fmt.Sprint(v.Misuses) != fmt.Sprint(first.Misuses) {
		x.report(v)
	}
	after := x.called()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !after[name] {
			x.tb.Errorf("the second run, from the checkpoints, did not call step %q: the way through a handler must follow from its message and its steps", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !before[name] {
			x.tb.Errorf("the second run, from the checkpoints, called step %q, which the first did not: a step's name must follow from the message and other steps", name)
		}
	}
	switch {
	case v.Outcome != messages.Outcome_OUTCOME_COMPLETED:
		x.tb.Errorf("the handler gave %v, but from its checkpoints it failed: %v", r, v.Err)
	case v.ContentType != first.ContentType || !bytes.Equal(v.Result, first.Result):
		r2, _ := result[R](v)
		x.tb.Errorf("the handler gave %v, but %v from its checkpoints: did a value leave a step by a captured variable, or code outside steps read a clock or a random number?", r, r2)
	}
}

func (x *T) activate(agent actors.Agent) actors.Verdict {
	x.mu.Lock()
	x.number++
	x.ran, x.replayed = map[string]bool{}, map[string]bool{}
	begun := actors.Begun{
		Answer: actors.Run, Created: x.created, Steps: len(x.kept.steps) > 0,
		Fence: actors.Fence{Number: x.number, Incarnation: "actorstest", Activation: x.number},
	}
	x.mu.Unlock()
	return actors.Activate(context.Background(), &actors.Job{
		Agent: agent, Task: x.task, Begun: begun, Store: &stateStore{x: x}, Desk: &desk{x: x}, Logger: x.log,
		OnStep:   func(e actors.StepEvent) { x.mark(x.ran, e.Step) },
		OnReplay: func(step string) { x.mark(x.replayed, step) },
		Wait:     func(context.Context, time.Duration) {},
	})
}

func (x *T) mark(set map[string]bool, step string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	set[step] = true
}

// called are the steps of the last activation.
func (x *T) called() map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := maps.Clone(x.ran)
	maps.Copy(all, x.replayed)
	return all
}

func (x *T) report(v actors.Verdict) {
	x.tb.Helper()
	for _, m := range v.Misuses {
		x.misuse(m)
	}
}

func (x *T) misuse(text string) {
	x.tb.Helper()
	x.mu.Lock()
	x.misuses = append(x.misuses, text)
	x.mu.Unlock()
	if !x.tolerate {
		x.tb.Errorf("misuse: %s", text)
	}
}

// Misuses are the rules that handlers have broken so far.
func (x *T) Misuses() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.misuses)
}

// Forget takes back the result of a step, as if the process had died after its effect and before the result was kept. The
// intent of a step with Verify or Unrepeatable stays.
func (x *T) Forget(step string) {
	x.tb.Helper()
	x.mu.Lock()
	ok := x.kept.forget(step)
	x.mu.Unlock()
	if !ok {
		x.tb.Errorf("forget %q: there is no such step", step)
	}
}

// Steps are the checkpoints so far, in the order in which the steps began.
func (x *T) Steps() []messages.Step {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.kept.list()
}

// Published is what steps have published so far.
func (x *T) Published() []actors.Chunk {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.published)
}
