package actors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-run/weir/messages"
)

// activation is what the Contexts of one call of a handler share: one for the handler, one for each branch of Parallel.
type activation struct {
	ctx context.Context
	job *Job

	// live is set when the first step really runs, or when a wait ends what is kept: until then everything is replayed.
	live atomic.Bool
	// muteUntil (Unix ns) pauses Publish after a failure, so that an outage costs one wait and not one a token.
	muteUntil atomic.Int64

	mu    sync.Mutex
	latch error           // misuse, or the cause that ended ctx, once a durable call has met it
	names map[string]bool // of this activation's steps and waits
	ended bool
	notes map[string]bool // what the author did wrong

	loading sync.Mutex // held while the checkpoints are read, so that branches read them once
	loaded  bool
	steps   map[string]messages.Step
	met     int // how many of the steps the handler has asked for

	starting *starting // what the activation spawns and emits; nil for nothing
}

func newActivation(ctx context.Context, job *Job) *activation {
	a := &activation{ctx: ctx, job: job}
	a.live.Store(!job.Begun.Steps)
	return a
}

func (a *activation) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
}

func (a *activation) latched() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.latch
}

// latchTo makes err what every durable call answers from now on; the first one stays.
func (a *activation) latchTo(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latch == nil {
		a.latch = err
	}
	return a.latch
}

const maxNotes = 20

// note records a misuse for the author's eyes; each is kept once, and no more than a person reads.
func (a *activation) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.notes == nil {
		a.notes = map[string]bool{}
	}
	if len(a.notes) == maxNotes {
		return
	}
	a.notes[fmt.Sprintf(format, args...)] = true
}

func (a *activation) misuses() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.notes))
}

// cause is why the activation's context ended, in the API's words; nil while it goes on.
func (a *activation) cause() error {
	if a.ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(a.ctx)
	for _, known := range []error{ErrLeaseLost, ErrCancelled, ErrDraining} {
		if errors.Is(cause, known) {
			return cause
		}
	}
	if _, late := errors.AsType[*timeoutError](cause); late {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrDraining, cause)
}

// claim takes a name out of the one namespace of steps and waits.
func (a *activation) claim(name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names[name] {
		return errNameTwice
	}
	if a.names == nil {
		a.names = map[string]bool{}
	}
	a.names[name] = true
	return nil
}

var errNameTwice = errors.New("used twice in one activation: number it, such as \"name-2\"")

// lookup finds a step's checkpoint, loading all of them when the first is asked for.
func (a *activation) lookup(name string) (messages.Step, bool, error) {
	if !a.job.Begun.Steps {
		return messages.Step{}, false, nil
	}
	a.loading.Lock()
	defer a.loading.Unlock()
	if !a.loaded {
		var steps []messages.Step
		err := a.insist(func(ctx context.Context) (err error) {
			steps, err = a.job.Store.Steps(ctx, a.job.Task.GetTaskId(), a.job.Task.GetUnit())
			return err
		}, messages.ErrStep)
		if err != nil {
			return messages.Step{}, false, fmt.Errorf("load checkpoints: %w", err)
		}
		a.steps = make(map[string]messages.Step, len(steps))
		for _, s := range steps {
			a.steps[s.Name] = s
		}
		a.loaded = true
	}
	s, ok := a.steps[name]
	if ok {
		// Nothing is known of what comes after a wait that is the last of what is kept: it runs for the first time.
		if a.met++; a.met == len(a.steps) && s.Status == messages.StepWaited {
			a.live.Store(true)
		}
	}
	return s, ok, nil
}

// replayed tells the runtime that a name was answered without running.
func (a *activation) replayed(name string) {
	if f := a.job.OnReplay; f != nil {
		f(name)
	}
}

// keep writes a checkpoint. It insists until it is written, the fence is refused or the activation ends. A result that
// comes after the end, but not after the lease, is offered once more: it may have cost money.
func (a *activation) keep(step messages.Step) error {
	cp := Checkpoint{TaskID: a.job.Task.GetTaskId(), Unit: a.job.Task.GetUnit(), Fence: a.job.Begun.Fence, Step: step}
	write := func(ctx context.Context) error { return a.job.Store.Checkpoint(ctx, cp) }
	err := a.cause()
	if err == nil {
		err = a.insist(write)
	}
	if err != nil && step.Status != messages.StepIntent && !errors.Is(err, ErrLeaseLost) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), lastWrite)
		defer cancel()
		if last := write(ctx); errors.Is(last, ErrLeaseLost) {
			err = last
		}
	}
	if err != nil {
		return fmt.Errorf("keep step %q: %w", step.Name, err)
	}
	return nil
}

// lastWrite bounds the write of a result whose activation has ended already.
const lastWrite = time.Second

// insist repeats a call to the store, with growing pauses, until it succeeds, ErrLeaseLost or one of final comes, or the
// activation ends; then it returns the cause.
func (a *activation) insist(call func(context.Context) error, final ...error) error {
	pause := RetryPolicy{Base: 10 * time.Millisecond, Cap: time.Second}
	for n := 1; ; n++ {
		err := call(a.ctx) // a store returns within seconds
		if err == nil || errors.Is(err, ErrLeaseLost) {
			return err
		}
		for _, f := range final {
			if errors.Is(err, f) {
				return err
			}
		}
		if cause := a.cause(); cause != nil {
			return cause
		}
		if wait(a.ctx, pause.Delay(min(n, 20), a.jitter())); a.ctx.Err() != nil {
			return a.cause()
		}
	}
}

// pause waits out a short delay in place.
func (a *activation) pause(d time.Duration) {
	if a.job.Wait != nil {
		a.job.Wait(a.ctx, d)
		return
	}
	wait(a.ctx, d)
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
