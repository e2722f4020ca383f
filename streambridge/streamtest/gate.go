package streamtest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge"
)

// look is a tick that looks at the gate: a second after the last one.
func (n *node) look(limits streambridge.GateLimits) streambridge.Gate {
	n.w.Helper()
	n.w.Pass(time.Second)
	t, err := n.Tick(n.w.ctx(), streambridge.TickRequest{StrayAfter: Lease, DeadTTL: 100 * Lease, Gate: limits})
	require.NoError(n.w, err)
	return t.Gate
}

// stands looks and must find the gate in that state.
func (n *node) stands(want streambridge.GateState, limits streambridge.GateLimits) streambridge.Gate {
	n.w.Helper()
	g := n.look(limits)
	require.Equal(n.w, want, g.State, "%+v", g)
	st, err := n.Status(n.w.ctx())
	require.NoError(n.w, err)
	require.Equal(n.w, g.State, st.Gate.State)
	require.Equal(n.w, g.Reason, st.Gate.Reason)
	return g
}

const (
	open   = streambridge.GateIsOpen
	warned = streambridge.GateIsWarned
	shut   = streambridge.GateIsShut
)

var gateTests = []test{
	{"a gate warns, shuts, and opens below nine tenths of its limit", func(w *world) {
		n, limits := w.open("a"), streambridge.GateLimits{Lag: 10}
		w.add(8)
		require.Empty(w, n.stands(open, limits).Reason)
		w.add(1)
		require.Equal(w, "9 entries wait for their delivery, 10 are allowed", n.stands(warned, limits).Reason)
		w.add(1)
		g := n.stands(shut, limits)
		require.Equal(w, "10 entries wait for their delivery, 10 are allowed", g.Reason)
		require.Equal(w, 5*time.Second, g.RetryAfter())
		require.Len(w, n.read(1), 1)
		require.Contains(w, n.stands(shut, limits).Reason, "9 entries")
		require.Len(w, n.read(1), 1)
		require.Empty(w, n.stands(open, limits).Reason)
	}},
	{"each measure has its limit", func(w *world) {
		n := w.open("a")
		w.add(4)
		held := n.hold(4)
		w.add(2)
		for reason, limits := range map[string]streambridge.GateLimits{
			"4 entries are delivered and not acknowledged, 3 are allowed": {Pending: 3, Lag: 3, Length: 100},
			"2 entries wait for their delivery, 1 are allowed":            {Pending: 4, Lag: 1, Length: 6},
			"the stream holds 6 entries, 2 are allowed":                   {Pending: 4, Lag: 2, Length: 2},
		} {
			require.Equal(w, reason, n.stands(shut, limits).Reason, "the one that is worst off")
			n.stands(open, streambridge.GateLimits{Pending: 100, Lag: -1})
		}
		<-time.After(30 * time.Millisecond)
		require.Contains(w, n.stands(shut, streambridge.GateLimits{Age: 20 * time.Millisecond}).Reason, "the oldest unacknowledged entry is ")
		require.NoError(w, n.Ack(w.ctx(), refsOf(held)))
		n.stands(shut, streambridge.GateLimits{Age: 20 * time.Millisecond})
		n.stands(open, streambridge.GateLimits{Age: 24 * time.Hour})
	}},
	{"the server's memory has a limit", func(w *world) {
		n, limits := w.open("a"), streambridge.GateLimits{Memory: 0.5}
		n.stands(open, limits)
		w.Memory(0.9)
		require.Regexp(w, `^Redis uses [89]\d\.\d% of its memory, 50\.0% are allowed$`, n.stands(shut, limits).Reason)
		w.Memory(0.1)
		n.stands(open, limits)
	}},
	{"a gate that nobody looks at opens", func(w *world) {
		n, limits := w.open("a"), streambridge.GateLimits{Length: 1}
		w.add(1)
		n.stands(shut, limits)
		for _, step := range []struct {
			pass time.Duration
			want streambridge.GateState
		}{{9 * time.Second, shut}, {2 * time.Second, open}} {
			w.Pass(step.pass)
			st, err := n.Status(w.ctx())
			require.NoError(w, err)
			require.Equal(w, step.want, st.Gate.State)
		}
		n.stands(shut, limits)
	}},
	{"nodes look in turn, and all of them see it", func(w *world) {
		a, b := w.open("a"), w.open("b")
		w.add(1)
		require.Equal(w, shut, a.look(streambridge.GateLimits{Length: 1}).State)
		got, err := b.Tick(w.ctx(), streambridge.TickRequest{StrayAfter: Lease, Gate: streambridge.GateLimits{Length: 100}})
		require.NoError(w, err)
		require.Equal(w, shut, got.Gate.State, "it has been looked at a moment ago")
		require.Equal(w, shut, b.look(streambridge.GateLimits{}).State, "a node without limits only sees it")
	}},
	{"when to come back is told from how fast it shrinks", func(w *world) {
		n, limits := w.open("a"), streambridge.GateLimits{Lag: 100}
		w.add(300)
		n.stands(shut, limits)
		require.Len(w, n.read(100), 100)
		w.Pass(8 * time.Second)
		hint := n.stands(shut, limits).RetryAfter()
		require.InDelta(w, 9.9, hint.Seconds(), 1.5, "100 in 9 s, 110 to go")
		w.add(300)
		require.Equal(w, 30*time.Second, n.stands(shut, limits).RetryAfter())
	}},
}
