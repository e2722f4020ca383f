package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
)

// crashCode is what a shell reports of a process that was killed with SIGKILL.
const crashCode = 137

// effectStep is the name of the effect agent's only step.
const effectStep = "effect"

// Moments of an effect task at which its process can die, once.
const (
	crashNone   = "none"
	crashBefore = "before-effect" // within the step, before the effect
	crashAfter  = "after-effect"  // within the step, between the effect and its checkpoint
	crashAck    = "before-ack"    // between the commit and the acknowledgement
)

// Effects is the effect agent: one keyed step that does INCR effect:<task_id>:<step>, the plainest effect that must not
// happen twice. INCR itself knows no key; Verify reads the counter, and that settles a crash between the effect and its
// checkpoint. Where its message says so it ends the process, the first time only: a marker in the same Redis remembers.
type Effects struct {
	rdb  redis.UniversalClient
	exit func(code int)

	mu        sync.Mutex
	beforeAck map[string]struct{} // tasks whose commit ends the process
}

// NewEffects makes the agent over a client of its own: what it does there is the world outside for Weir.
func NewEffects(rdb redis.UniversalClient, exit func(code int)) *Effects {
	return &Effects{rdb: rdb, exit: exit, beforeAck: map[string]struct{}{}}
}

type effectMessage struct {
	Crash string `json:"crash,omitempty"`
	// Blind says that the effect cannot be looked up: after a crash it is in doubt.
	Blind bool `json:"blind,omitempty"`
}

func (e *Effects) handle(c *actors.Context, m effectMessage) (int64, error) {
	switch m.Crash {
	case "", crashNone, crashBefore, crashAfter:
	case crashAck:
		e.mu.Lock()
		e.beforeAck[c.ID()] = struct{}{}
		e.mu.Unlock()
	default:
		return 0, actors.Reject(fmt.Errorf("crash (%q) must be %s, %s, %s or %s", m.Crash, crashNone, crashBefore, crashAfter, crashAck))
	}
	kind := actors.Verify(e.find)
	if m.Blind {
		kind = actors.Unrepeatable()
	}
	return actors.Step(c, effectStep, func(s actors.StepContext) (int64, error) {
		if m.Crash == crashBefore {
			if err := e.crash(s, c.ID()); err != nil {
				return 0, err
			}
		}
		n, err := e.rdb.Incr(s, counter(s.Key)).Result()
		if err != nil {
			return 0, fmt.Errorf("count the effect: %w", err)
		}
		if m.Crash == crashAfter {
			if err := e.crash(s, c.ID()); err != nil {
				return 0, err
			}
		}
		return n, nil
	}, kind, actors.RetryPolicy{Max: 50, Base: 100 * time.Millisecond, Cap: 5 * time.Second})
}

// counter is the key that an effect counts on. s.Key is "<task id>:<step>", escaped.
func counter(key string) string { return "effect:" + key }

// find looks the effect up: a counter above 0 has been there.
func (e *Effects) find(ctx context.Context, key string) (int64, bool, error) {
	n, err := e.rdb.Get(ctx, counter(key)).Int64()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("look the effect up: %w", err)
	}
	return n, n > 0, nil
}

// crash ends the process, the first time for a task.
func (e *Effects) crash(ctx context.Context, taskID string) error {
	first, err := e.rdb.SetNX(ctx, "effect:crashed:"+taskID, "1", 0).Result()
	if err != nil {
		return fmt.Errorf("remember the crash: %w", err)
	}
	if first {
		e.exit(crashCode)
		return errStillHere
	}
	return nil
}

// Committed is to be called after each commit that the store has confirmed, before anything else happens: it is where a
// before-ack task ends the process.
func (e *Effects) Committed(ctx context.Context, c actors.Commit) error {
	e.mu.Lock()
	_, crash := e.beforeAck[c.TaskID]
	delete(e.beforeAck, c.TaskID)
	e.mu.Unlock()
	if !crash {
		return nil
	}
	return e.crash(ctx, c.TaskID)
}
