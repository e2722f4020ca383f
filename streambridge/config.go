package streambridge

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/messages"
)

// What a field of Config gets when it is zero.
const (
	DefaultLease         = 15 * time.Second
	DefaultBeat          = 5 * time.Second
	DefaultTick          = time.Second
	DefaultInFlight      = 1000
	DefaultInFlightBytes = 64 << 20
	DefaultReadCount     = 128
	DefaultBlock         = 2 * time.Second
	DefaultMaxDeliveries = 3
	DefaultDeadTTL       = 30 * 24 * time.Hour
)

// Off switches a limit of Config off, where its field says so.
const Off = -1

const (
	// maxReadCount bounds the work that one read puts on the reader's goroutine; larger batches gain nothing (measured).
	maxReadCount = 128
	// maxBlock is how long a reader may keep Drain waiting when the server does not answer the request to unblock it.
	maxBlock = 2 * time.Second
	// forever stands for a time to live that is switched off. Milliseconds of it fit a script's number.
	forever = 100 * 365 * 24 * time.Hour
)

// Config says what a Bridge reads and within which limits. Zero means the default; Off (−1), where the field says so,
// means none.
type Config struct {
	// Stream is where entries come from. Required.
	Stream Stream
	// Upkeep is the same stream's upkeep. Default: Stream, when it is an Upkeep too.
	Upkeep Upkeep
	// Names of stream, group and fields. Names.Consumer is not used here; Node.Consumer is.
	Names messages.Names
	// Node is this incarnation. Incarnation, Consumer and Types are required; Lease and Beat are set from the two below.
	Node messages.Node

	// Lease is how long a silent node keeps its entries. Default Node.Lease, else 15 s. At least three times Beat.
	Lease time.Duration
	// Beat is how often what is held is renewed. Default Node.Beat, else 5 s.
	Beat time.Duration
	// Tick is how often upkeep runs: reap, promote, sweep, trim. Default 1 s.
	Tick time.Duration

	// InFlight is how many entries may be held at once, from their reading until their acknowledgement is confirmed.
	// Default 1,000; Off: no limit. Claims may go over it by an eighth, so that a full window does not keep dead nodes'
	// entries waiting.
	InFlight int
	// InFlightBytes is the same in bytes of field names and values. Default 64 MiB; Off: no limit. It can be passed by
	// what one read brings, because a stream does not say how large its next entries are.
	InFlightBytes int64
	// MaxPayload is the largest payload in bytes; a larger one is a dead letter. Default 1 MiB; Off: no limit.
	MaxPayload int
	// ReadCount is how many entries one read asks for at most. Default and maximum 128.
	ReadCount int
	// Block is how long a read waits for the first entry. Default and maximum 2 s; at least 1 ms, because less would wait
	// for ever.
	Block time.Duration
	// MaxDeliveries is how often an entry may be handed out without ever being begun. Default 3; Off: no limit.
	MaxDeliveries int64
	// DeadTTL is how long dead letters are kept. Default 30 days; Off: for ever.
	DeadTTL time.Duration
	// Gate has the limits of intake.
	Gate GateLimits
	// HashIdentity derives the id of an entry without task_id and event_id from its content; see messages.DecodeOptions.
	HashIdentity bool

	// Decode makes a task of an entry's fields. Default messages.Decode. It is called on the reader's and the reaper's
	// goroutines; an error that is no *messages.DecodeError, and a panic, count as REASON_UNDECODABLE.
	Decode func(fields []messages.Pair, from messages.Ref, opts messages.DecodeOptions) (task *messages.Task, wake uint64, err error)

	// Stuck counts the steps and handlers that run on after their timeout, for the status of the group. Default: none.
	Stuck func() int64

	// Logger gets what an operator should know; never a payload. Default: none.
	Logger hclog.Logger
	// Events gets every lifecycle event, from several goroutines and from inside the bridge actor: it may only enqueue.
	// Default: none.
	Events func(Event)
	// Dispatcher runs the mailboxes of the bridge's own actors. Default: protoactor's. A simulation injects its own.
	Dispatcher actor.Dispatcher
}

