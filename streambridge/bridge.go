package streambridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/messages"
)

// Bridge takes entries from a stream to the agents of this node, and brings their acknowledgements back. It is used once:
// New, Start, then Drain or Stop.
type Bridge struct {
	cfg Config
	log hclog.Logger

	board   *board
	acker   *acker
	burier  *burier
	postman *postman
	beats   *heartbeat
	reaper  *reaper
	core    *core
	watch   map[Loop]*monitor
	system  *actor.ActorSystem
	pid     *actor.PID
	serving *member // the bridge actor
	reaping *member

	// The loops, each with an end of its own, because they end in an order.
	reading, acking, burying, mailing, beating *loop

	mu    sync.Mutex // guards phase
	phase phase

	failOnce sync.Once
	failure  atomic.Pointer[error]
	failed   chan struct{}
	panics   atomic.Int64
	gate     atomic.Pointer[Gate] // as of the last tick
}

type phase uint8

const (
	fresh phase = iota
	running
	draining
	ended
)

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Bridge, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("streambridge: %w", err)
	}
	b := &Bridge{cfg: cfg, log: cfg.Logger, board: newBoard(), watch: map[Loop]*monitor{}, failed: make(chan struct{})}
	for _, l := range []Loop{LoopRead, LoopBeat, LoopTick, LoopAck, LoopBury, LoopMail} {
		b.watch[l] = &monitor{loop: l, log: b.log, emit: b.emit}
	}
	return b, nil
}

// Start opens the stream, joins the group and begins to read. agents gets *messages.Assign and *messages.Cancel as
// requests, with the bridge's PID as sender, and must answer each Assign with exactly one *messages.Done, also after a
// Cancel. ctx bounds the opening only. After an error nothing runs; ErrConsumerTaken is one of them.
func (b *Bridge) Start(ctx context.Context, system *actor.ActorSystem, agents *actor.PID) error {
	if system == nil || agents == nil {
		return errors.New("streambridge: Start needs an actor system and the agents' PID")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase != fresh {
		return ErrStarted
	}
	in, err := newIntake(b.cfg)
	if err != nil {
		return fmt.Errorf("streambridge: %w", err)
	}
	b.system = system
	b.assemble(in, agents)

	if err := b.cfg.Stream.Open(ctx, b.cfg.Names, b.cfg.Node); err != nil {
		return fmt.Errorf("open stream %q, group %q: %w", b.cfg.Names.Stream, b.cfg.Names.Group, err)
	}
	if err := b.beats.first(ctx); err != nil {
		return errors.Join(err, b.closeStream())
	}
	// Whoever takes starts before whoever gives.
	life := context.WithoutCancel(ctx)
	b.acking = b.loop(life, b.acker.run)
	b.burying = b.loop(life, b.burier.run)
	b.mailing = b.loop(life, b.postman.run)
	b.serving = b.spawn(b.core, b.core.stopped)
	b.pid = b.serving.pid
	b.reaper.bridge = b.pid
	b.beating = b.loop(life, b.beats.run)
	b.reaping = b.spawn(b.reaper, b.reaper.stopped)
	b.reading = b.loop(life, b.reader(in).run)
	b.phase = running
	return nil
}

// assemble makes the parts; nothing runs yet.
func (b *Bridge) assemble(in *intake, agents *actor.PID) {
	cfg, post, timeout := b.cfg, b.post, b.cfg.ioTimeout()
	b.acker = &acker{stream: cfg.Stream, box: newOutbox[messages.Ref](ackCrowd), post: post, monitor: b.watch[LoopAck], timeout: timeout}
	b.burier = &burier{stream: cfg.Stream, box: newOutbox[errand](buryBatch), post: post, monitor: b.watch[LoopBury], timeout: timeout}
	b.postman = &postman{
		upkeep: cfg.Upkeep, box: newOutbox[Mail](mailBatch), post: post, log: b.log, monitor: b.watch[LoopMail], timeout: timeout,
	}
	b.beats = &heartbeat{
		stream: cfg.Stream, held: b.held, post: post, monitor: b.watch[LoopBeat], every: cfg.Beat, lease: cfg.Lease, timeout: timeout,
	}
	b.core = &core{
		bridge: b, window: newWindow(limit(int64(cfg.InFlight)), limit(cfg.InFlightBytes)), agents: agents, stopped: make(chan struct{}),
	}
	b.reaper = &reaper{
		upkeep: cfg.Upkeep, room: b.board.room, in: in, monitor: b.watch[LoopTick], log: b.log, every: cfg.Tick, lease: cfg.Lease,
		timeout: timeout,
		guard:   b.guard, stopped: make(chan struct{}),
		request: TickRequest{MaxDeliveries: cfg.MaxDeliveries, StrayAfter: cfg.strayAfter(), DeadTTL: cfg.keepDead(), Gate: cfg.Gate},
		stuck:   cfg.Stuck,
		gate:    &b.gate,
	}
	b.board.publish(b.core.window)
}

func (b *Bridge) reader(in *intake) *reader {
	return &reader{
		stream: b.cfg.Stream, in: in, board: b.board, post: b.post, monitor: b.watch[LoopRead], log: b.log,
		count: b.cfg.ReadCount, block: b.cfg.Block, patience: b.cfg.ioTimeout(),
	}
}

// Drain leaves the group in good order: it reads nothing more and assigns nothing more, waits until what runs has
// answered or ctx ends, acknowledges what was persisted, gives back the rest so that other nodes take it at once, and
// stops. When ctx ends first, the agents get Cancel with CANCEL_CAUSE_DRAINING, their entries are given back all the
// same, and the error wraps ErrUnfinished. A second call, and one after Stop, does nothing.
//
// Giving back takes up to a few seconds beyond ctx. When the server does not answer, the error says so and the entries
// come back to others a lease later.
func (b *Bridge) Drain(ctx context.Context) error {
	if !b.enter(draining) {
		return nil
	}
	drained := make(chan struct{})
	b.system.Root.Send(b.pid, beginDrain{drained})
	b.reading.stop()
	unfinished := b.settleDown(ctx, drained)

	// ctx may have ended; acknowledging what is persisted and giving back the rest is worth a moment more.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*b.cfg.ioTimeout())
	defer cancel()
	flushed := b.flush(last)
	b.await(b.reaping)
	b.reaper.wait()
	b.beating.stop() // before Release: a beat would make the node live again
	b.acking.stop()
	b.burying.stop()
	b.mailing.stop()
	released := b.release(last)
	b.await(b.serving)
	if !b.enter(ended) {
		return errors.Join(errStopped, unfinished)
	}
	return errors.Join(unfinished, flushed, released, b.closeStream())
}

var errStopped = errors.New("drain: the bridge was stopped meanwhile")

// settleDown waits for the answers to what runs.
func (b *Bridge) settleDown(ctx context.Context, drained <-chan struct{}) error {
	select {
	case <-drained:
		return nil
	case <-b.failed:
		return nil // Err has it; what runs is fenced
	case <-b.core.stopped:
		return nil // by Stop
	case <-ctx.Done():
	}
	left := b.Stats().Running
	b.post(interrupt{})
	return fmt.Errorf("drain: %d entries were given back while they ran: %w", left, ErrUnfinished)
}

func (b *Bridge) flush(ctx context.Context) error {
	select {
	case <-b.failed:
		return nil // the loops have ended
	default:
	}
	if err := errors.Join(b.acker.box.empty(ctx), b.burier.box.empty(ctx), b.postman.box.empty(ctx)); err != nil {
		return fmt.Errorf("drain: %d acknowledgements, %d dead letters and %d messages could not be written: %w",
			b.acker.box.size(), b.burier.box.size(), b.postman.box.size(), err)
	}
	return nil
}

// release gives back everything. After a usurpation there is nothing to give: the name's entries are another's. Nor is
// there after a Stop, which is to be like a crash.
func (b *Bridge) release(ctx context.Context) error {
	b.mu.Lock()
	stopped := b.phase == ended
	b.mu.Unlock()
	if stopped || errors.Is(b.Err(), ErrUsurped) {
		return nil
	}
	held := b.holdings(ctx)
	wait := newBackoff()
	for {
		n, err := b.cfg.Stream.Release(ctx, held)
		if err == nil {
			b.log.Info("left the group", "given_back", n)
			return nil
		}
		if !wait.pause(ctx) {
			return fmt.Errorf("drain: give back what is pending: %w", err)
		}
	}
}

// Stop ends everything at once and gives nothing back, as a crash would: for tests and for hosts that must end now. What
// was held comes to other nodes a lease later. It may be called in any phase and more than once.
func (b *Bridge) Stop() {
	if !b.enter(ended) {
		return
	}
	b.endLoops(context.Canceled)
	b.reading.wait()
	b.await(b.reaping)
	b.reaper.wait()
	b.beating.wait()
	b.burying.wait()
	b.mailing.wait()
	b.acking.wait()
	b.await(b.serving)
	if err := b.closeStream(); err != nil {
		b.log.Warn("the stream did not close well", "error", err)
	}
}

// enter moves to a later phase and reports whether there is anything to do in it.
func (b *Bridge) enter(next phase) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.phase
	b.phase = max(before, next)
	return before != fresh && before < next
}

