// Command triage answers 149 public bug reports: for each it asks a model for the intent, looks up similar reports in a
// full-text index and drafts a reply. It ends by itself.
//
//	go run ./examples/triage                                                   # needs nothing
//	REDIS_URL=redis://localhost:6379 go run ./examples/triage                  # on Redis: a second run finds it all done
//	OPENAI_BASE_URL=https://api.openai.com/v1 OPENAI_API_KEY=… OPENAI_MODEL=… go run ./examples/triage
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/examples/triage/chatserver"
	"github.com/weir-run/weir/examples/triage/triage"
	"github.com/weir-run/weir/streambridge/memstream"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "triage:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, getenv func(string) string) error {
	reports, err := triage.Reports()
	if err != nil {
		return err
	}
	index, err := triage.NewIndex(reports)
	if err != nil {
		return err
	}
	defer index.Close()

	url, key := getenv("OPENAI_BASE_URL"), getenv("OPENAI_API_KEY")
	if url == "" {
		local, err := chatserver.Start() //nolint:contextcheck // it lives until Close
		if err != nil {
			return err
		}
		defer local.Close()
		url, key = local.URL(), "local" // the user's own key stays where it is
	}
	model := triage.NewModel(url, key, getenv("OPENAI_MODEL"))
	defer model.Close()

	cfg := supervision.Config{
		Agents: triage.Agents(model, index),
		Names:  actors.Names{Stream: "triage:reports", Group: "triage"},
	}
	if addr := getenv("REDIS_URL"); addr != "" {
		opts, err := redis.ParseURL(addr)
		if err != nil {
			return fmt.Errorf("REDIS_URL: %w", err)
		}
		rdb := redis.NewClient(opts)
		defer rdb.Close()
		cfg.Stream, cfg.State = redisstream.New(rdb), redisstate.New(rdb)
	} else {
		stream := memstream.New()
		cfg.Stream, cfg.State = stream, memstate.New(stream)
	}
	rt, err := supervision.New(cfg)
	if err != nil {
		return err
	}
	// The runtime ends when the results are in; if it ends before, nobody would bring them.
	ctx, done := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := rt.Run(ctx)
		done()
		ended <- err
	}()
	err = triageAll(ctx, out, rt.Client(), reports)
	done()
	return errors.Join(<-ended, err)
}

// triageAll submits every report and prints a line a result, in the order of the reports.
func triageAll(ctx context.Context, out io.Writer, client *actors.Client, reports []triage.Report) error {
	tasks := make([]*actors.Task, 0, len(reports))
	for _, r := range reports {
		t, err := client.Submit(ctx, triage.Task(r))
		if err != nil {
			return fmt.Errorf("submit %s: %w", r.ID, err)
		}
		tasks = append(tasks, t)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REPORT\tINTENT\tSIMILAR\tREPLY")
	for n, t := range tasks {
		res, err := actors.Result[triage.Result](ctx, t)
		if err != nil {
			return fmt.Errorf("result of %s: %w", reports[n].ID, err)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", res.ID, res.Intent, strings.Join(res.Similar, " "), start(res.Reply, 60))
	}
	return table.Flush()
}

// start is the beginning of text, at most n characters.
func start(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
