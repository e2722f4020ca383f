package supervision

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/agentactor"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var (
	// ErrStarted means that Run was called before: a runtime runs once.
	ErrStarted = errors.New("the runtime was started before")
	// ErrNotRunning means that the runtime does not take work: not started yet, draining, or stopped.
	ErrNotRunning = errors.New("the runtime is not running")
)

// Runtime runs agents on what a stream brings: one node of a group. Make it with New; Run starts it once.
type Runtime struct {
	cfg    Config
	node   messages.Node
	log    hclog.Logger
	client *actors.Client
	bridge *streambridge.Bridge
	hub    hub
	counts counters
	sched  *scheduler // nil where the state keeps no schedules

	mu      sync.Mutex
	phase   phase
	drain   chan struct{} // closed by the first Drain
	stopped chan struct{} // closed when Run has ended
	hard    context.CancelFunc
	failed  chan error // the first fault of an own actor
	store   storeHealth
}

type phase int

const (
	idle phase = iota
	running
	draining
	ended
)

// New checks the configuration and binds the adapters to its names. It starts nothing and talks to nobody.
func New(cfg Config) (*Runtime, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("supervision.Config: %w", err)
	}
	client, err := actors.NewClient(cfg.State, cfg.Names, actors.RememberIDs(cfg.Keep.Succeeded))
	if err != nil {
		return nil, fmt.Errorf("supervision.Config: %w", err)
	}
	host, _ := os.Hostname() // for people only: an empty one harms nothing
	r := &Runtime{
		cfg: cfg, client: client, log: cfg.Logger.Named("weir"),
		drain: make(chan struct{}), stopped: make(chan struct{}), failed: make(chan error, 1),
		node: messages.Node{
			Incarnation: newIncarnation(), Consumer: cfg.Names.Consumer, Types: slices.Sorted(maps.Keys(cfg.Agents)),
			Lease: cfg.Lease, Beat: cfg.Beat, Host: host, PID: os.Getpid(),
		},
	}
	r.store.log = r.log
	r.bridge, err = streambridge.New(streambridge.Config{
		Stream: cfg.Stream, Upkeep: cfg.Stream, Names: cfg.Names, Node: r.node,
		Lease: cfg.Lease, Beat: cfg.Beat, Tick: cfg.Tick,
		InFlight: cfg.InFlight, InFlightBytes: cfg.InFlightBytes, MaxPayload: cfg.MaxPayload,
		MaxDeliveries: cfg.MaxDeliveries, DeadTTL: cfg.Keep.Dead, Gate: cfg.Gate,
		Logger: r.log, Events: r.hub.publish, Stuck: r.counts.stuckSteps.Load,
	})
	if err != nil {
		return nil, fmt.Errorf("supervision.Config: %w", err)
	}
	if desk, ok := cfg.State.(actors.ScheduleDesk); ok {
		r.sched = newScheduler(cfg.Schedules, desk, client)
		r.sched.incarnation, r.sched.log = r.node.Incarnation, r.log.Named("schedules")
		r.sched.events, r.sched.fault = r.hub.publish, r.fail
	}
	return r, nil
}

// newIncarnation names this start of the process: 64 random bits.
func newIncarnation() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Run runs the node until ctx ends or Drain is called, then drains: running work gets the grace period, what is left is
// given back so that other nodes take it at once. It installs no signal handler. It returns nil after a drain, and an
// error when the node could not start or failed for a reason of its own (another process took its consumer name, a fault in
// Weir); entries it held come back through their lease. A second call returns ErrStarted.
func (r *Runtime) Run(ctx context.Context) error {
	if err := r.start(); err != nil {
		return err
	}
	defer close(r.stopped)
	defer r.hub.close()

	hard, cancel := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx: commits go on while draining
	defer cancel()
	r.mu.Lock()
	r.hard = cancel
	r.mu.Unlock()

	system := newSystem(r.log)
	agents := r.spawnAgents(hard, system)
	err := r.bridge.Start(ctx, system, agents)
	if err == nil {
		r.log.Info("running", "stream", r.cfg.Names.Stream, "group", r.cfg.Names.Group,
			"consumer", r.node.Consumer, "incarnation", r.node.Incarnation, "types", r.node.Types)
		if r.sched != nil {
			r.sched.start(hard)
		}
		err = r.wait(ctx)
		if r.sched != nil {
			r.sched.stop()
		}
	}

	// The table of contents read backwards: the schedules (above), readers, running work, the agents, the store.
	r.setPhase(draining)
	if err != nil {
		cancel()
		r.bridge.Stop()
	} else {
		err = r.stopBridge(hard)
		cancel()
	}
	err = errors.Join(err, stopActor(system, agents, r.cfg.Lease))
	err = errors.Join(err, r.closeAdapters())
	r.setPhase(ended)
	r.log.Info("stopped", "consumer", r.node.Consumer)
	return err
}

func (r *Runtime) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.phase {
	case idle:
		r.phase = running
		return nil
	case draining:
		return ErrNotRunning // drained before it ran
	case running, ended:
	}
	return ErrStarted
}