// PID is the bridge actor's: where agents send *messages.Done. nil before Start.
func (b *Bridge) PID() *actor.PID { return b.pid }

// Failed is closed when the bridge gave up: it takes nothing more and beats no more. Err says why; Drain or Stop must
// still be called.
func (b *Bridge) Failed() <-chan struct{} { return b.failed }

// Err is why the bridge gave up: it wraps ErrUsurped or ErrBroken. nil while it works.
func (b *Bridge) Err() error {
	if p := b.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Health says how the loops fare. It may be called at any time.
func (b *Bridge) Health() Health {
	b.mu.Lock()
	now := b.phase
	b.mu.Unlock()
	_, starved := b.board.read()
	return Health{
		Lease: b.cfg.Lease, Started: now == running, Draining: now == draining, Failed: b.Err(),
		Read: b.watch[LoopRead].read(), Beat: b.watch[LoopBeat].read(), Tick: b.watch[LoopTick].read(),
		Ack: b.watch[LoopAck].read(), Bury: b.watch[LoopBury].read(), Mail: b.watch[LoopMail].read(),
		Full: starved && now == running, Panics: b.panics.Load(), Gate: b.Gate(),
	}
}

// Stats are the counts as of the last event. They may be read at any time.
func (b *Bridge) Stats() Stats {
	stats, _ := b.board.read()
	return stats
}

// Gate is how the group's intake stood at the last tick.
func (b *Bridge) Gate() Gate {
	if g := b.gate.Load(); g != nil {
		return *g
	}
	return Gate{State: GateIsOpen}
}
