// Command peerbench lets Weir and its peers do the same work on the same Redis, side by side.
//
// Two workloads: no-op tasks with a payload of 200 bytes (asynq, watermill-redisstream, Weir), and tasks of
// three checkpointed steps (go-workflows, Weir). Every task is in Redis before the clock starts; the clock
// stops when each one was handled and nothing is left that the library would still write for it
// (acknowledgement, final state). Rounds are interleaved (A B C, A B C, …), so that a machine that slows down
// slows down everybody; a row is the median of its rounds, its ratio is Weir's rate over the peer's. Each task
// carries its number, and every drain counts how many different tasks were handled and how many calls that took.
//
// Each peer is set to its own advantage, see the comment at the top of its file: 1,000 handlers at once everywhere
// (more than 64 makes asynq and go-workflows neither faster nor slower; watermill gets 64 connections, its best),
// pools that never make a worker wait, logs off, the caches and pollers that were fastest in a trial.
// watermill-redisstream keeps no state of a task: it is the price of reading and acknowledging one by one.
//
//	cd cmd/peerbench
//	go run .                                      # everything: a private redis-server, 50,000 tasks, 3 rounds
//	go run . -n 5000 -rounds 1 -only asynq,weir   # a quick look
//	go run . -redis redis://10.0.0.5:6379/9       # a given Redis; it must be empty, and it is emptied after each drain
//
// The table goes to stdout, the raw rounds with machine and versions to a file under results/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/streambridge/redistest"
)

type config struct {
	n, steps    int // tasks a drain, by workload
	rounds      int
	concurrency int
	only        string
	redisURL    string
	out         string
}

func main() {
	var cfg config
	flag.IntVar(&cfg.n, "n", 50_000, "no-op tasks a drain")
	flag.IntVar(&cfg.steps, "steps-n", 2_000, "three-step tasks a drain")
	flag.IntVar(&cfg.rounds, "rounds", 3, "rounds, interleaved; a row is their median")
	flag.IntVar(&cfg.concurrency, "concurrency", 1000, "handlers at once, the same for everyone")
	flag.StringVar(&cfg.only, "only", "", "comma separated names of the rows to run (default all): "+strings.Join(names(catalogue), ", "))
	flag.StringVar(&cfg.redisURL, "redis", "", "URL of an empty Redis, emptied after each drain (default: a private redis-server)")
	flag.StringVar(&cfg.out, "out", "", "file for the raw results; - for none (default results/<UTC time>.json)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "peerbench: unknown argument %q\n", flag.Arg(0))
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, cfg)
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "peerbench:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "peerbench:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func run(ctx context.Context, cfg config) error {
	rows, err := cfg.rows()
	if err != nil {
		return err
	}
	opts, stop, err := cfg.redis(ctx)
	if err != nil {
		return err
	}
	defer stop()

	rep := newReport(cfg)
	rep.Machine, err = describe(ctx, opts)
	if err != nil {
		return err
	}
	if err := runRounds(ctx, cfg, opts, rows, rep, os.Stderr); err != nil {
		return err
	}
	rep.summarize()
	if err := rep.table(os.Stdout); err != nil {
		return err
	}
	if cfg.out == "-" {
		return nil
	}
	out := cfg.out
	if out == "" {
		out = filepath.Join("results", rep.Started.Format("2006-01-02T150405Z")+".json")
	}
	if err := rep.write(out); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "raw results:", out)
	return nil
}

// rows are the rows of the catalogue that -only names.
func (c config) rows() ([]row, error) {
	if c.n < 1 || c.steps < 1 || c.rounds < 1 || c.concurrency < 1 {
		return nil, fmt.Errorf("%w: -n (%d), -steps-n (%d), -rounds (%d) and -concurrency (%d) must be at least 1",
			errUsage, c.n, c.steps, c.rounds, c.concurrency)
	}
	if c.only == "" {
		return catalogue, nil
	}
	var rows []row
	for name := range strings.SplitSeq(c.only, ",") {
		i := slices.IndexFunc(catalogue, func(r row) bool { return r.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("%w: -only %q is none of %s", errUsage, name, strings.Join(names(catalogue), ", "))
		}
		rows = append(rows, catalogue[i])
	}
	return rows, nil
}

// redis gives the options of the Redis that everybody drains, and what stops it.
func (c config) redis(ctx context.Context) (*redis.Options, func(), error) {
	if c.redisURL == "" {
		srv, err := redistest.Run(ctx, redistest.Config{})
		if err != nil {
			return nil, nil, err
		}
		return &redis.Options{Addr: srv.Addr()}, func() { _ = srv.Close() }, nil
	}
	opts, err := redis.ParseURL(c.redisURL)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: -redis: %w", errUsage, err)
	}
	rdb := redis.NewClient(opts)
	defer func() { _ = rdb.Close() }()
	keys, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("reach the Redis of -redis: %w", err)
	}
	if keys > 0 {
		return nil, nil, fmt.Errorf("%w: the Redis of -redis holds %d keys; it must be empty, for it is emptied after each drain", errUsage, keys)
	}
	return opts, func() {}, nil
}

func names(rows []row) []string {
	var s []string
	for _, r := range rows {
		s = append(s, r.name)
	}
	return s
}

// drainTimeout bounds one drain: a peer that loses a task must fail the run, not hang it.
const drainTimeout = 15 * time.Minute