// spawnAgents starts the supervisor of the agent actors.
func (r *Runtime) spawnAgents(hard context.Context, system *actor.ActorSystem) *actor.PID {
	one := agentactor.Props(agentactor.Config{
		Agents: r.cfg.Agents, State: r.cfg.State, Hard: hard,
		Names: r.cfg.Names, Consumer: r.node.Consumer, Incarnation: r.node.Incarnation, MaxDeliveries: r.cfg.MaxDeliveries,
		MaxResult: r.cfg.MaxResult, MaxPayload: r.cfg.MaxPayload, Rates: r.cfg.Quotas, Logger: newHostLog(r.log), Hooks: r.hooks(),
		KeepSucceeded: r.cfg.Keep.Succeeded, KeepFailed: r.cfg.Keep.Failed, KeepDead: r.cfg.Keep.Dead, Index: r.cfg.Keep.Index,
	})
	return system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
		return &agents{
			props: one, restarts: r.cfg.Restarts, log: r.log.Named("agents"), events: r.hub.publish, counts: &r.counts, fault: r.fail,
			tasks: map[string]*hand{}, pids: map[string]*hand{}, reasons: map[string]string{},
		}
	}))
}

// wait blocks until the node should stop: nil for a drain, else why it failed.
func (r *Runtime) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.drain:
		return nil
	case err := <-r.failed:
		return err
	case <-r.bridge.Failed():
		return r.bridge.Err()
	}
}

// closeAdapters ends the goroutines and connections that the adapters have of their own. The user's client stays open.
func (r *Runtime) closeAdapters() error {
	var errs []error
	if c, ok := r.cfg.Stream.(io.Closer); ok {
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the stream: %w", err))
		}
	}
	if err := r.cfg.State.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close the state store: %w", err))
	}
	return errors.Join(errs...)
}

// stopBridge drains with the grace period.
func (r *Runtime) stopBridge(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, max(r.cfg.Grace, 0))
	defer cancel()
	err := r.bridge.Drain(grace)
	if errors.Is(err, streambridge.ErrUnfinished) {
		// What ran longer than the grace period goes on elsewhere, free of charge. What else went wrong is in the log.
		r.log.Warn("the grace period was up", "grace", r.cfg.Grace, "err", err)
		return nil
	}
	return err
}

// Drain stops the node as the end of Run's context does, and waits for Run to return. When ctx ends first, running work is
// cut off at once (what it held comes back through the lease) and the error wraps ctx's. Idempotent; before Run it makes
// Run refuse.
func (r *Runtime) Drain(ctx context.Context) error {
	r.mu.Lock()
	before := r.phase
	if before == idle {
		r.phase = draining
	}
	select {
	case <-r.drain:
	default:
		close(r.drain)
	}
	hard := r.hard
	r.mu.Unlock()
	if before == idle {
		return nil
	}
	select {
	case <-r.stopped:
		return nil
	case <-ctx.Done():
		if hard != nil {
			hard()
		}
		return fmt.Errorf("drain: %w", context.Cause(ctx))
	}
}

// Ready says why the node should get no traffic, or nil: it runs, and reading, heartbeat and upkeep work.
func (r *Runtime) Ready() error {
	if err := r.phaseError(); err != nil {
		return err
	}
	if err := r.bridge.Health().Ready(time.Now()); err != nil {
		return err
	}
	return r.store.ready(time.Now())
}

// Gate is how the group's intake stood at this node's last tick: while it is shut, Submit is refused. The node is ready all the
// same: it works off what is there.
func (r *Runtime) Gate() streambridge.Gate { return r.bridge.Gate() }

// Live says why the process should be restarted, or nil. A Redis that is away is no reason: a restart would not help.
func (r *Runtime) Live() error {
	r.mu.Lock()
	p := r.phase
	r.mu.Unlock()
	if p == ended {
		return ErrNotRunning
	}
	if err := r.bridge.Health().Failed; err != nil {
		return fmt.Errorf("the bridge has stopped: %w", err)
	}
	return nil
}

// Client submits tasks to this runtime's stream and talks to them. It works before Run and after it.
func (r *Runtime) Client() *actors.Client { return r.client }

// Subscribe calls f for each lifecycle event, in order, on a goroutine of its own, until stop is called or the runtime has
// ended. A subscriber more than 4,096 events behind misses some: see Stats.
func (r *Runtime) Subscribe(f func(Event)) (stop func()) { return r.hub.subscribe(f) }

// Node names this incarnation.
func (r *Runtime) Node() messages.Node { return r.node }

func (r *Runtime) setPhase(p phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = p
}

func (r *Runtime) phaseError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase != running {
		return ErrNotRunning
	}
	return nil
}

// fail reports a fault of one of the runtime's own actors; the first one ends Run.
func (r *Runtime) fail(err error) {
	select {
	case r.failed <- err:
	default:
		r.log.Error("another fault", "err", err)
	}
}

// stopActor stops the agents' supervisor and waits for it, at most for the given time: an agent actor never blocks in
// Receive, so longer means a fault.
func stopActor(system *actor.ActorSystem, pid *actor.PID, limit time.Duration) error {
	gone := make(chan struct{})
	watcher := system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case *actor.Started:
			c.Watch(pid)
			c.Send(pid, stopAgents{})
		case *actor.Terminated:
			close(gone)
			c.Stop(c.Self())
		}
	}))
	select {
	case <-gone:
		return nil
	case <-time.After(limit):
		system.Root.Stop(watcher)
		return fmt.Errorf("the agents' supervisor did not stop within %s", limit)
	}
}
