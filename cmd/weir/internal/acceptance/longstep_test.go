package acceptance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A step that takes twenty leases runs once: the lease is kept for it.
func TestAStepOfTwentyLeasesRunsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, pick(700*time.Millisecond, 15*time.Second))
	s.probe("n1")
	s.probe("n2")
	s.submit(task{ID: "long", Type: "probe", Payload: probeMessage{MS: int(20 * s.lease.Milliseconds()), Step: true}})
	took := s.await(20*s.lease+waitLong, "it has succeeded", func() bool { return s.states([]string{"long"})[0] == "SUCCEEDED" })
	require.Equal(t, 1, s.journal.count(event("start")))
	require.Zero(t, s.journal.count(event("lease_lost")))
	require.Zero(t, s.journal.count(event("entry_claimed")))
	require.Equal(t, []string{"1"}, s.fields([]string{"long"}, "fence"))
	t.Logf("a step of %v with a lease of %v and two nodes ran once, in %v", 20*s.lease, s.lease, took.Round(time.Millisecond))
}
