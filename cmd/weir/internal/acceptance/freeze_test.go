package acceptance

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A node is frozen for longer than its lease and wakes up with work in its hands that others have by now.
func TestAFrozenNodeWakesUpAndHarmsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, pick(1500*time.Millisecond, 5*time.Second))
	ms := func(leases float64) int { return int(leases * float64(s.lease.Milliseconds())) }
	each := pick(10, 50)
	var tasks []task
	var names []string
	add := func(prefix string, m probeMessage) []string {
		group := ids(prefix, each)
		for _, id := range group {
			tasks = append(tasks, task{ID: id, Type: "probe", Payload: m})
		}
		names = append(names, group...)
		return group
	}
	add("short", probeMessage{MS: ms(1)})              // ends while its node is frozen: a late result at once
	long := add("long", probeMessage{MS: ms(4)})       // is at work when the node wakes up
	add("step", probeMessage{MS: ms(4), Step: true})   // so is a step
	add("deaf", probeMessage{MS: ms(3.5), Deaf: true}) // works to its end whatever it is told

	p1 := s.probe("n1")
	s.submit(tasks...)
	s.await(waitLong, "n1 is at work on all", func() bool { return s.journal.count(event("start", "n1")) == len(names) })
	p2 := s.probe("n2")
	require.NoError(t, p1.signal(syscall.SIGSTOP))
	frozen := time.Now()
	s.await(waitLong, "n2 is at work on all", func() bool { return s.journal.count(event("start", "n2")) == len(names) })
	taken := time.Since(frozen)
	require.NoError(t, p1.signal(syscall.SIGCONT))
	woke := time.Now()

	// While n2 works, nothing may pass back to n1.
	var stolen int64
	s.await(waitLong, "all have ended", func() bool {
		for _, key := range []string{s.stream, s.keys(s.group).Inbox()} {
			rows, err := s.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{
				Stream: key, Group: s.group, Start: "-", End: "+", Count: 1000, Consumer: "n1",
			}).Result()
			require.NoError(t, err)
			if time.Since(woke) > s.lease { // what n1 still has in this moment it has got back
				stolen += int64(len(rows))
			}
		}
		return allAre(s.states(names), "SUCCEEDED") && s.journal.count(event("end", "n1")) == len(names)
	})
	require.Zero(t, stolen, "entries that the woken node got back")

	completed := map[string]int{}
	for _, l := range s.journal.all(event("task_ended")) {
		require.Equal(t, "COMPLETED", l.Outcome, "%+v", l)
		require.Equal(t, "n2", l.Process, "only n2 had the right to end %s", l.Task)
		completed[l.Task]++
	}
	s.await(waitLong, "n2 has told of each end", func() bool { return s.journal.count(event("task_ended", "n2")) >= len(names) })
	for id, n := range completed {
		require.Equal(t, 1, n, id)
	}
	// The result is the one of n2's run.
	runs := map[string]string{}
	for _, l := range s.journal.all(event("start", "n2")) {
		runs[l.Task] = l.Run
	}
	for i, result := range s.fields(names, "result") {
		require.Equal(t, fmt.Sprintf("%q", runs[names[i]]), result, names[i])
	}
	// Whoever heeds its context was told why it ended.
	causes := tally(nil)
	for _, l := range s.journal.all(event("end", "n1")) {
		causes[l.Cause]++
	}
	require.GreaterOrEqual(t, causes["lease_lost"], 3*len(long), "%v", causes)
	require.NoError(t, p1.signal(syscall.SIGTERM))
	<-p1.gone
	totals := s.journal.all(event("stopped", "n1"))
	require.Len(t, totals, 1)
	require.Equal(t, int64(len(names)), totals[0].Lost, "late results that were refused")
	require.NoError(t, p2.signal(os.Kill))
	t.Logf("%d tasks; frozen past a lease of %v, all at work elsewhere after %v; late results refused: %d; causes seen by the woken handlers: %v",
		len(names), s.lease, taken.Round(time.Millisecond), totals[0].Lost, causes)
}
