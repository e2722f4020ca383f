package streambridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

const fakeKey = "agent:tasks"

// fakeStream is a stream in memory with one pending list and a switch for everything that can go wrong.
type fakeStream struct {
	mu       sync.Mutex
	seq      int
	fresh    []Entry
	pending  map[messages.Ref]Entry
	orphans  []Entry // what the next ticks claim
	lost     []messages.Ref
	gone     []messages.Ref
	stopped  []Cancelled
	usurped  bool
	down     error
	readErr  error // once
	wake     chan struct{}
	reads    int
	maxHeld  int
	beats    int
	ticks    int
	acked    []messages.Ref
	buried   []Burial
	moved    map[string][]messages.Ref
	mail     []Mail // delivered
	released int
	left     []Held
	closed   bool
	buryErr  func(Burial) error
	mailErr  func(Mail) error
	receipt  func(Mail) messages.Receipt
	ackErr   func() error
	beatErr  func() error
	tick     func(TickRequest, *Tick)
}

func newFake() *fakeStream {
	return &fakeStream{pending: map[messages.Ref]Entry{}, wake: make(chan struct{}, 1), moved: map[string][]messages.Ref{}}
}

func (f *fakeStream) entry(fields ...string) Entry {
	f.seq++
	e := Entry{Ref: messages.Ref{Stream: fakeKey, ID: "1700000000000-" + strconv.Itoa(f.seq)}, Deliveries: 1}
	for i := 0; i < len(fields); i += 2 {
		e.Fields = append(e.Fields, messages.Pair{Name: fields[i], Value: fields[i+1]})
	}
	return e
}

// add makes new entries, one a task id.
func (f *fakeStream) add(ids ...string) {
	for _, id := range ids {
		f.addFields("task_id", id, "type", "noop", "payload", "{}")
	}
}

func (f *fakeStream) addFields(fields ...string) {
	f.mu.Lock()
	f.fresh = append(f.fresh, f.entry(fields...))
	f.mu.Unlock()
	signal(f.wake)
}

// with runs do under the fake's lock.
func (f *fakeStream) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeStream) Open(context.Context, messages.Names, messages.Node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

func (f *fakeStream) Read(ctx context.Context, count int, block time.Duration) ([]Entry, error) {
	deadline := time.NewTimer(block)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		f.reads++
		if err := errors.Join(f.down, f.readErr); err != nil {
			f.readErr = nil
			f.mu.Unlock()
			return nil, err
		}
		if n := min(count, len(f.fresh)); n > 0 {
			batch := slices.Clone(f.fresh[:n])
			f.fresh = f.fresh[n:]
			for _, e := range batch {
				f.pending[e.Ref] = e
			}
			f.maxHeld = max(f.maxHeld, len(f.pending))
			f.mu.Unlock()
			return batch, nil
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil
		case <-deadline.C:
			return nil, nil
		case <-f.wake:
		}
	}
}

func (f *fakeStream) Ack(_ context.Context, refs []messages.Ref) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ackErr != nil {
		if err := f.ackErr(); err != nil {
			return err
		}
	}
	if f.down != nil {
		return f.down
	}
	for _, ref := range refs {
		if _, ok := f.pending[ref]; ok {
			delete(f.pending, ref)
			f.acked = append(f.acked, ref)
		}
	}
	return nil
}

func (f *fakeStream) Beat(context.Context, []Held) (Beat, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.beats++
	if f.beatErr != nil {
		if err := f.beatErr(); err != nil {
			return Beat{}, err
		}
	}
	if f.down != nil {
		return Beat{}, f.down
	}
	answer := Beat{Lost: f.lost, Gone: f.gone, Cancelled: f.stopped, Usurped: f.usurped}
	f.lost, f.gone = nil, nil
	return answer, nil
}

func (f *fakeStream) Bury(_ context.Context, dead []Burial) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.down
	}
	for _, d := range dead {
		if f.buryErr != nil {
			if err := f.buryErr(d); err != nil {
				return err
			}
		}
		if _, ok := f.pending[d.Ref]; ok {
			delete(f.pending, d.Ref)
			f.buried = append(f.buried, d)
		}
	}
	return nil
}

func (f *fakeStream) Move(_ context.Context, agent string, entries []Held) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.down
	}
	for _, e := range entries {
		if _, ok := f.pending[e.Ref]; ok {
			delete(f.pending, e.Ref)
			f.moved[agent] = append(f.moved[agent], e.Ref)
		}
	}
	return nil
}

func (f *fakeStream) Deliver(_ context.Context, mail []Mail) (receipts []messages.Receipt, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	for _, m := range mail {
		if f.mailErr != nil {
			if err := f.mailErr(m); err != nil {
				return receipts, err
			}
		}
		receipt := messages.NotPending
		if _, ok := f.pending[m.Ref]; ok {
			delete(f.pending, m.Ref)
			f.mail = append(f.mail, m)
			receipt = messages.Taken
			if f.receipt != nil {
				receipt = f.receipt(m)
			}
		}
		receipts = append(receipts, receipt)
	}
	return receipts, nil
}

