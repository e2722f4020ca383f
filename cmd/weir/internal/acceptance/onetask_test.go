package acceptance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redistest"
)

// entriesOfOne are n entries of one task: its steps 1 to n.
func entriesOfOne(n int, m probeMessage) []actors.NewTask {
	out := make([]actors.NewTask, n)
	for i := range out {
		out[i] = actors.NewTask{ID: "one", Step: strconv.Itoa(i + 1), Type: "probe", Payload: m}
	}
	return out
}

// client submits from this process, where a moment must be known.
func (s *site) client() *actors.Client {
	s.t.Helper()
	state := redisstate.New(s.rdb)
	s.t.Cleanup(func() { require.NoError(s.t, state.Close()) })
	c, err := actors.NewClient(state, actors.Names{Stream: s.stream, Group: s.group}, actors.MaxBacklog(-1))
	require.NoError(s.t, err)
	return c
}

// flow submits tasks one by one for a while and returns how long each waited for its start: the latency that others feel.
func (s *site) flow(c *actors.Client, prefix string, n int, every time.Duration) []time.Duration {
	s.t.Helper()
	at := map[string]int64{}
	clock := time.NewTicker(every)
	defer clock.Stop()
	for i := range n {
		id := fmt.Sprint(prefix, i)
		at[id] = time.Now().UnixNano()
		_, err := c.Submit(s.t.Context(), actors.NewTask{ID: id, Type: "probe", Payload: probeMessage{}})
		require.NoError(s.t, err)
		<-clock.C
	}
	ours := func(l line) bool { return l.Event == "start" && at[l.Task] > 0 }
	s.await(waitLong, "all of "+prefix+" have started", func() bool { return s.journal.count(ours) >= n })
	var waits []time.Duration
	for _, l := range s.journal.all(ours) {
		waits = append(waits, time.Duration(l.Clock-at[l.Task]))
	}
	slices.Sort(waits)
	return waits
}

func p50(sorted []time.Duration) time.Duration {
	return sorted[len(sorted)/2].Round(10 * time.Microsecond)
}

// spans are the runs of the task's units in the order in which they started.
func (s *site) spans(t *testing.T, processes ...string) []line {
	t.Helper()
	one := func(name string) func(line) bool {
		return func(l line) bool { return event(name, processes...)(l) && l.Task == "one" }
	}
	starts, ends := s.journal.all(one("start")), s.journal.all(one("end"))
	require.Len(t, ends, len(starts))
	until := map[string]int64{}
	for _, e := range ends {
		until[e.Run] = e.Clock
	}
	slices.SortFunc(starts, func(a, b line) int { return cmp.Compare(a.Clock, b.Clock) })
	for i := 1; i < len(starts); i++ {
		require.GreaterOrEqual(t, starts[i].Clock, until[starts[i-1].Run], "units %s and %s ran at the same time", starts[i-1].Unit, starts[i].Unit)
	}
	return starts
}

// Many entries of one task, while others flow: one at a time, each once, in order on one node, and nobody is slowed.
func TestManyEntriesOfOneTaskRunOneAtATime(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			s := newSite(t, 5*time.Second)
			wire := redistest.StartProxy(t, s.srv.Addr())
			seen := spyOn(wire)
			var workers []*process
			for i := range nodes {
				workers = append(workers, s.probe(fmt.Sprint("n", i+1), func(c *probeConfig) { c.Redis = via(wire) }))
			}
			c := s.client()
			const entries = 100
			others, every := pick(200, 1000), 10*time.Millisecond
			work := int(time.Duration(others)*every/time.Millisecond) / entries * 8 / 10 // of the task, while the others flow
			without := s.flow(c, "before", others, every)

			before, began := seen.counts(), time.Now()
			cpuBefore := cpuOf(t, workers)
			_, err := c.SubmitAll(t.Context(), entriesOfOne(entries, probeMessage{MS: work}))
			require.NoError(t, err)
			with := s.flow(c, "beside", others, every)
			ended := func(l line) bool { return l.Event == "end" && l.Task == "one" }
			s.await(waitLong, "all entries of the task have run", func() bool { return s.journal.count(ended) >= entries })
			took := time.Since(began)
			sent, by := seen.since(before)
			cpu := cpuOf(t, workers) - cpuBefore

			runs := s.spans(t)
			require.Len(t, runs, entries, "each unit once")
			var order []string
			for _, l := range runs {
				order = append(order, l.Unit)
			}
			inOrder := slices.IsSortedFunc(order, func(a, b string) int {
				x, _ := strconv.Atoi(a)
				y, _ := strconv.Atoi(b)
				return cmp.Compare(x, y)
			})
			if nodes == 1 {
				require.True(t, inOrder, "%v", order)
			}
			slices.Sort(order)
			require.Len(t, slices.Compact(order), entries)
			s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
			require.Empty(t, s.letters())
			require.LessOrEqual(t, p50(with), 4*p50(without)+25*time.Millisecond, "others are slowed")
			// About three calls an entry (begin, commit, acknowledge) and some that fetch: a node that polls sends thousands.
			require.LessOrEqual(t, sent, 10*(entries+others)+int(took/time.Second+1)*nodes*30, "%v", by)
			t.Logf("%d entries of one task on %d nodes in %v (in order: %v), one at a time; others' wait p50 %v without and %v with them; %d commands %v; %v of CPU",
				entries, nodes, took.Round(time.Millisecond), inOrder, p50(without), p50(with), sent, by, cpu)
		})
	}
}

func cpuOf(t *testing.T, workers []*process) time.Duration {
	t.Helper()
	var sum time.Duration
	for _, p := range workers {
		c, err := p.cpu()
		require.NoError(t, err)
		sum += c
	}
	return sum
}

// Two groups on one stream each handle all of it; a retry in one is none of the other's business.
func TestGroupsOnOneStreamDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, 5*time.Second)
	const fulfilment, audit = "fulfilment", "audit"
	s.group = fulfilment
	s.probe("f1")
	s.probe("a1", func(c *probeConfig) { c.Group = audit })
	s.probe("a2", func(c *probeConfig) { c.Group = audit })
	const entries = 100
	_, err := s.client().SubmitAll(t.Context(), entriesOfOne(entries, probeMessage{MS: 2, FailIn: fulfilment}))
	require.NoError(t, err)
	for group, processes := range map[string][]string{fulfilment: {"f1"}, audit: {"a1", "a2"}} {
		s.group = group
		done := func(l line) bool { return event("task_ended", processes...)(l) && l.Outcome == "COMPLETED" }
		s.await(waitLong, group+" has handled all", func() bool { return s.journal.count(done) >= entries })
		s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
		runs := s.spans(t, processes...)
		attempts := map[int64]int{}
		for _, l := range runs {
			attempts[l.Attempt]++
		}
		if group == fulfilment {
			require.Equal(t, map[int64]int{1: entries, 2: entries}, attempts, "each failed once and was retried once")
		} else {
			require.Equal(t, map[int64]int{1: entries}, attempts, "each ran once")
		}
		st, err := s.status()
		require.NoError(t, err)
		require.Equal(t, int64(entries), st.States["SUCCEEDED"], "%+v", st)
		require.Zero(t, st.Dead+st.Pending)
		t.Logf("%s: runs by attempt %v", group, attempts)
	}
}
