package acceptance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge/redistest"
)

// A node with nothing to do leaves its server alone.
func TestAnIdleNodeSendsLittle(t *testing.T) {
	t.Parallel()
	s := newSite(t, 15*time.Second)
	wire := redistest.StartProxy(t, s.srv.Addr())
	seen := spyOn(wire)
	p := s.worker("w1", "--redis", via(wire), "--beat", "5s") // as by default
	// The first tick and the first read are behind it.
	s.await(waitLong, "it ticks", func() bool { return seen.counts()["EVALSHA"] > 3 })
	before, cpu, began := seen.counts(), cpuOf(t, []*process{p}), time.Now()
	time.Sleep(pick(8*time.Second, 30*time.Second)) // to count what happens while nothing happens
	span := time.Since(began)
	sent, by := seen.since(before)
	perSecond := float64(sent) / span.Seconds()
	require.LessOrEqual(t, perSecond, 3.0, "%v", by)
	t.Logf("an idle node sends %.2f commands a second (%v in %v) and uses %v of CPU", perSecond, by, span.Round(time.Second), cpuOf(t, []*process{p})-cpu)
}

// Sleeping handlers in one process: they cost memory, and not too much of it.
func TestParkedHandlersFitIntoMemory(t *testing.T) {
	s := newSite(t, 15*time.Second)
	count := pick(10_000, 100_000)
	p := s.worker("w1", "--max-in-flight", "200000")
	began := time.Now()
	_, err := s.weir("submit", "--type", "sleep", "--id", "p", "--count", itoa(count), "--payload", `{"ms":3600000}`, "--max-backlog", "-1")
	require.NoError(t, err)
	s.await(5*time.Minute, "all sleep", func() bool {
		names := []string{"p-1", "p-" + itoa(count/2), "p-" + itoa(count)}
		return s.pending() == int64(count) && allAre(s.states(names), "RUNNING")
	})
	all := ids("p-", count)
	s.await(5*time.Minute, "each of them sleeps", func() bool { return allAre(s.states(all), "RUNNING") })
	took := time.Since(began)
	// Two beats renew them all, and copy what they hold.
	keys := s.keys(s.group)
	s.await(2*time.Minute, "each has been renewed", func() bool {
		n, err := s.rdb.HLen(t.Context(), keys.Prefix+"saved").Result()
		require.NoError(t, err)
		return n == int64(count)
	})
	idle, err := s.rdb.Do(t.Context(), "XPENDING", s.stream, s.group, "IDLE", s.lease.Milliseconds(), "-", "+", 1).Slice()
	require.NoError(t, err)
	require.Empty(t, idle, "an entry that nobody renews")
	rss, err := p.peakRSS()
	require.NoError(t, err)
	require.LessOrEqual(t, rss, int64(pick(300<<20, 1536<<20)))
	t.Logf("%d sleeping handlers began in %v: at most %d MiB of memory, %d B each; the server has %d MiB",
		count, took.Round(time.Millisecond), rss>>20, rss/int64(count), s.stat("memory", "used_memory")>>20)
}