func (f *fakeStream) Release(_ context.Context, held []Held) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return 0, f.down
	}
	f.released++
	f.left = slices.Clone(held)
	n := len(f.pending)
	f.fresh = nil
	return n, nil
}

func (f *fakeStream) Tick(_ context.Context, req TickRequest) (Tick, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ticks++
	if f.down != nil {
		return Tick{}, f.down
	}
	var t Tick
	n := min(req.Room, len(f.orphans))
	for _, e := range f.orphans[:n] {
		e.Deliveries++
		f.pending[e.Ref] = e
		t.Claimed = append(t.Claimed, e)
	}
	f.orphans = f.orphans[n:]
	t.More = len(f.orphans) > 0
	if f.tick != nil {
		f.tick(req, &t)
	}
	return t, nil
}

// straysAll reports everything that is pending as a stray, as a sweep long after the last beat would.
func (f *fakeStream) straysAll(_ TickRequest, t *Tick) {
	for _, e := range f.pending {
		t.Strays = append(t.Strays, e)
	}
}

func (f *fakeStream) Status(context.Context) (Status, error) { return Status{}, nil }

func (f *fakeStream) Letters(context.Context, string, int) ([]*messages.DeadLetter, error) {
	return nil, nil
}

func (f *fakeStream) Letter(context.Context, string) (*messages.DeadLetter, error) {
	return nil, ErrNoLetter
}

func (f *fakeStream) Settle(context.Context, string, Settlement) error { return nil }

func (f *fakeStream) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

var (
	_ Stream    = (*fakeStream)(nil)
	_ Upkeep    = (*fakeStream)(nil)
	_ io.Closer = (*fakeStream)(nil)
)

// rig is a bridge on a fake stream with an agents actor that the test controls.
type rig struct {
	*testing.T
	*fakeStream
	bridge *Bridge
	system *actor.ActorSystem
	agents *actor.PID

	mu        sync.Mutex
	assigned  []*messages.Assign
	cancelled []*messages.Cancel
	events    []Event
	// answer is the verdict at once; nil leaves assignments to the test.
	answer func(*messages.Assign) *messages.Done
}

func ack(a *messages.Assign) *messages.Done { return verdict(a, messages.Verdict_VERDICT_ACK) }

func verdict(a *messages.Assign, v messages.Verdict) *messages.Done {
	return &messages.Done{TaskId: a.Task.TaskId, Entry: a.Entry, Verdict: v}
}

func (r *rig) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *messages.Assign:
		r.mu.Lock()
		r.assigned = append(r.assigned, m)
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			if d := answer(m); d != nil {
				ctx.Respond(d)
			}
		}
	case *messages.Cancel:
		r.mu.Lock()
		r.cancelled = append(r.cancelled, m)
		r.mu.Unlock()
	}
}

func quietSystem() *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithDeadLetterThrottleInterval(10*time.Millisecond), // its goroutine ends before goleak looks
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
	)
}

func testConfig(s Stream) Config {
	return Config{
		Stream: s,
		Node:   messages.Node{Incarnation: "00000000000000aa", Consumer: "me", Types: []string{"noop"}},
		Lease:  300 * time.Millisecond, Beat: 50 * time.Millisecond, Tick: 20 * time.Millisecond, Block: 50 * time.Millisecond,
	}
}

// start makes a running bridge; change may alter its configuration.
func start(t *testing.T, answer func(*messages.Assign) *messages.Done, change func(*Config)) *rig {
	t.Helper()
	r := &rig{T: t, fakeStream: newFake(), system: quietSystem(), answer: answer}
	cfg := testConfig(r.fakeStream)
	cfg.Events = func(e Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, e)
	}
	if change != nil {
		change(&cfg)
	}
	r.agents = r.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return r }))
	b, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context(), r.system, r.agents))
	r.bridge = b
	t.Cleanup(func() {
		b.Stop()
		r.system.Root.Stop(r.agents)
	})
	return r
}

// eventually waits for an event; the machine may be slow.
func (r *rig) eventually(ok func() bool, what string, args ...any) {
	r.Helper()
	if !assert.Eventually(r.T, ok, 10*time.Second, 2*time.Millisecond, append([]any{what}, args...)...) {
		r.fakeStream.mu.Lock()
		defer r.fakeStream.mu.Unlock()
		r.Fatalf("stats %+v, fake pending %d, acked %d", r.bridge.Stats(), len(r.pending), len(r.acked))
	}
}

func (r *rig) assigns() []*messages.Assign {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.assigned)
}

func (r *rig) cancels() []*messages.Cancel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.cancelled)
}

// saw reports whether an event of that name came.
func (r *rig) saw(name string) bool { return r.count(name) > 0 }

func (r *rig) happened() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *rig) count(name string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Name() == name {
			n++
		}
	}
	return n
}

func (r *rig) done(d *messages.Done) { r.system.Root.Send(r.bridge.PID(), d) }

func (r *rig) empty() bool {
	r.fakeStream.mu.Lock()
	n := len(r.pending) + len(r.fresh) + len(r.orphans)
	r.fakeStream.mu.Unlock()
	return n == 0 && r.bridge.Stats().InFlight == 0
}

func ids(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("t%d", i)
	}
	return out
}
