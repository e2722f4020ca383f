package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weir-run/weir/cmd/weir/internal/bench"
	"github.com/weir-run/weir/streambridge/redistest"
)

// benchFlags are what `weir bench` was told.
type benchFlags struct {
	bench.Options
	parked   int
	idle     bool
	idleTime time.Duration
}

func (a *app) benchCmd() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure tasks a second and latency, beside the floor in the same run",
		Long: `Measure, on --redis or $REDIS_URL, else on a private redis-server from PATH:

  floor             the least that tasks with durable state cost a Redis client in Go: frozen scripts, go-redis alone
  no-op tasks       Weir, from XREADGROUP to XACK
  three-step tasks  Weir, with three checkpoints a task
  latency           from XADD to the start of the handler, beside a bare blocked XREADGROUP

Rounds are interleaved and medians reported. It works on streams of its own and removes them. Instead of that:

  --parked N        parks N tasks in sleeping handlers and reports this process's resident memory
  --idle            counts the commands a second that a node without work sends`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fs := cmd.Flags()
			switch {
			case f.idle && f.parked != 0:
				return usagef("--parked and --idle exclude each other")
			case fs.Changed("parked") && f.parked < 1:
				return usagef("--parked (%d) must be at least 1", f.parked)
			case f.idleTime < time.Second:
				return usagef("--idle-time (%v) must be at least 1s", f.idleTime)
			}
			if err := f.Validate(); err != nil {
				return &usageError{err: fmt.Errorf("--%w", err)}
			}
			return a.bench(cmd.Context(), f)
		},
	}
	a.redisFlag(cmd, "a private redis-server from PATH")
	a.jsonFlag(cmd)
	fs := cmd.Flags()
	fs.IntVar(&f.Tasks, "tasks", 20_000, "tasks a round; of three-step tasks a quarter")
	fs.IntVar(&f.Payload, "payload", 200, "bytes of a no-op task's payload")
	fs.IntVar(&f.Rounds, "rounds", 3, "rounds")
	fs.IntVar(&f.InFlight, "in-flight", 1000, "entries that Weir holds at once")
	fs.IntVar(&f.Wakes, "wakes", 300, "latencies that a round measures")
	fs.IntVar(&f.parked, "parked", 0, "park so many tasks and report the memory, instead")
	fs.BoolVar(&f.idle, "idle", false, "count the commands of an idle node, instead")
	fs.DurationVar(&f.idleTime, "idle-time", 20*time.Second, "how long --idle counts")
	return cmd
}

// benchRedis is the Redis that the user named, or a private one.
func (a *app) benchRedis(ctx context.Context) (rdb *redis.Client, where string, done func() error, err error) {
	if url := cmp.Or(a.conn.redis, a.std.Getenv("REDIS_URL")); url != "" {
		rdb, err := dialRedis(ctx, url)
		if err != nil {
			return nil, "", nil, err
		}
		return rdb, "Redis at " + rdb.Options().Addr, rdb.Close, nil
	}
	srv, err := redistest.Run(ctx, redistest.Config{})
	if errors.Is(err, redistest.ErrNoServer) {
		return nil, "", nil, fmt.Errorf("name a Redis with --redis: %w", err)
	}
	if err != nil {
		return nil, "", nil, err
	}
	return srv.Client(), "a private redis-server at " + srv.Addr(), srv.Close, nil
}

func (a *app) bench(ctx context.Context, f benchFlags) (err error) {
	rdb, where, done, err := a.benchRedis(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	progress := func(line string) {
		if !a.json {
			fmt.Fprintln(a.std.Err, line)
		}
	}
	progress("on " + where)
	switch {
	case f.parked > 0:
		p, err := bench.RunParked(ctx, rdb, f.parked, progress)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(p)
		}
		return a.showParked(p)
	case f.idle:
		idle, err := bench.RunIdle(ctx, rdb.Options(), f.idleTime)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(idle)
		}
		return a.showIdle(idle)
	}
	f.Progress = progress
	rep, err := bench.Run(ctx, rdb, f.Options)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(rep)
	}
	return a.showBench(rep)
}

func (a *app) showBench(r bench.Report) error {
	fmt.Fprintf(a.std.Out, "Redis %s, %s, %d CPUs, %s tasks of %d bytes a round, %s, %d in flight\n\n",
		r.Redis, r.Go, r.CPUs, count(int64(r.Tasks)), r.Payload, plural(r.Rounds, "round"), r.InFlight)
	w := table(a.std.Out)
	row(w, "THROUGHPUT", "TASKS/S", "OF THE FLOOR", "ROUNDS")
	for _, l := range []struct {
		name string
		rate bench.Rate
	}{{"floor", r.Floor}, {"no-op tasks", r.Noop}, {"three-step tasks", r.Steps}} {
		rounds := make([]string, len(l.rate.Rounds))
		for i, v := range l.rate.Rounds {
			rounds[i] = count(int64(v))
		}
		row(w, l.name, count(int64(l.rate.Median)), fmt.Sprintf("%.2f", l.rate.OfFloor), strings.Join(rounds, "  "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.std.Out)
	w = table(a.std.Out)
	row(w, "LATENCY", "P50", "P90", "P99", "MAX", "SAMPLES")
	for _, l := range []struct {
		name string
		lat  bench.Latencies
	}{{"bare XREADGROUP", r.Bare}, {"XADD to handler start", r.Start}} {
		row(w, l.name, micros(l.lat.P50), micros(l.lat.P90), micros(l.lat.P99), micros(l.lat.Max), l.lat.N)
	}
	row(w, "difference", micros(r.Start.P50-r.Bare.P50), micros(r.Start.P90-r.Bare.P90), micros(r.Start.P99-r.Bare.P99))
	return w.Flush()
}

// micros is a short duration with the same unit in every row.
func micros(d time.Duration) string { return fmt.Sprintf("%.2fms", float64(d.Microseconds())/1000) }

func (a *app) showParked(p bench.Parked) error {
	const mib = 1 << 20
	w := table(a.std.Out)
	row(w, "parked", plural(p.Tasks, "task")+", all in their handlers after "+age(p.Filled))
	row(w, "resident memory", fmt.Sprintf("%d MiB at most in %s, %d MiB before", p.Peak/mib, age(p.Watched), p.Before/mib))
	row(w, "a task", count(p.PerTask)+" bytes")
	row(w, "heap", fmt.Sprintf("%d MiB", p.Heap/mib))
	row(w, "goroutines", count(int64(p.Routines)))
	return w.Flush()
}

func (a *app) showIdle(i bench.Idle) error {
	fmt.Fprintf(a.std.Out, "an idle node sends %.2f commands a second (over %.0f s)\n\n", i.PerSecond, i.Seconds)
	w := table(a.std.Out)
	row(w, "COMMAND", "A SECOND")
	for _, name := range slices.Sorted(maps.Keys(i.Commands)) {
		row(w, name, fmt.Sprintf("%.2f", i.Commands[name]))
	}
	return w.Flush()
}
