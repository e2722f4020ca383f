package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/examples/triage/chatserver"
	"github.com/weir-run/weir/examples/triage/triage"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/supervision"
)

const (
	// demoLimit is when a demo that hangs gives up.
	demoLimit = 28 * time.Second
	// demoInFlight spreads the work over some seconds, so that there is something to see.
	demoInFlight = 12
	// How long the local model thinks before it answers, and before each further token.
	demoThink, demoToken = 60 * time.Millisecond, 2 * time.Millisecond
)

// demoFlags are what `weir demo` was told.
type demoFlags struct {
	keep     bool
	logLevel string
}

func (a *app) demoCmd() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: 149 bug reports are triaged, with a crash and a poison entry on the way",
		Long: `Triage 149 public bug reports: for each an agent asks a model for the intent, looks up similar reports in a full-text
index and drafts a reply. One agent crashes in the middle of a step, and one entry cannot be decoded by anyone.

It needs nothing installed. It runs on $REDIS_URL where that is set (in a stream of its own, removed at the end), else on
a private redis-server if one is on PATH, else in memory. The model is a local server that speaks the OpenAI protocol.
It ends by itself in some seconds.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), f) },
	}
	a.redisFlag(cmd, "a private redis-server from PATH, else memory")
	a.jsonFlag(cmd)
	cmd.Flags().BoolVar(&f.keep, "keep", false, "stay up afterwards, to look around with the other commands")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "off", "the runtime's own log on stderr: trace, debug, info, warn, error or off")
	return cmd
}

func (a *app) demo(ctx context.Context, f demoFlags) (err error) {
	log, err := a.logger(f.logLevel, false)
	if err != nil {
		return err
	}
	story := newStory(a.std, a.json)
	reports, err := triage.Reports()
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("it did not end within %v", demoLimit))
	defer cancel()

	b, err := a.newDemoBackend(limit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	story.tell("runs on", "%s", b.text)
	model, err := chatserver.Start(chatserver.WithLatency(demoThink, demoToken)) //nolint:contextcheck // it lives until Close
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	story.tell("model", "a local server that speaks the OpenAI protocol, %s", model.URL())
	index, err := triage.NewIndex(reports)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, index.Close()) }()
	story.tell("index", "%d public bug reports in a full-text index", len(reports))

	client := triage.NewModel(model.URL(), "local", "")
	defer client.Close()
	victim := reports[len(reports)/4].ID
	rt, err := supervision.New(supervision.Config{
		Stream: b.stream, State: b.state, Names: b.names, Agents: triage.Agents(client, index, crashOnce(victim)),
		InFlight: demoInFlight, Grace: 5 * time.Second, Logger: log,
	})
	if err != nil {
		return err
	}
	story.victim = victim
	stop := rt.Subscribe(story.on)
	defer stop()

	run, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := rt.Run(run)
		cancel() // nobody brings results any more
		ended <- err
	}()
	defer func() {
		end()
		if failed := <-ended; failed != nil {
			err = failed // what came of it says less
		}
		if !f.keep || b.where == whereURL {
			err = errors.Join(err, b.forget(context.WithoutCancel(ctx)))
		}
	}()

	sum, err := runDemo(limit, story, rt.Client(), b, reports)
	if err != nil {
		if cause := context.Cause(limit); cause != nil && !errors.Is(cause, context.Canceled) {
			err = cause
		}
		return err
	}
	sum.ModelCalls = model.Stats().Calls
	if err := a.showDemo(story, sum); err != nil || !f.keep {
		return err
	}
	a.keepDemo(ctx, b)
	return nil
}

// errDemoCrash is what the victim's agent panics with.
var errDemoCrash = errors.New("crashed on purpose: the model has answered, the answer is not kept yet")

// crashOnce panics in the reply step of one report, once, at the worst moment: the work is paid for and not recorded.
func crashOnce(victim string) triage.Probe {
	var done atomic.Bool
	return func(_ actors.StepContext, step string, r triage.Report) {
		if r.ID == victim && step == "reply" && done.CompareAndSwap(false, true) {
			panic(errDemoCrash)
		}
	}
}

// runDemo submits the reports and the poison entry, and waits until all that came of them is known.
func runDemo(ctx context.Context, story *story, client *actors.Client, b *demoBackend, reports []triage.Report) (demoSummary, error) {
	sum := demoSummary{Where: b.where, Reports: len(reports)}
	if b.where != whereMemory {
		sum.Stream = b.names.Stream
	}
	began := time.Now()
	work := make([]actors.NewTask, len(reports))
	for i, r := range reports {
		work[i] = triage.Task(r)
	}
	half := len(work) / 2
	tasks, err := client.SubmitAll(ctx, work[:half])
	if err != nil {
		return sum, err
	}
	poison, err := submitPoison(ctx, b)
	if err != nil {
		return sum, err
	}
	rest, err := client.SubmitAll(ctx, work[half:])
	if err != nil {
		return sum, err
	}
	tasks = append(tasks, rest...)
	story.tell("submitted", "%d reports as tasks, and among them entry %s, which nothing can decode", len(reports), poison)

	story.begin(len(tasks))
	defer story.finish()
	for _, t := range tasks {
		res, err := actors.Result[triage.Result](ctx, t)
		var failed *actors.TaskError
		switch {
		case errors.As(err, &failed):
			sum.Failed++
		case err != nil:
			return sum, err
		default:
			sum.Succeeded++
			story.result(res)
		}
	}
	elapsed := time.Since(began)
	sum.ElapsedMS, sum.PerSecond = elapsed.Milliseconds(), float64(len(tasks))/elapsed.Seconds()
	if sum.DeadLetter, err = awaitLetter(ctx, b, poison); err != nil {
		return sum, err
	}
	story.finish()
	sum.StepsRun, sum.Crash = story.outcome()
	return sum, nil
}

// submitPoison adds an entry without any field that Weir knows, as a foreign producer would.
func submitPoison(ctx context.Context, b *demoBackend) (entryID string, err error) {
	got, err := b.state.Submit(ctx, []actors.Submission{{
		ID: "poison", Work: messages.WorkHash("", nil), TTL: time.Hour,
		Fields: []messages.Pair{{Name: "blob", Value: "\xff\xfe not a task \x00"}},
	}})
	if err == nil {
		err = got[0].Err
	}
	if err != nil {
		return "", fmt.Errorf("add the poison entry: %w", err)
	}
	return got[0].EntryID, nil
}

// awaitLetter waits until the entry stands among the dead letters.
func awaitLetter(ctx context.Context, b *demoBackend, entryID string) (*letterView, error) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		letters, err := b.stream.Letters(ctx, "", 100)
		if err != nil {
			return nil, err
		}
		for _, l := range letters {
			if l.GetEntry().GetId() == entryID {
				v := newLetterView(l, true)
				return &v, nil
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the poison entry among the dead letters: %w", context.Cause(ctx))
		}
	}
}

// keepDemo says how to look around, and waits for a signal.
func (a *app) keepDemo(ctx context.Context, b *demoBackend) {
	if !a.json {
		fmt.Fprintln(a.std.Out)
		if b.where == whereMemory {
			fmt.Fprintln(a.std.Out, "It stays up until Ctrl-C; in memory nobody else can look at it.")
		} else {
			at := fmt.Sprintf("--stream %s --group %s", b.names.Stream, b.names.Group)
			if b.where == whereServer {
				at = "--redis " + b.url + " " + at
			}
			fmt.Fprintf(a.std.Out, "It stays up until Ctrl-C. Look around:\n  weir status %s\n  weir dead list %s\n  weir task rq/rq-2015 %s\n", at, at, at)
		}
	}
	<-ctx.Done()
}
