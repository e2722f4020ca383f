package agentactor

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Config is what all agent actors of a node share. The runtime fills it; nothing has a default here.
type Config struct {
	Agents actors.Agents
	State  actors.State
	// Hard ends when the node gives up for good: commits that still retry stop.
	Hard context.Context
	// Names are those of the group's world.
	Names actors.Names
	// Consumer and Incarnation name the node; see messages.Node.
	Consumer, Incarnation string
	// MaxDeliveries as in supervision.Config.
	MaxDeliveries int64
	// MaxResult is the largest result in bytes, MaxPayload that of a task that a handler spawns or emits.
	MaxResult, MaxPayload int
	// KeepSucceeded and KeepFailed are the times to live of ended tasks, KeepDead that of dead letters.
	KeepSucceeded, KeepFailed, KeepDead time.Duration
	// Index lists SUCCEEDED units by state.
	Index bool
	// Rates are the buckets of steps with quotas; State shares them out.
	Rates map[string]actors.Rate
	// Logger is the one that Context.Log derives from.
	Logger *slog.Logger
	Hooks  Hooks

	*shared // set by Props
}

// shared is what the activations of a node share beside their Config.
type shared struct {
	court  *court
	atWork atomic.Int64 // handlers that run
}

// Hooks tell the runtime what happens. They are called from the activations' goroutines and may only count or enqueue.
type Hooks struct {
	// Began: an activation has its fence.
	Began func(t *messages.Task, b actors.Begun)
	// Ended: an outcome is persisted.
	Ended func(t *messages.Task, c actors.Commit, ran time.Duration)
	// Lost: a write was refused because the fence is old.
	Lost func(t *messages.Task)
	// Store: a Begin or Commit was answered (nil) or failed. nil is allowed.
	Store func(err error)
	// Step: an attempt of a step ran. nil is allowed.
	Step func(actors.StepEvent)
	// Quiet: a provider asked for a pause, and a bucket is closed for everybody. nil is allowed.
	Quiet func(bucket string, d time.Duration)
	// Stuck: a step or a handler ran on after its timeout, or has come back at last. nil is allowed.
	Stuck func(actors.StuckEvent)
}
