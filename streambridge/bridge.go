package streambridge

import (
	"context"
	"fmt"

	"github.com/asynkron/protoactor-go/actor"
)

// Bridge takes entries from a stream to the agents of this node.
type Bridge struct {
	cfg Config
	pid *actor.PID
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Bridge, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("streambridge: %w", err)
	}
	return &Bridge{cfg: cfg}, nil
}

// Start opens the stream and starts to read.
func (b *Bridge) Start(ctx context.Context, system *actor.ActorSystem, agents *actor.PID) error {
	return nil
}

// PID of the bridge actor: where agents send *messages.Done.
func (b *Bridge) PID() *actor.PID { return b.pid }

// Failed is closed when the bridge gave up: Err says why.
func (b *Bridge) Failed() <-chan struct{} { return nil }

// Err says why Failed was closed; nil while it is open.
func (b *Bridge) Err() error { return nil }

// Drain leaves the group in good order.
func (b *Bridge) Drain(ctx context.Context) error { return nil }

// Stop is a hard stop.
func (b *Bridge) Stop() {}

// Health of the loops.
func (b *Bridge) Health() Health { return Health{} }

// Stats of the window.
func (b *Bridge) Stats() Stats { return Stats{} }
