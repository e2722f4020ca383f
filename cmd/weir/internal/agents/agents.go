// Package agents holds the agent types that `weir worker` runs: small ones, to try a group out and to break it on purpose.
//
//	noop    does nothing; any payload
//	echo    the result is the payload, to the byte
//	steps   {"n":3,"sleep_ms":10}          n steps that sleep
//	sleep   {"ms":5000}                    sleeps in its handler
//	fail    {"times":2,"after_ms":0}       returns an error in its first attempts
//	panic   {"times":1}                    panics in its first attempts
//	exit    {"code":137,"after_ms":0}      ends the process: poison
//	effect  {"crash":"none|before-effect|after-effect|before-ack","blind":false}   see effect.go
//
// A member that is left out has the value shown here.
package agents

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-run/weir/actors"
)

// Types are the names of the built-in agent types.
var Types = []string{"echo", "effect", "exit", "fail", "noop", "panic", "sleep", "steps"}

// Builtin are the agent types of this package. exit ends the process; effects may be nil, and then there is no effect type.
func Builtin(exit func(code int), effects *Effects) actors.Agents {
	agents := actors.Agents{
		"noop":  actors.Func(noop),
		"echo":  actors.Func(echo),
		"steps": actors.Func(steps),
		"sleep": actors.Func(sleep),
		"fail":  actors.Func(fail),
		"panic": actors.Func(panics),
		"exit":  actors.Func(exiter(exit).handle),
	}
	if effects != nil {
		agents["effect"] = actors.Func(effects.handle)
	}
	return agents
}

func noop(*actors.Context, actors.Raw) (actors.None, error) { return nil, nil }

func echo(_ *actors.Context, m actors.Raw) (actors.Raw, error) { return m, nil }

// or is a member's value, or what it has when it was left out.
func or[T any](member *T, value T) T {
	if member == nil {
		return value
	}
	return *member
}

type stepsMessage struct {
	N       *int `json:"n,omitempty"`
	SleepMS *int `json:"sleep_ms,omitempty"`
}

const maxSteps = 10_000

func steps(c *actors.Context, m stepsMessage) (int, error) {
	n, ms := or(m.N, 3), or(m.SleepMS, 10)
	if n < 0 || n > maxSteps || ms < 0 {
		return 0, actors.Reject(fmt.Errorf("n (%d) must be 0 to %d and sleep_ms (%d) at least 0", n, maxSteps, ms))
	}
	sum := 0
	for i := range n {
		one, err := actors.Step(c, "step-"+strconv.Itoa(i+1), func(s actors.StepContext) (int, error) {
			return 1, pause(s, time.Duration(ms)*time.Millisecond)
		})
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

type sleepMessage struct {
	MS *int `json:"ms,omitempty"`
}

func sleep(c *actors.Context, m sleepMessage) (actors.None, error) {
	ms := or(m.MS, 5000)
	if ms < 0 {
		return nil, actors.Reject(fmt.Errorf("ms (%d) must be at least 0", ms))
	}
	return nil, pause(c.Context(), time.Duration(ms)*time.Millisecond)
}

// pause sleeps, or returns why it must not.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type failMessage struct {
	Times   *int `json:"times,omitempty"`
	AfterMS *int `json:"after_ms,omitempty"`
}

func fail(c *actors.Context, m failMessage) (int, error) {
	attempt, times := c.Info().Attempt, or(m.Times, 2)
	if attempt > times {
		return attempt, nil
	}
	err := fmt.Errorf("attempt %d of %d that fail", attempt, times)
	if after := or(m.AfterMS, 0); after > 0 {
		return 0, actors.Retry(time.Duration(after)*time.Millisecond, err)
	}
	return 0, err
}

type panicMessage struct {
	Times *int `json:"times,omitempty"`
}

func panics(c *actors.Context, m panicMessage) (int, error) {
	attempt, times := c.Info().Attempt, or(m.Times, 1)
	if attempt <= times {
		panic(fmt.Sprintf("attempt %d of %d that panic", attempt, times))
	}
	return attempt, nil
}

type exitMessage struct {
	Code    *int `json:"code,omitempty"`
	AfterMS *int `json:"after_ms,omitempty"`
}

var errStillHere = errors.New("the process did not end")

// exiter ends the process.
type exiter func(code int)

func (exit exiter) handle(c *actors.Context, m exitMessage) (actors.None, error) {
	code, ms := or(m.Code, crashCode), or(m.AfterMS, 0)
	if code < 0 || code > 255 || ms < 0 {
		return nil, actors.Reject(fmt.Errorf("code (%d) must be 0 to 255 and after_ms (%d) at least 0", code, ms))
	}
	if err := pause(c.Context(), time.Duration(ms)*time.Millisecond); err != nil {
		return nil, err
	}
	exit(code)
	return nil, errStillHere
}
