package streambridge

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/weir-run/weir/messages"
)

// BenchmarkWindow is the pure part: arrival, assignment, answer, settlement of one entry.
func BenchmarkWindow(b *testing.B) {
	w := newWindow(1000, 64<<20)
	entries := make([]arrival, 128)
	dones := make([]*messages.Done, 128)
	refs := make([]messages.Ref, 128)
	for i := range entries {
		entries[i] = arrive(i, "task-"+strconv.Itoa(i))
		refs[i] = entries[i].Ref
		dones[i] = &messages.Done{TaskId: entries[i].task.TaskId, Entry: &messages.Entry{Stream: refs[i].Stream, Id: refs[i].ID}, Verdict: 1}
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(entries) {
		w.Step(arrived{entries: entries, bytes: 1280})
		for _, d := range dones {
			w.Step(finished{d})
		}
		w.Step(settled{refs})
	}
}

// endless is a stream that always has entries, as cheap as can be.
type endless struct {
	*fakeStream
	n     int
	acked atomic.Int64
	limit int64
	done  chan struct{}
}

func (e *endless) Read(ctx context.Context, count int, block time.Duration) ([]Entry, error) {
	if int64(e.n) >= e.limit {
		return e.fakeStream.Read(ctx, count, block)
	}
	out := make([]Entry, min(count, int(e.limit)-e.n))
	for i := range out {
		e.n++
		id := strconv.Itoa(e.n)
		out[i] = Entry{
			Ref: messages.Ref{Stream: fakeKey, ID: "1700000000000-" + id}, Deliveries: 1,
			Fields: []messages.Pair{{Name: "task_id", Value: id}, {Name: "type", Value: "noop"}, {Name: "payload", Value: "0123456789"}},
		}
	}
	return out, nil
}

func (e *endless) Ack(_ context.Context, refs []messages.Ref) error {
	if e.acked.Add(int64(len(refs))) == e.limit {
		close(e.done)
	}
	return nil
}

// BenchmarkBridge is everything but the server and the agents: read, decode, assign, answer, acknowledge.
func BenchmarkBridge(b *testing.B) {
	system := quietSystem()
	agents := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		if a, ok := ctx.Message().(*messages.Assign); ok {
			ctx.Respond(ack(a))
		}
	}))
	defer system.Root.Stop(agents)
	e := &endless{fakeStream: newFake(), limit: int64(b.N), done: make(chan struct{})}
	cfg := testConfig(e)
	cfg.Lease, cfg.Beat, cfg.Tick = 0, 0, 0
	bridge, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := bridge.Start(b.Context(), system, agents); err != nil {
		b.Fatal(err)
	}
	<-e.done
	b.StopTimer()
	bridge.Stop()
}

// BenchmarkHeld is what a heartbeat of a node that holds 100,000 entries costs the bridge actor.
func BenchmarkHeld(b *testing.B) {
	w := newWindow(limit(Off), limit(Off))
	for i := range 100_000 {
		a := arrive(i, "task-"+strconv.Itoa(i))
		w.Step(come(a))
	}
	for b.Loop() {
		if len(w.held()) != 100_000 {
			b.Fatal("held")
		}
	}
}
