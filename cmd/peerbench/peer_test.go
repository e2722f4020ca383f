package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/streambridge/redistest"
)

// Every row drains a small round for real, and leaves nothing running that would handle the next one's tasks.
func TestEveryRowHandlesEachTask(t *testing.T) {
	opts := &redis.Options{Addr: redistest.Start(t).Addr()}
	cfg := config{n: 300, steps: 20, rounds: 2, concurrency: 8}
	rep := newReport(cfg)
	if err := runRounds(t.Context(), cfg, opts, catalogue, rep, io.Discard); err != nil {
		t.Fatal(err)
	}
	rep.summarize()
	if len(rep.Rows) != len(catalogue) {
		t.Fatalf("%d rows in the report, want %d", len(rep.Rows), len(catalogue))
	}
	for _, l := range rep.Rows {
		if len(l.Rounds) != 2 || l.Median <= 0 {
			t.Errorf("%s: %d rounds, median %f", l.Name, len(l.Rounds), l.Median)
		}
		for _, r := range l.Rounds {
			if r.Handled != int64(r.Tasks) || r.Calls < r.Handled || r.Drain <= 0 {
				t.Errorf("%s: %+v", l.Name, r)
			}
		}
	}
	rdb := redis.NewClient(opts)
	defer func() { _ = rdb.Close() }()
	if n := rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// A peer that loses a task must fail the run: a rate over fewer tasks would flatter it.
func TestALostTaskIsAnError(t *testing.T) {
	opts := &redis.Options{Addr: redistest.Start(t).Addr()}
	rows := []row{{"lossy", noop, func(e env) peer { return &fakePeer{env: e, skip: 3} }}}
	err := runRounds(t.Context(), config{n: 5, rounds: 1}, opts, rows, newReport(config{}), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "4 of 5 tasks") {
		t.Errorf("error %v, want one that counts", err)
	}
}

type fakePeer struct {
	env
	n, skip int
}

func (p *fakePeer) Name() string                        { return "fake" }
func (p *fakePeer) Fill(_ context.Context, n int) error { p.n = n; return nil }
func (p *fakePeer) Drain(context.Context) (time.Duration, error) {
	for i := range p.n {
		if i != p.skip {
			_ = p.tally.handle(payload(i))
		}
	}
	return time.Second, nil
}

func TestTally(t *testing.T) {
	ta := newTally(3)
	for _, p := range []string{payload(0), payload(1), payload(1), payload(3), "", "x", payload(2)[:100]} {
		_ = ta.handle(p)
	}
	if d, c, b := ta.distinct.Load(), ta.calls.Load(), ta.bad.Load(); d != 2 || c != 7 || b != 4 {
		t.Errorf("%d different, %d calls, %d bad; want 2, 7, 4", d, c, b)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ta.wait(over, nil); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 of 3") {
		t.Errorf("waiting for the third gave %v", err)
	}
	if err := ta.handle(payload(2)); err != nil {
		t.Error(err)
	}
	looks := 0
	settled := func(context.Context) (bool, error) { looks++; return looks == 3, nil }
	if err := ta.wait(t.Context(), settled); err != nil || looks != 3 {
		t.Errorf("%d looks, error %v", looks, err)
	}
	if len(payload(0)) != payloadSize || len(payload(99_999_999)) != payloadSize {
		t.Errorf("payloads must have %d bytes", payloadSize)
	}
}

func TestReport(t *testing.T) {
	rep := newReport(config{rounds: 3, concurrency: 64})
	for _, rate := range []float64{100, 300, 200} {
		rep.add(row{name: "asynq", workload: noop}, "asynq", round{Tasks: 10, Handled: 10, Calls: 11, PerSec: rate})
		rep.add(row{name: "weir", workload: noop}, "Weir", round{Tasks: 10, Handled: 10, Calls: 10, PerSec: 3 * rate})
		rep.add(row{name: "go-workflows", workload: steps}, "go-workflows", round{Tasks: 1, PerSec: rate})
	}
	rep.summarize()
	if r := rep.Rows[0]; r.Median != 200 || math.Abs(r.WeirRatio-3) > 1e-9 {
		t.Errorf("asynq: median %f and ratio %f, want 200 and 3", r.Median, r.WeirRatio)
	}
	if r := rep.Rows[2]; r.WeirRatio != 0 {
		t.Errorf("a ratio of %f against a Weir that did other work", r.WeirRatio)
	}
	var table bytes.Buffer
	if err := rep.table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 × 10", "100–300", "3.00×", "33", "–\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	file := filepath.Join(t.TempDir(), "results", "a.json")
	if err := rep.write(file); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || !bytes.Contains(b, []byte(`"calls": 11`)) {
		t.Errorf("raw rounds missing from the file: %v", err)
	}
}

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{0: nil, 1: {1}, 1.5: {2, 1}, 2: {3, 1, 2}, 25: {40, 10, 30, 20}} {
		if got := median(v); got != want {
			t.Errorf("median of %v is %f, want %f", v, got, want)
		}
	}
}

func TestWrongUse(t *testing.T) {
	ok := config{n: 1, steps: 1, rounds: 1, concurrency: 1}
	for name, change := range map[string]func(*config){
		"-n":    func(c *config) { c.n = 0 },
		"-only": func(c *config) { c.only = "asynq,nobody" },
	} {
		c := ok
		change(&c)
		if _, err := c.rows(); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ok.only = "watermill, asynq"
	if rows, err := ok.rows(); err != nil || len(rows) != 2 || rows[0].name != "watermill" {
		t.Errorf("rows %v, error %v", rows, err)
	}

	// Somebody's data is not emptied.
	srv := redistest.Start(t)
	if err := srv.Client().Set(t.Context(), "theirs", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	ok.redisURL = srv.URL()
	if _, _, err := ok.redis(t.Context()); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "1 keys") {
		t.Errorf("a Redis in use: %v", err)
	}
}