// WithDefaults returns a copy in which every zero field has its default.
func (c Config) WithDefaults() Config {
	if up, ok := c.Stream.(Upkeep); ok && c.Upkeep == nil {
		c.Upkeep = up
	}
	c.Names = c.Names.WithDefaults()
	c.Lease = cmp.Or(c.Lease, c.Node.Lease, DefaultLease)
	c.Beat = cmp.Or(c.Beat, c.Node.Beat, DefaultBeat)
	c.Node.Lease, c.Node.Beat = c.Lease, c.Beat
	c.Tick = cmp.Or(c.Tick, DefaultTick)
	c.InFlight = cmp.Or(c.InFlight, DefaultInFlight)
	c.InFlightBytes = cmp.Or(c.InFlightBytes, DefaultInFlightBytes)
	c.MaxPayload = cmp.Or(c.MaxPayload, messages.DefaultMaxPayload)
	c.ReadCount = cmp.Or(c.ReadCount, DefaultReadCount)
	c.Block = cmp.Or(c.Block, DefaultBlock)
	c.MaxDeliveries = cmp.Or(c.MaxDeliveries, DefaultMaxDeliveries)
	c.DeadTTL = cmp.Or(c.DeadTTL, DefaultDeadTTL)
	c.Gate = c.Gate.WithDefaults()
	if c.Decode == nil {
		c.Decode = messages.Decode
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Validate names the first field that cannot be used, and its value. It changes nothing and expects WithDefaults to have
// been applied.
func (c Config) Validate() error {
	switch {
	case c.Stream == nil:
		return errors.New("Stream must be set")
	case c.Upkeep == nil:
		return errors.New("Upkeep must be set, because Stream is no Upkeep itself")
	case c.Node.Incarnation == "":
		return errors.New("Node.Incarnation must not be empty")
	case c.Node.Consumer == "":
		return errors.New("Node.Consumer must not be empty")
	}
	if err := c.Names.Validate(); err != nil {
		return err
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"Lease", c.Lease}, {"Beat", c.Beat}, {"Tick", c.Tick}, {"Block", c.Block}} {
		if d.value < time.Millisecond {
			return fmt.Errorf("%s (%v) must be at least 1ms", d.field, d.value)
		}
	}
	if c.Lease < 3*c.Beat {
		return fmt.Errorf("Lease (%v) must be at least 3×Beat (%v)", c.Lease, c.Beat)
	}
	if c.Tick > c.Lease/2 {
		return fmt.Errorf("Tick (%v) must be at most half of Lease (%v): a longer silence counts as an outage", c.Tick, c.Lease)
	}
	if c.Block > maxBlock {
		return fmt.Errorf("Block (%v) must be at most %v", c.Block, maxBlock)
	}
	if c.ReadCount < 1 || c.ReadCount > maxReadCount {
		return fmt.Errorf("ReadCount (%d) must be 1 to %d", c.ReadCount, maxReadCount)
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"InFlight", int64(c.InFlight)},
		{"InFlightBytes", c.InFlightBytes},
		{"MaxPayload", int64(c.MaxPayload)},
		{"MaxDeliveries", c.MaxDeliveries},
		{"DeadTTL", int64(c.DeadTTL)},
	} {
		if n.value < Off {
			return fmt.Errorf("%s (%d) must be positive, 0 for the default or -1 for none", n.field, n.value)
		}
	}
	if err := c.Gate.Validate(); err != nil {
		return err
	}
	if c.DeadTTL != Off && c.DeadTTL < time.Millisecond {
		return fmt.Errorf("DeadTTL (%v) must be at least 1ms", c.DeadTTL)
	}
	return nil
}

// strayAfter is how long an own entry must have been idle before the sweep may report it: longer than any entry that
// the heartbeat renews.
func (c Config) strayAfter() time.Duration { return c.Beat + c.Beat/2 }

// ioTimeout bounds one call to the server, so that a connection into nowhere shows within a lease.
func (c Config) ioTimeout() time.Duration { return min(max(c.Lease/3, time.Second), 10*time.Second) }

// keepDead is DeadTTL as the stream gets it.
func (c Config) keepDead() time.Duration {
	if c.DeadTTL == Off {
		return forever
	}
	return c.DeadTTL
}

// limit is a number as the window gets it: Off is more than ever comes, and small enough to be added to.
func limit(n int64) int64 {
	if n == Off {
		return math.MaxInt64 / 4
	}
	return n
}
