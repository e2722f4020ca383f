package acceptance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/supervision"
)

// A probe is this test binary run as a node: its agent tells on stdout when it starts and how it ends, which no Redis
// that was emptied, frozen or cut off can lose.

// probeEnv holds a probeConfig as JSON; its presence makes the test binary a probe.
const probeEnv = "WEIR_ACCEPTANCE_PROBE"

type probeConfig struct {
	Redis, Stream, Group, Consumer string
	Lease, Beat, Tick, Grace       time.Duration
	InFlight                       int
	Quotas                         map[string]supervision.Rate
}

// probeMessage is what a "probe" task is told.
type probeMessage struct {
	// MS is how long it works.
	MS int
	// Step puts the work into a step.
	Step bool
	// Deaf work does not heed its context, as a library that blocks does not.
	Deaf bool
	// FailIn is the group in which its first attempt asks for a retry.
	FailIn string
}

// tell prints one event.
type tell struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (t *tell) say(event map[string]any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	event["clock"] = time.Now().UnixNano()
	_ = t.out.Encode(event) // the test has ended when nobody reads
}

func probeMain() int {
	if err := probeRun(); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		return 1
	}
	return 0
}

func probeRun() error {
	var cfg probeConfig
	if err := json.Unmarshal([]byte(os.Getenv(probeEnv)), &cfg); err != nil {
		return err
	}
	opts, err := redis.ParseURL(cfg.Redis)
	if err != nil {
		return err
	}
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	redis.SetLogger(quiet{})
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	said := &tell{out: json.NewEncoder(os.Stdout)}
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb),
		Names: actors.Names{Stream: cfg.Stream, Group: cfg.Group, Consumer: cfg.Consumer},
		Agents: actors.Agents{
			"probe": actors.Func(func(c *actors.Context, m probeMessage) (string, error) { return probeWork(c, m, cfg, said) }),
			"call":  actors.Func(probeCall),
		},
		Quotas: cfg.Quotas,
		Lease:  cfg.Lease, Beat: cfg.Beat, Tick: cfg.Tick, Grace: cfg.Grace, InFlight: cfg.InFlight,
		Logger: hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Info}),
	})
	if err != nil {
		return err
	}
	rt.Subscribe(func(e supervision.Event) { probeEvent(said, e) })
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(ctx) }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for rt.Ready() != nil {
		select {
		case err := <-ended:
			return err
		case <-look.C:
		}
	}
	said.say(map[string]any{"event": "ready", "consumer": rt.Node().Consumer, "incarnation": rt.Node().Incarnation})
	err = <-ended
	s := rt.Stats()
	said.say(map[string]any{"event": "stopped", "succeeded": s.Completed, "interrupted": s.Interrupted, "lost": s.Lost})
	return err
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// probeWork is the probe's agent: start, work, end, each told with the run's own name. Its result is that name.
func probeWork(c *actors.Context, m probeMessage, cfg probeConfig, said *tell) (string, error) {
	run := rand.Text()[:8]
	if !m.Step {
		return run, probeSpan(c.Context(), c, m, cfg, said, run)
	}
	return actors.Step(c, "work", func(s actors.StepContext) (string, error) { return run, probeSpan(s, c, m, cfg, said, run) })
}

// probeCall calls a provider within its quota.
func probeCall(c *actors.Context, url string) (int, error) {
	return actors.Step(c, "call", func(s actors.StepContext) (int, error) {
		req, err := http.NewRequestWithContext(s, http.MethodPost, url, http.NoBody)
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, actors.FromHTTP(resp, resp.Body.Close())
	}, actors.Quota("provider", 1))
}

func probeSpan(ctx context.Context, c *actors.Context, m probeMessage, cfg probeConfig, said *tell, run string) error {
	info := c.Info()
	of := func(event string) map[string]any {
		return map[string]any{"event": event, "task": c.ID(), "unit": info.Unit, "run": run, "attempt": info.Attempt}
	}
	said.say(of("start"))
	var err error
	t := time.NewTimer(time.Duration(m.MS) * time.Millisecond)
	defer t.Stop()
	if m.Deaf {
		<-t.C
		err = context.Cause(ctx)
	} else {
		select {
		case <-t.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	end := of("end")
	end["cause"] = causeName(err)
	said.say(end)
	if m.Deaf {
		return nil // it offers its result all the same
	}
	if err == nil && m.FailIn == cfg.Group && info.Attempt == 1 {
		return actors.Retry(50*time.Millisecond, errors.New("the first attempt fails in this group"))
	}
	return err
}

func causeName(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, actors.ErrLeaseLost):
		return "lease_lost"
	case errors.Is(err, actors.ErrDraining):
		return "draining"
	case errors.Is(err, actors.ErrCancelled):
		return "cancelled"
	default:
		return err.Error()
	}
}

// probeEvent tells what the runtime reports.
func probeEvent(said *tell, e supervision.Event) {
	out := map[string]any{"event": e.Name()}
	switch e := e.(type) {
	case supervision.TaskEnded:
		out["task"], out["unit"], out["outcome"] = e.TaskID, e.Unit, outcomeName(e.Outcome)
	case supervision.LeaseLost:
		out["task"], out["unit"] = e.TaskID, e.Unit
	case supervision.EntryClaimed:
		out["task"], out["unit"] = e.TaskID, e.Unit
	case streambridge.EntryAdopted:
		out["task"], out["unit"] = e.TaskID, e.Unit
	case streambridge.EntryGone:
		out["task"], out["unit"] = e.TaskID, e.Unit
	case supervision.EntryBuried:
		out["task"], out["unit"] = e.TaskID, e.Unit
	case streambridge.ReclaimCalm:
		out["on"] = e.On
	case streambridge.StreamMissed:
		out["count"] = e.Count
	case supervision.TaskBegan, supervision.StepRan:
		return // the agent tells better
	}
	said.say(out)
}

func outcomeName(o messages.Outcome) string { return o.String()[len("OUTCOME_"):] }
