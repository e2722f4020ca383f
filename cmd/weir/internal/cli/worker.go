package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/cmd/weir/internal/agents"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

// workerFlags are what `weir worker` was told; zero means the runtime's default.
type workerFlags struct {
	consumer          string
	types             []string
	lease, beat, tick time.Duration
	maxDeliveries     int64
	maxInFlight       int
	maxPayload        int
	restarts          int
	grace             time.Duration
	logLevel          string
	logJSON           bool
	health            string
	index             bool
	schedules         string
	gate              supervision.Gate
}

func (a *app) workerCmd() *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run the built-in agent types on a stream until SIGTERM or SIGINT",
		Long: `Run the built-in agent types on a stream. When it works it prints one line, "ready", on stdout; its log is on stderr.

SIGTERM or SIGINT drains it: it reads no more, running work gets --grace, and what is left is given back so that other
workers take it at once. A second signal ends it at once; what it held then comes back through its lease.

Agent types and their payloads (a member that is left out has the value shown):
  noop    any payload; does nothing
  echo    any payload; the result is the payload
  steps   {"n":3,"sleep_ms":10}      n steps that sleep
  sleep   {"ms":5000}                sleeps in its handler
  fail    {"times":2,"after_ms":0}   returns an error in its first attempts
  panic   {"times":1}                panics in its first attempts
  exit    {"code":137,"after_ms":0}  ends the process
  effect  {"crash":"none"}           INCR effect:<task_id>:<step> in the same Redis, exactly once; with before-effect,
                                     after-effect or before-ack it ends the process there, the first time`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.worker(cmd.Context(), f) },
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.consumer, "consumer", "", "this process's name in the group (default host name and process id)")
	fs.StringSliceVar(&f.types, "types", nil, "agent types to run (default all: "+strings.Join(agents.Types, ",")+")")
	fs.DurationVar(&f.lease, "lease", 0, "how long a silent worker keeps what it holds (default 15s)")
	fs.DurationVar(&f.beat, "beat", 0, "how often it renews what it holds (default 5s, at most a third of --lease)")
	fs.DurationVar(&f.tick, "tick", 0, "clock of the reaper and the due retries (default 1s, at most a third of --lease)")
	fs.Int64Var(&f.maxDeliveries, "max-deliveries", 0, "how often an entry may be handed out without being begun, -1 for no limit (default 3)")
	fs.IntVar(&f.maxInFlight, "max-in-flight", 0, "how many entries it holds at once (default 1000)")
	fs.IntVar(&f.maxPayload, "max-payload", 0, "largest payload in bytes (default 1 MiB)")
	fs.IntVar(&f.restarts, "restarts", 0, "restarts of a crashed agent within a minute, -1 for none (default 3)")
	fs.Var((*graceFlag)(&f.grace), "grace", "how long running work may go on after a signal, or none (default 30s)")
	fs.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn, error or off")
	fs.BoolVar(&f.logJSON, "log-json", false, "log in JSON")
	fs.StringVar(&f.health, "health", "", "address for /livez and /readyz, such as :8080 (default none)")
	fs.Var((*gateFlag)(&f.gate), "gate", "limits beyond which submitting is refused: age, pending, lag, length, memory, or off (default age=24h,pending=1000000,lag=1000000,length=1000000,memory=90%)")
	fs.BoolVar(&f.index, "index", false, "list SUCCEEDED tasks by state too, at the price of a write a task")
	fs.StringVar(&f.schedules, "schedules", "", "file with schedules to declare, YAML or JSON (see weir schedule add --help)")
	for _, name := range []string{
		"schedules", "consumer", "types", "lease", "beat", "tick", "max-deliveries", "max-in-flight", "max-payload",
		"restarts", "grace", "log-level", "log-json", "health", "index", "gate",
	} {
		env(fs, name)
	}
	return cmd
}

// graceFlag is a duration, or none. What the library calls -1 would be -1ns here.
type graceFlag time.Duration

func (g *graceFlag) Set(s string) error {
	if s == "none" {
		*g = -1
		return nil
	}
	d, err := time.ParseDuration(s)
	*g = graceFlag(d)
	return err
}

func (g *graceFlag) String() string {
	switch *g {
	case 0:
		return ""
	case -1:
		return "none"
	}
	return time.Duration(*g).String()
}

func (g *graceFlag) Type() string { return "duration" }

// logger is the process's log, on stderr.
func (a *app) logger(level string, inJSON bool) (hclog.Logger, error) {
	l := hclog.LevelFromString(level)
	if l == hclog.NoLevel {
		return nil, usagef("--log-level (%q) must be trace, debug, info, warn, error or off", level)
	}
	return hclog.New(&hclog.LoggerOptions{Level: l, Output: a.std.Err, JSONFormat: inJSON}), nil
}

// workerAgents are the built-in types that were asked for.
func workerAgents(all actors.Agents, types []string) (actors.Agents, error) {
	if len(types) == 0 {
		return all, nil
	}
	some := actors.Agents{}
	for _, t := range types {
		one, ok := all[t]
		if !ok {
			return nil, usagef("--types: there is no type %q, only %s", t, strings.Join(agents.Types, ", "))
		}
		some[t] = one
	}
	return some, nil
}

