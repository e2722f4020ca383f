package acceptance

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asleep starts n sleeping tasks on a worker of their own, and then two more workers with nothing to do.
func (s *site) asleep(n int, first ...string) (names []string, w1 *process, others []string) {
	s.t.Helper()
	w1 = s.worker("w1", first...)
	names = ids("sleeper", n)
	var tasks []task
	for _, id := range names {
		tasks = append(tasks, task{ID: id, Type: "sleep", Payload: map[string]int{"ms": 600_000}})
	}
	s.submit(tasks...)
	s.await(waitLong, "all sleep on w1", func() bool { return s.owned(names, w1.hello.Incarnation) })
	for _, name := range []string{"w2", "w3"} {
		others = append(others, s.worker(name).hello.Incarnation)
	}
	return names, w1, others
}

// owned says whether all tasks are RUNNING under one of the incarnations.
func (s *site) owned(names []string, incarnations ...string) bool {
	if !allAre(s.states(names), "RUNNING") {
		return false
	}
	for _, owner := range s.fields(names, "owner") {
		if !slices.Contains(incarnations, owner) {
			return false
		}
	}
	return true
}

func TestAKilledWorkersTasksRunElsewhereAfterALease(t *testing.T) {
	t.Parallel()
	s := newSite(t, pick(2*time.Second, 15*time.Second))
	names, w1, others := s.asleep(100)
	require.NoError(t, w1.signal(os.Kill))
	took := s.await(waitLong, "all run elsewhere", func() bool { return s.owned(names, others...) })
	require.LessOrEqual(t, took, s.lease+2*time.Second)
	require.Equal(t, 100, sum(s.fields(names, "deaths")), "each was charged one death")
	perNode := tally(s.fields(names, "owner"))
	t.Logf("kill -9 with 100 sleeping tasks: all run elsewhere after %v (lease %v); by node: %v", took.Round(time.Millisecond), s.lease, perNode)
}

func TestATerminatedWorkersTasksRunElsewhereAtOnceAndFree(t *testing.T) {
	t.Parallel()
	s := newSite(t, 15*time.Second) // only the release can be so quick
	const grace = time.Second
	names, w1, others := s.asleep(100, "--grace", grace.String())
	require.NoError(t, w1.signal(syscall.SIGTERM))
	took := s.await(waitLong, "all run elsewhere", func() bool { return s.owned(names, others...) })
	require.LessOrEqual(t, took, grace+2*time.Second)
	s.await(waitLong, "w1 has ended", w1.ended)
	require.Equal(t, 0, w1.cmd.ProcessState.ExitCode())
	for _, class := range []string{"failures", "crashes", "timeouts", "deaths", "blamed"} {
		require.Zero(t, sum(s.fields(names, class)), class)
	}
	require.Equal(t, 100, sum(s.fields(names, "interruptions")))
	for _, e := range s.journal.all(event("stopped", "w1")) {
		t.Logf("SIGTERM with 100 sleeping tasks: all run elsewhere %v after the end of the grace period; interrupted %d, charged nothing",
			(took - grace).Round(time.Millisecond), e.Interrupted)
	}
}
