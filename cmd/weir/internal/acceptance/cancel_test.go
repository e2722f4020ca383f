package acceptance

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
)

// Tasks are cancelled while their nodes are killed: before, at the same moment, a little later, or not at all. Each is
// CANCELLED at once and for good, whoever has its entry by then.
func TestCancelWhileTheRunnerIsKilled(t *testing.T) {
	t.Parallel()
	s := newSite(t, pick(time.Second, 3*time.Second))
	state := redisstate.New(s.rdb)
	defer func() { require.NoError(t, state.Close()) }()
	client, err := actors.NewClient(state, actors.Names{Stream: s.stream, Group: s.group})
	require.NoError(t, err)
	cancel := func(id string) time.Duration {
		began := time.Now()
		require.NoError(t, client.Task(id).Cancel(t.Context(), "the customer called"))
		require.Equal(t, []string{"CANCELLED"}, s.states([]string{id}))
		return time.Since(began)
	}
	const perNode = 4
	var names []string
	var slowest, slowestWord time.Duration
	began := func(id string) bool {
		return s.journal.count(func(l line) bool { return l.Event == "start" && l.Task == id }) == 1
	}
	rounds, told := pick(4, 20), 0
	for round := range rounds {
		p := s.probe(fmt.Sprint("n", round))
		var mine []string
		for i := range perNode {
			mine = append(mine, fmt.Sprintf("c%d-%d", round, i))
			s.submit(task{ID: mine[i], Type: "probe", Payload: probeMessage{MS: 600_000, Step: i%2 == 0}})
		}
		s.await(waitLong, "all run", func() bool {
			for _, id := range mine {
				if !began(id) {
					return false
				}
			}
			return true
		})
		killed := make(chan error, 1)
		if round%4 == 0 { // not killed: it hears of it
			at := time.Now()
			for _, id := range mine {
				slowest = max(slowest, cancel(id))
			}
			s.await(waitLong, "its handlers have ended", func() bool {
				told = s.journal.count(func(l line) bool { return l.Event == "end" && l.Cause == "cancelled" && l.Process == p.name })
				return told == perNode
			})
			slowestWord = max(slowestWord, time.Since(at))
			killed <- p.signal(syscall.SIGKILL)
		} else {
			wait := time.Duration(rand.IntN(30)) * time.Millisecond
			go func() {
				time.Sleep(wait)
				killed <- p.signal(syscall.SIGKILL)
			}()
			for _, id := range mine {
				slowest = max(slowest, cancel(id))
				time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
			}
		}
		require.NoError(t, <-killed)
		names = append(names, mine...)
	}
	// Cancelled before anybody has it.
	s.submit(task{ID: "early", Type: "probe", Payload: probeMessage{MS: 1}})
	slowest = max(slowest, cancel("early"))
	s.probe("last")
	s.submit(task{ID: "after", Type: "probe", Payload: probeMessage{MS: 1}})
	s.await(waitLong, "the next task is done", func() bool { return s.states([]string{"after"})[0] == "SUCCEEDED" })
	s.await(waitLong+5*s.lease, "what the dead held is settled", func() bool { return s.pending() == 0 })

	require.True(t, allAre(s.states(append(names, "early")), "CANCELLED"))
	require.Equal(t, len(names)+1, s.journal.count(event("start")), "each began once, and the one after")
	require.Empty(t, s.letters())
	require.Less(t, slowest, time.Second)
	require.Less(t, slowestWord, time.Second+s.tick())
	t.Logf("%d tasks cancelled while %d nodes died: final after %v at most; where the node lived its handlers were told within %v; none ran again",
		len(names), rounds, slowest.Round(time.Millisecond), slowestWord.Round(time.Millisecond))
}
