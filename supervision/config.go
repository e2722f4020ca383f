package supervision

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/streambridge"
)

// Stream is a whole stream adapter: redisstream and memstream are.
type Stream interface {
	streambridge.Stream
	streambridge.Upkeep
}

// Keep says how long records outlive their task. Zero means the default.
type Keep struct {
	// Succeeded tasks: default 24 h. At least ten leases: the record is how a node that takes over an entry
	// whose acknowledgement was lost knows that its work is done.
	Succeeded time.Duration
	// Failed and cancelled tasks: default 7 days; failed ones at least as long as their dead letters: a retry goes on from
	// the record's checkpoints.
	Failed time.Duration
	// Dead letters: default 30 days.
	Dead time.Duration
	// Index lists SUCCEEDED units by state too, at the price of one more write a task. Default off.
	Index bool
}

// Concurrency limits how many units run at once: handlers that have begun and not returned. What finds no slot waits; see
// actors.Limit. 0 and −1 are no limit.
type Concurrency struct {
	// Group is for all nodes of the group together. All of them should have the same.
	Group int
	// Node is for this node alone. What waits for it here holds its entry, within InFlight.
	Node int
}

// Gate has the limits of a group's intake; see streambridge.GateLimits.
type Gate = streambridge.GateLimits

// Rate is what a provider allows; see actors.Quota.
type Rate = actors.Rate

// Config describes a runtime. Zero means the default everywhere, −1 switches off what can be switched off.
type Config struct {
	// Stream and State are the adapters: redisstream.New(rdb) and redisstate.New(rdb), or memstream and memstate.
	// Each is used by one runtime. The runtime closes neither the client behind them nor the server.
	Stream Stream
	State  actors.State
	// Names of stream, group and consumer, and of the entry's fields. Consumer defaults to host name and process id.
	Names actors.Names
	// Agents by type. A runtime without any only claims, buries and trims.
	Agents actors.Agents
	// Schedules that this node declares; see package schedule. One that is broken is reported, by a ScheduleBroken event and
	// in the log, and stops none of the others.
	Schedules []schedule.Schedule

	// Lease is how long a silent node keeps what it holds. Default 15 s, at least 3 beats.
	Lease time.Duration
	// Beat is how often the node renews what it holds. Default 5 s, a third of a Lease shorter than 15 s.
	Beat time.Duration
	// Tick is the clock of the reaper, the due retries and the trimming. Default 1 s, a third of a Lease shorter than 3 s.
	Tick time.Duration
	// InFlight is how many entries the node holds at once. Default 1,000.
	InFlight int
	// InFlightBytes is how many bytes of entries it holds at once. Default 64 MiB.
	InFlightBytes int64
	// MaxPayload is the largest payload in bytes. Default 1 MiB.
	MaxPayload int
	// MaxResult is the largest result of a step or a handler in bytes. Default 1 MiB.
	MaxResult int
	// MaxDeliveries is how often an entry may be handed out without being begun. Default 3.
	MaxDeliveries int64
	// Concurrency limits how many units run at once. Default none; see actors.Limit for limits of an agent's own.
	Concurrency Concurrency
	// Gate has the limits beyond which Submit is refused until the group has caught up.
	Gate Gate
	// Quotas are the token buckets that steps take from (actors.Quota), by name: what all nodes of the group together may
	// ask of a provider. Give all nodes the same. Default none.
	Quotas map[string]Rate
	// Restarts of crashed agent actors.
	Restarts Restarts
	// Grace is how long running work may go on after the runtime was told to stop. Default 30 s; −1 gives none.
	Grace time.Duration
	// Keep says how long records outlive their task.
	Keep Keep
	// Logger gets static messages with key/value pairs, never a payload. Default: no log; see Slog.
	Logger hclog.Logger
}

