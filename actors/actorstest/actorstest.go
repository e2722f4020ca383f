// Package actorstest calls a handler without a runtime and without Redis.
//
//	x := actorstest.New(t)
//	reply, err := actorstest.Call(x, refund.Handle, &pb.RefundRequested{Text: "broken"})
//
// Steps really run, on the fakes that the test gave its agent. Delays of retries take no time. A call that completes is
// run a second time from its checkpoints, as after a crash of the process, and the test fails when that does not agree:
// a value that left a step by a captured variable, a step under a random name, a clock read outside a step.
//
// Waits are virtual: what is there (Message, Send, Result) ends them, and where nothing does their time is over at once, the
// earliest first. One without a timeout that nothing ends is really waited for: Call answers ErrParked. Children do not
// run: what they give is the test's, by the name of their Spawn. See waits.go.
package actorstest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// T is one task: calls on it continue from its checkpoints.
type T struct {
	// Spawned are the children that handlers have started so far, in the order of their commits.
	Spawned []Started
	// Emitted is what the last call that completed put on other streams.
	Emitted []Started

	tb       testing.TB
	tolerate bool
	opts     []actors.AgentOption
	task     *messages.Task
	created  time.Time
	log      *slog.Logger

	mu        sync.Mutex
	number    uint64 // of the activation
	kept      store
	given     map[string]child // what children end with, by the name of their Spawn
	awaited   map[string]bool  // names of messages that handlers have waited for
	sent      []string         // names of messages
	ran       map[string]bool  // steps that this activation ran
	replayed  map[string]bool  // names that their checkpoints answered
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

// Due is the tick of a schedule that Info tells.
func Due(tick time.Time) Option {
	return Fields(actors.Field{Name: "due", Value: strconv.FormatInt(tick.UnixMilli(), 10)})
}

// With gives the handler its agent's options, such as actors.Classify.
func With(opts ...actors.AgentOption) Option {
	return func(x *T) { x.opts = append(x.opts, opts...) }
}

// New makes a task that no handler has seen. What handlers log goes to the test's output.
func New(tb testing.TB, opts ...Option) *T {
	tb.Helper()
	x := &T{
		tb: tb, created: time.Now(), given: map[string]child{}, awaited: map[string]bool{},
		task: &messages.Task{TaskId: "task-1", Type: "test"},
		log:  slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	x.kept.Now = x.created
	for _, o := range opts {
		o(x)
	}
	return x
}

// maxTurns ends a call whose step is rate limited for ever.
const maxTurns = 1000

// Call runs the handler on the message until it ends or really waits, and returns its result as a reader of the task
// would get it. Waits and a step's longer delays end one activation and begin the next, as they do in a runtime, in no time.
//
// The error is the handler's own, or what the runtime made of the call: ErrParked when it waits (a step is in doubt, or a
// wait has no timeout and what it waits for is not there), ErrMisuse, ErrTooLarge. One that a runtime would try the task
// again for is returned too: call again on the same T for the next attempt. A panic of the handler is the test's.
//
// When a call completes, the test fails for a message under a name that no handler waited for, and for the result of a
// child that none spawned: mistyped names.
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
	x.report(v)
	for turn := 1; x.commit(v); turn++ {
		if turn == maxTurns {
			x.tb.Errorf("the handler still waits after %d activations: %v", turn, v.Err)
			return zero, v.Err
		}
		before := v.Misuses
		v = x.activate(agent)
		x.report(v, before...)
	}
	if v.Outcome != messages.Outcome_OUTCOME_COMPLETED {
		return zero, v.Err
	}
	r, err := result[R](v)
	if err != nil {
		x.tb.Errorf("the result does not decode: %v", err)
		return zero, err
	}
	again(x, agent, v, r)
	x.leftovers()
	return r, nil
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
	before := x.called(first)
	v := x.activate(agent)
	x.report(v, first.Misuses...)
	after := x.called(v)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !after[name] {
			x.tb.Errorf("the second run, from the checkpoints, did not call %s %q: the way through a handler must follow from its message and its steps", x.kind(name, v), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !before[name] {
			x.tb.Errorf("the second run, from the checkpoints, called %s %q, which the first did not: a step's name must follow from the message and other steps", x.kind(name, v), name)
		}
	}
	switch {
	case v.Outcome != messages.Outcome_OUTCOME_COMPLETED:
		x.tb.Errorf("the handler gave %v, but from its checkpoints it failed: %v", r, v.Err)
	case v.ContentType != first.ContentType || !bytes.Equal(v.Result, first.Result):
		r2, _ := result[R](v)
		x.tb.Errorf("the handler gave %v, but %v from its checkpoints: did a value leave a step by a captured variable, or code outside steps read a clock or a random number?", r, r2)
	case fmt.Sprint(emitted(v)) != fmt.Sprint(emitted(first)):
		x.tb.Errorf("the handler emitted %v, but %v from its checkpoints: what is emitted must follow from the message and the steps", emitted(first), emitted(v))
	}
}

func (x *T) activate(agent actors.Agent) actors.Verdict {
	x.mu.Lock()
	x.number++
	x.ran, x.replayed = map[string]bool{}, map[string]bool{}
	begun := actors.Begun{
		Answer: actors.Run, Created: x.created, Steps: len(x.kept.Steps()) > 0,
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

// called are the names of the last activation, which came to v.
func (x *T) called(v actors.Verdict) map[string]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := maps.Clone(x.ran)
	maps.Copy(all, x.replayed)
	for _, s := range v.Spawns {
		all[s.Name] = true
	}
	for _, w := range v.Waits {
		all[w.Name] = true
	}
	return all
}

// kind says what has a name: by its checkpoint, or in a verdict.
func (x *T) kind(name string, v actors.Verdict) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, _ := x.kept.Step(name)
	switch {
	case s.Status == messages.StepWaited, slices.ContainsFunc(v.Waits, func(w actors.Wait) bool { return w.Name == name }):
		return "wait"
	case s.Status == messages.StepSpawned, s.Status == messages.StepChild,
		slices.ContainsFunc(v.Spawns, func(s actors.Spawning) bool { return s.Name == name }):
		return "spawn"
	}
	return "step"
}

// report tells of the misuses that the activation before has not shown.
func (x *T) report(v actors.Verdict, before ...string) {
	x.tb.Helper()
	for _, m := range v.Misuses {
		if !slices.Contains(before, m) {
			x.misuse(m)
		}
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
// intent of a step with Verify or Unrepeatable stays. A wait, or a child, has no such moment.
func (x *T) Forget(step string) {
	x.tb.Helper()
	x.mu.Lock()
	err := x.kept.forget(step)
	x.mu.Unlock()
	if err != nil {
		x.tb.Errorf("%v", err)
	}
}

// Steps are the checkpoints so far, those of waits and children among them, in the order in which they were first written.
func (x *T) Steps() []messages.Step {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.kept.Steps()
}

// Published is what steps have published so far.
func (x *T) Published() []actors.Chunk {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.published)
}
