package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/cmd/weir/internal/bench/floor"
)

// Options say what is measured. All fields are needed.
type Options struct {
	// Tasks a round of the floor and of no-op tasks; three-step tasks are a quarter of it.
	Tasks int
	// Payload of each no-op task in bytes.
	Payload int
	// Rounds that are run; medians are taken over them.
	Rounds int
	// InFlight is how many entries Weir holds at once.
	InFlight int
	// Wakes is how many latencies a round measures.
	Wakes int
	// Progress is told what runs, a line at a time.
	Progress func(line string)
}

// Validate names the option that cannot be.
func (o Options) Validate() error {
	for _, f := range []struct {
		name       string
		value, min int
	}{{"tasks", o.Tasks, 4}, {"payload", o.Payload, 0}, {"rounds", o.Rounds, 1}, {"in-flight", o.InFlight, 1}, {"wakes", o.Wakes, 1}} {
		if f.value < f.min {
			return fmt.Errorf("%s (%d) must be at least %d", f.name, f.value, f.min)
		}
	}
	return nil
}

// Rate is tasks a second, the median of its rounds.
type Rate struct {
	Median float64   `json:"median"`
	Rounds []float64 `json:"rounds"`
	// OfFloor is the median of the rounds' ratios to the floor.
	OfFloor float64 `json:"of_floor"`
}

// Latencies are the medians of the rounds' percentiles.
type Latencies struct {
	N   int           `json:"n"`
	P50 time.Duration `json:"p50_ns"`
	P90 time.Duration `json:"p90_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

// Report is what a run measured.
type Report struct {
	At       time.Time `json:"at"`
	Redis    string    `json:"redis_version"`
	CPUs     int       `json:"cpus"`
	Go       string    `json:"go"`
	Tasks    int       `json:"tasks"`
	Payload  int       `json:"payload_bytes"`
	Rounds   int       `json:"rounds"`
	InFlight int       `json:"in_flight"`

	Floor Rate `json:"floor"`
	Noop  Rate `json:"noop"`
	Steps Rate `json:"three_steps"`
	// Bare is a blocked XREADGROUP that returns, Start is XADD → handler start.
	Bare  Latencies `json:"bare_wake"`
	Start Latencies `json:"handler_start"`
}

// Run measures. It works on streams of its own and removes them.
func Run(ctx context.Context, rdb *redis.Client, o Options) (Report, error) {
	rep := Report{
		At: time.Now().UTC(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Tasks: o.Tasks, Payload: o.Payload,
		Rounds: o.Rounds, InFlight: o.InFlight,
	}
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return rep, err
	}
	rep.Redis = info["Server"]["redis_version"]
	payload := make([]byte, o.Payload)
	for i := range payload {
		payload[i] = 'x'
	}
	noop := work{kind: "noop", n: o.Tasks, payload: payload, inFlight: o.InFlight}
	steps := work{kind: "steps", n: o.Tasks / 4, payload: []byte(`{"n":3,"sleep_ms":0}`), inFlight: o.InFlight}
	var noopOf, stepsOf []float64
	var bare, start []floor.Latency
	for round := range o.Rounds {
		say := func(what string, rate float64) {
			o.Progress(fmt.Sprintf("round %d of %d: %s %.0f/s", round+1, o.Rounds, what, rate))
		}
		base, err := floor.Run(ctx, rdb, o.Tasks, payload)
		if err != nil {
			return rep, err
		}
		say("floor", base.Rate())
		rate, err := drain(ctx, rdb, noop)
		if err != nil {
			return rep, err
		}
		say("no-op tasks", rate)
		stepRate, err := drain(ctx, rdb, steps)
		if err != nil {
			return rep, err
		}
		say("three-step tasks", stepRate)
		wake, err := floor.Wake(ctx, rdb, o.Wakes)
		if err != nil {
			return rep, err
		}
		lat, err := handlerStart(ctx, rdb, o.Wakes)
		if err != nil {
			return rep, err
		}
		rep.Floor.Rounds = append(rep.Floor.Rounds, base.Rate())
		rep.Noop.Rounds = append(rep.Noop.Rounds, rate)
		rep.Steps.Rounds = append(rep.Steps.Rounds, stepRate)
		noopOf = append(noopOf, rate/base.Rate())
		stepsOf = append(stepsOf, stepRate/base.Rate())
		bare, start = append(bare, wake), append(start, lat)
	}
	rep.Floor.Median, rep.Floor.OfFloor = median(rep.Floor.Rounds), 1
	rep.Noop.Median, rep.Noop.OfFloor = median(rep.Noop.Rounds), median(noopOf)
	rep.Steps.Median, rep.Steps.OfFloor = median(rep.Steps.Rounds), median(stepsOf)
	rep.Bare, rep.Start = medians(bare), medians(start)
	return rep, nil
}

// median of values that are there; the mean of the middle two of an even number.
func median[T float64 | time.Duration](values []T) T {
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

func medians(rounds []floor.Latency) Latencies {
	pick := func(of func(floor.Latency) time.Duration) time.Duration {
		all := make([]time.Duration, len(rounds))
		for i, r := range rounds {
			all[i] = of(r)
		}
		return median(all)
	}
	l := Latencies{
		P50: pick(func(l floor.Latency) time.Duration { return l.P50 }),
		P90: pick(func(l floor.Latency) time.Duration { return l.P90 }),
		P99: pick(func(l floor.Latency) time.Duration { return l.P99 }),
		Max: pick(func(l floor.Latency) time.Duration { return l.Max }),
	}
	for _, r := range rounds {
		l.N += r.N
	}
	return l
}