// WithDefaults returns a copy in which every zero has its default.
func (c Config) WithDefaults() Config {
	c.Names = c.Names.WithDefaults()
	if c.Names.Consumer == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "weir"
		}
		c.Names.Consumer = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Beat = cmp.Or(c.Beat, min(5*time.Second, c.Lease/3))
	c.Tick = cmp.Or(c.Tick, min(time.Second, c.Lease/3))
	c.InFlight = cmp.Or(c.InFlight, 1000)
	c.InFlightBytes = cmp.Or(c.InFlightBytes, 64<<20)
	c.MaxPayload = cmp.Or(c.MaxPayload, 1<<20)
	c.MaxResult = cmp.Or(c.MaxResult, 1<<20)
	c.MaxDeliveries = cmp.Or(c.MaxDeliveries, 3)
	c.Restarts.Max = cmp.Or(c.Restarts.Max, 3)
	c.Restarts.Within = cmp.Or(c.Restarts.Within, time.Minute)
	c.Restarts.Base = cmp.Or(c.Restarts.Base, 100*time.Millisecond)
	c.Restarts.Cap = cmp.Or(c.Restarts.Cap, max(5*time.Second, c.Restarts.Base))
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.Gate = c.Gate.WithDefaults()
	c.Keep.Succeeded = cmp.Or(c.Keep.Succeeded, 24*time.Hour)
	c.Keep.Failed = cmp.Or(c.Keep.Failed, 7*24*time.Hour)
	c.Keep.Dead = cmp.Or(c.Keep.Dead, 30*24*time.Hour)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate names every field that cannot work, with its value and the one it clashes with. It changes nothing.
// Call it on a config that has its defaults.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Stream == nil {
		bad("Stream must be set: redisstream.New(client), or memstream.New()")
	}
	if c.State == nil {
		bad("State must be set: redisstate.New(client), or memstate.New(stream)")
	}
	if _, ok := c.State.(actors.ScheduleDesk); c.State != nil && len(c.Schedules) > 0 && !ok {
		bad("Schedules (%d) need a State that keeps schedules, which %T does not", len(c.Schedules), c.State)
	}
	if err := c.Names.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Agents.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("Agents: %w", err))
	}
	if c.Concurrency.Group < -1 || c.Concurrency.Node < -1 {
		bad("Concurrency.Group (%d) and Concurrency.Node (%d) must be at least 1, or -1 for no limit", c.Concurrency.Group, c.Concurrency.Node)
	}
	if err := c.Gate.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := actors.ValidateQuotas(c.Quotas); err != nil {
		errs = append(errs, fmt.Errorf("Quotas: %w", err))
	}
	for _, name := range c.Agents.Types() {
		for _, bucket := range c.Agents[name].Buckets() {
			if _, ok := c.Quotas[bucket]; !ok {
				bad("Quotas has no %q, which agent %q needs", bucket, name)
			}
		}
	}
	if c.Beat < 10*time.Millisecond {
		bad("Beat (%s) must be at least 10ms", c.Beat)
	}
	if c.Lease < 3*c.Beat {
		bad("Lease (%s) must be at least 3×Beat (%s)", c.Lease, c.Beat)
	}
	if c.Tick < 10*time.Millisecond {
		bad("Tick (%s) must be at least 10ms", c.Tick)
	}
	if c.Tick > c.Lease/2 {
		bad("Tick (%s) must be at most half of Lease (%s)", c.Tick, c.Lease)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"InFlight", int64(c.InFlight)},
		{"InFlightBytes", c.InFlightBytes},
		{"MaxPayload", int64(c.MaxPayload)},
		{"MaxResult", int64(c.MaxResult)},
	} {
		if f.value < 1 {
			bad("%s (%d) must be at least 1", f.name, f.value)
		}
	}
	if int64(c.MaxPayload) > c.InFlightBytes {
		bad("MaxPayload (%d) must be at most InFlightBytes (%d)", c.MaxPayload, c.InFlightBytes)
	}
	if c.MaxDeliveries < -1 {
		bad("MaxDeliveries (%d) must be at least 1, or -1 for no limit", c.MaxDeliveries)
	}
	if c.Restarts.Max < -1 || c.Restarts.Within <= 0 {
		bad("Restarts.Max (%d) must be at least -1 and Restarts.Within (%s) above 0", c.Restarts.Max, c.Restarts.Within)
	}
	if c.Restarts.Base <= 0 || c.Restarts.Cap < c.Restarts.Base {
		bad("Restarts.Cap (%s) must be at least Restarts.Base (%s), and both above 0", c.Restarts.Cap, c.Restarts.Base)
	}
	if c.Keep.Succeeded < 0 || c.Keep.Failed < 0 || c.Keep.Dead < 0 {
		bad("Keep (%s, %s, %s) must not be negative", c.Keep.Succeeded, c.Keep.Failed, c.Keep.Dead)
	}
	if c.Keep.Succeeded >= 0 && c.Keep.Succeeded < 10*c.Lease {
		bad("Keep.Succeeded (%s) must be at least 10×Lease (%s)", c.Keep.Succeeded, c.Lease)
	}
	return errors.Join(errs...)
}
