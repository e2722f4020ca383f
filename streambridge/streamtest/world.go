package streamtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var tests = slices.Concat(readTests, beatTests, tickTests, gateTests, limitTests, reapTests, lossTests, deskTests, laterTests)

type test struct {
	name string
	run  func(w *world)
}

// patience is how long a test waits, in real time, for what must happen.
const patience = 30 * time.Second

// world is what a test works with.
type world struct {
	*testing.T
	Fixture
}

// node is one process in the group.
type node struct {
	Stream
	Node messages.Node
	w    *world
}

func (w *world) node(consumer string, types ...string) messages.Node {
	if types == nil {
		types = []string{"t"}
	}
	return messages.Node{
		Incarnation: fmt.Sprintf("%016x", rand.Uint64()), Consumer: consumer, Types: types,
		Lease: Lease, Beat: Lease / 3, Host: "host", PID: 1,
	}
}

// open opens a node that must be let in.
func (w *world) open(consumer string, types ...string) *node {
	w.Helper()
	n := &node{Stream: w.New(), Node: w.node(consumer, types...), w: w}
	require.NoError(w, n.Open(w.ctx(), w.Names(), n.Node))
	return n
}

// ctx ends when the test has run for too long.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), patience)
	w.Cleanup(cancel)
	return ctx
}

// add appends n entries of tasks t1, t2, … to the public stream.
func (w *world) add(n int) (ids []string) {
	w.Helper()
	for i := range n {
		ids = append(ids, w.Add(task(fmt.Sprint("t", i+1))...))
	}
	return ids
}

func task(id string) []messages.Pair {
	return []messages.Pair{{Name: "task_id", Value: id}, {Name: "type", Value: "t"}, {Name: "payload", Value: "work of " + id}}
}

// live makes d pass while the nodes tick, and beat for what they hold.
func (w *world) live(d time.Duration, nodes map[*node][]streambridge.Held) {
	w.Helper()
	const step = Lease / 4
	for d > 0 {
		w.Pass(min(d, step))
		d -= step
		for n, held := range nodes {
			n.beat(held...)
			n.tick(0)
		}
	}
}

// read reads what is there now.
func (n *node) read(count int) []streambridge.Entry {
	n.w.Helper()
	got, err := n.Read(n.w.ctx(), count, 0)
	require.NoError(n.w, err)
	return got
}

// hold reads and must get exactly count entries.
func (n *node) hold(count int) []streambridge.Held {
	n.w.Helper()
	got := n.read(1000)
	require.Len(n.w, got, count)
	return heldOf(got)
}

func (n *node) beat(held ...streambridge.Held) streambridge.Beat {
	n.w.Helper()
	b, err := n.Beat(n.w.ctx(), held)
	require.NoError(n.w, err)
	return b
}

// tick is one turn with room for so many entries; a stray is one that was idle for longer than two beats.
func (n *node) tick(room int) streambridge.Tick {
	n.w.Helper()
	t, err := n.Tick(n.w.ctx(), streambridge.TickRequest{Room: room, MaxDeliveries: 3, StrayAfter: Lease * 2 / 3, DeadTTL: 100 * Lease})
	require.NoError(n.w, err)
	return t
}

// ticks goes on while there is more, as the reaper does.
func (n *node) ticks(room int) (all streambridge.Tick) {
	n.w.Helper()
	for {
		t := n.tick(room - len(all.Claimed) - len(all.Strays))
		all.Claimed = append(all.Claimed, t.Claimed...)
		all.Strays = append(all.Strays, t.Strays...)
		all.Buried = append(all.Buried, t.Buried...)
		all.Cancelled = append(all.Cancelled, t.Cancelled...)
		all.Promoted += t.Promoted
		all.Joined += t.Joined
		all.Orphans, all.Calm, all.Nodes, all.Unserved = t.Orphans, t.Calm, t.Nodes, t.Unserved
		if !t.More {
			return all
		}
	}
}

func heldOf(entries []streambridge.Entry) []streambridge.Held {
	var held []streambridge.Held
	for _, e := range entries {
		held = append(held, streambridge.Held{Ref: e.Ref, TaskID: value(e, "task_id"), Unit: value(e, "step")})
	}
	return held
}

func value(e streambridge.Entry, name string) string {
	for _, f := range e.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func idsOf(entries []streambridge.Entry) []string {
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	return ids
}

func refsOf(held []streambridge.Held) []messages.Ref {
	refs := make([]messages.Ref, 0, len(held))
	for _, h := range held {
		refs = append(refs, h.Ref)
	}
	return refs
}

// owners counts a stream's pending entries by consumer.
func (w *world) owners(stream string) map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, p := range w.Pending(stream) {
		out[p.Consumer]++
	}
	return out
}

func (w *world) public() string { return w.Names().Stream }

// letters are all dead letters.
func (n *node) letters() []*messages.DeadLetter {
	n.w.Helper()
	ls, err := n.Letters(n.w.ctx(), "", 1000)
	require.NoError(n.w, err)
	return ls
}