// worker runs until a signal, and drains.
func (a *app) worker(ctx context.Context, f workerFlags) error {
	log, err := a.logger(f.logLevel, f.logJSON)
	if err != nil {
		return err
	}
	names, err := a.names(f.consumer)
	if err != nil {
		return err
	}
	rdb, err := dialRedis(ctx, a.redisURL(), func(o *redis.Options) { o.ClientName = "weir-worker" })
	if err != nil {
		return err
	}
	defer rdb.Close()
	outside, err := dialRedis(ctx, a.redisURL(), func(o *redis.Options) { o.ClientName = "weir-effects" })
	if err != nil {
		return err
	}
	defer outside.Close()
	effects := agents.NewEffects(outside, a.std.Exit)
	types, err := workerAgents(agents.Builtin(a.std.Exit, effects), f.types)
	if err != nil {
		return err
	}
	var schedules []schedule.Schedule
	if f.schedules != "" {
		if schedules, err = schedule.Load(f.schedules); err != nil {
			return &usageError{err: err}
		}
	}
	if f.tick == 0 && f.lease > 0 {
		f.tick = min(time.Second, f.lease/3) // a short lease, as in a test, needs no flag more
	}
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb),
		State:  &watchedState{redisstate.New(rdb), effects.Committed},
		Names:  names, Agents: types, Schedules: schedules,
		Lease: f.lease, Beat: f.beat, Tick: f.tick, MaxDeliveries: f.maxDeliveries, InFlight: f.maxInFlight,
		MaxPayload: f.maxPayload, Restarts: supervision.Restarts{Max: f.restarts}, Grace: f.grace,
		Keep: supervision.Keep{Index: f.index}, Gate: f.gate, Logger: log,
	})
	if err != nil {
		return &usageError{err: err}
	}
	health, err := startHealth(f.health, rt)
	if err != nil {
		return err
	}
	err = a.runWorker(ctx, rt, health.address())
	return errors.Join(err, health.close(context.WithoutCancel(ctx)))
}

// watchedState tells of each confirmed commit before the runtime learns of it.
type watchedState struct {
	*redisstate.State
	committed func(ctx context.Context, c actors.Commit) error
}

func (s *watchedState) Commit(ctx context.Context, c actors.Commit) error {
	if err := s.State.Commit(ctx, c); err != nil {
		return err
	}
	return s.committed(ctx, c)
}

// readyLine is what a worker prints when it works, and stoppedLine when it has stopped.
type readyLine struct {
	Event       string   `json:"event"`
	Stream      string   `json:"stream"`
	Group       string   `json:"group"`
	Consumer    string   `json:"consumer"`
	Incarnation string   `json:"incarnation"`
	Types       []string `json:"types"`
	Health      string   `json:"health,omitempty"`
}

type stoppedLine struct {
	Event       string `json:"event"`
	Began       int64  `json:"began"`
	Succeeded   int64  `json:"succeeded"`
	Retried     int64  `json:"retried"`
	Failed      int64  `json:"failed"`
	Interrupted int64  `json:"interrupted"`
	Crashes     int64  `json:"crashes"`
	Lost        int64  `json:"lost"`
	// Stuck steps ran on after their timeout to the last.
	Stuck int64 `json:"stuck_steps,omitempty"`
}

func (a *app) runWorker(ctx context.Context, rt *supervision.Runtime, health string) error {
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	early, err := awaitReady(rt, ended)
	if !early {
		node := rt.Node()
		err = a.say("ready", readyLine{
			Event: "ready", Stream: a.conn.stream, Group: a.conn.group, Consumer: node.Consumer, Incarnation: node.Incarnation,
			Types: slices.Clone(node.Types), Health: health,
		})
		if err != nil {
			return errors.Join(err, rt.Drain(ctx), <-ended)
		}
		err = <-ended
	}
	if signalled(ctx) && errors.Is(err, context.Canceled) {
		err = nil // the signal came while it was starting: there was nothing to drain
	}
	if early {
		return err
	}
	s := rt.Stats()
	said := a.say(fmt.Sprintf("stopped: %d succeeded, %d retried, %d failed, %d interrupted, %d crashes",
		s.Completed, s.Retried, s.Rejected, s.Interrupted, s.Crashes), stoppedLine{
		Event: "stopped", Began: s.Began, Succeeded: s.Completed, Retried: s.Retried, Failed: s.Rejected,
		Interrupted: s.Interrupted, Crashes: s.Crashes, Lost: s.Lost, Stuck: s.StuckSteps,
	})
	return errors.Join(err, said)
}

// say prints a line: text for a person, or the event.
func (a *app) say(text string, event any) error {
	if a.json {
		return a.printLine(event)
	}
	_, err := fmt.Fprintln(a.std.Out, text)
	return err
}

// awaitReady waits until the runtime is ready, or has ended early.
func awaitReady(rt *supervision.Runtime, ended <-chan error) (early bool, err error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for rt.Ready() != nil {
		select {
		case err := <-ended:
			return true, err
		case <-look.C:
		}
	}
	return false, nil
}
