package actorstest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Started is a task that a handler spawned or emitted.
type Started struct {
	// Name is that of its Spawn; empty for one that was emitted.
	Name string
	// Stream is where it was emitted to; empty for a child.
	Stream         string
	ID, Unit, Type string
	// Payload is what the task's handler gets: actors.Decode reads it.
	Payload actors.Raw
	Fields  []actors.Field
}

// child is how a child ends.
type child struct {
	result  actors.Raw
	failure string
}

// Message is a message to the task that is there before the first call. See T.Send.
func Message(name string, payload any) Option {
	return func(x *T) {
		x.tb.Helper()
		x.Send(name, payload)
	}
}

// Result is what the child of that Spawn ends with, as soon as it is started.
func Result(spawn string, value any) Option {
	return func(x *T) {
		x.tb.Helper()
		if r, ok := x.encode("the result of child", spawn, value); ok {
			x.given[spawn] = child{result: r}
		}
	}
}

// Failure lets the child of that Spawn fail, as soon as it is started: FAILED, with that text.
func Failure(spawn, text string) Option {
	return func(x *T) {
		x.given[spawn] = child{failure: actors.StateName(messages.State_STATE_FAILED) + " " + text}
	}
}

// Send sends a message to the task. Each is another one: the n-th of its name is what Nth(n) expects. One that comes after
// the time of its Await was over is refused, which fails the test.
func (x *T) Send(name string, payload any) {
	x.tb.Helper()
	m, ok := x.encode("message", name, payload)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sent = append(x.sent, name)
	if err := x.kept.Send(name, fmt.Sprint(len(x.sent)), messages.Mail{ContentType: m.ContentType, Payload: m.Bytes}); err != nil {
		x.tb.Errorf("send: %v", err)
	}
}

func (x *T) encode(what, name string, v any) (r actors.Raw, ok bool) {
	x.tb.Helper()
	var err error
	if r.ContentType, r.Bytes, err = actors.Encode(v); err != nil {
		x.tb.Errorf("%s %q: %v", what, name, err)
	}
	return r, err == nil
}

// commit does what a store does with the verdict. It says that the handler is to be called again: what it waits for is there,
// or the earliest of its times is over.
func (x *T) commit(v actors.Verdict) (again bool) {
	x.tb.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	parked := v.Outcome == messages.Outcome_OUTCOME_PARKED
	retries := v.Outcome == messages.Outcome_OUTCOME_RETRY && errors.Is(v.Err, actors.ErrParked)
	if !parked && !retries && v.Outcome != messages.Outcome_OUTCOME_COMPLETED {
		return false
	}
	err := x.start(v)
	var over bool
	if err == nil {
		_, over, err = x.kept.Commit(actors.Commit{Waits: v.Waits})
	}
	switch at, waits := x.kept.Next(); {
	case err != nil:
	case retries:
		err, again = x.kept.Advance(x.kept.Now.Add(v.After)), true
	case over:
		again = true
	case parked && v.Doubt == "" && waits:
		err, again = x.kept.Advance(at), true
	}
	if err != nil {
		x.tb.Errorf("the store in memory: %v", err)
	}
	return again && err == nil
}

// start starts what the verdict spawns and emits, and opens its waits. A child whose end is given ends at once.
func (x *T) start(v actors.Verdict) error {
	started, _, err := x.kept.Commit(actors.Commit{Waits: v.Waits, Spawns: v.Spawns})
	if err != nil {
		return err
	}
	for _, w := range v.Waits {
		for _, s := range w.Slots {
			x.awaited[s.Message] = true
		}
	}
	for _, s := range started {
		x.Spawned = append(x.Spawned, startedOf(s.Name, "", s.Task))
		end, ok := x.given[s.Name]
		if !ok {
			continue
		}
		if err := x.kept.End(s.Name, end.result.ContentType, end.result.Bytes, end.failure); err != nil {
			return err
		}
	}
	if v.Outcome == messages.Outcome_OUTCOME_COMPLETED {
		x.Emitted = emitted(v)
	}
	return nil
}

// emitted are the tasks that a verdict puts on other streams, in the order of their identities.
func emitted(v actors.Verdict) []Started {
	var all []Started
	for _, e := range v.Emits {
		all = append(all, startedOf("", e.Stream, e.Task))
	}
	slices.SortFunc(all, func(a, b Started) int {
		return strings.Compare(a.Stream+"\x00"+a.ID+"\x00"+a.Unit, b.Stream+"\x00"+b.ID+"\x00"+b.Unit)
	})
	return all
}

func startedOf(name, stream string, s actors.Submission) Started {
	t, _, err := messages.Decode(s.Fields, messages.Ref{}, messages.DecodeOptions{MaxPayload: -1})
	if err != nil { // Spawn and Emit have checked it
		return Started{Name: name, Stream: stream, ID: s.ID, Unit: s.Unit}
	}
	out := Started{
		Name: name, Stream: stream, ID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(),
		Payload: actors.Raw{ContentType: t.GetContentType(), Bytes: t.GetPayload()},
	}
	for _, f := range t.GetFields() {
		out.Fields = append(out.Fields, actors.Field{Name: string(f.GetName()), Value: string(f.GetValue())})
	}
	return out
}

// leftovers fails the test for what was given under a name that no handler asked for.
func (x *T) leftovers() {
	x.tb.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range x.sent {
		if !x.awaited[name] {
			x.tb.Errorf("message %q: no handler waited for one of that name, only for %q", name, slices.Sorted(maps.Keys(x.awaited)))
		}
	}
	spawned := map[string]bool{}
	for _, s := range x.Spawned {
		spawned[s.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(x.given)) {
		if !spawned[name] {
			x.tb.Errorf("result of child %q: no handler spawned one of that name, only %q", name, slices.Sorted(maps.Keys(spawned)))
		}
	}
}
