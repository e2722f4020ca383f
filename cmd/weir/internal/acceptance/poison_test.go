package acceptance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A task that ends every process that runs it, among others that have done nothing wrong: it ends in the dead letters
// after few deaths, and takes nobody along.
func TestPoisonIsSetAsideAndBystandersAreNot(t *testing.T) {
	for _, c := range []struct {
		name     string
		after    time.Duration
		poisons  int
		deaths   int
		quick    bool // in the regular size too
		bystands time.Duration
	}{
		{"at once", 0, 1, 4, true, 2 * time.Second},
		{"after a while", pick(2*time.Second, 5*time.Second), 1, 8, false, pick(2*time.Second, 8*time.Second)},
		{"two", 0, 2, 8, true, 2 * time.Second},
	} {
		if !c.quick && !*full {
			continue // takes minutes by its nature
		}
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, pick(time.Second, 2*time.Second))
			count := pick(60, 200)
			names, poisons := ids("sleeper", count), ids("poison", c.poisons)
			var tasks []task
			for i, id := range names {
				tasks = append(tasks, task{ID: id, Type: "sleep", Payload: map[string]int64{"ms": c.bystands.Milliseconds()}})
				if i == count/2 {
					for _, p := range poisons {
						tasks = append(tasks, task{ID: p, Type: "exit", Payload: map[string]int64{"code": 137, "after_ms": c.after.Milliseconds()}})
					}
				}
			}
			f := s.fleet(3, false)
			began := time.Now()
			s.submit(tasks...)
			var buried time.Duration
			s.await(pick(time.Minute, 5*time.Minute), "the poison is FAILED and all others are SUCCEEDED", func() bool {
				require.NoError(t, f.broken())
				dead := allAre(s.states(poisons), "FAILED")
				if dead && buried == 0 {
					buried = time.Since(began)
				}
				return dead && allAre(s.states(names), "SUCCEEDED")
			})
			took := time.Since(began)
			s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
			letters := s.letters()
			var dead []string
			for _, l := range letters {
				dead = append(dead, l.TaskID)
				require.Equal(t, "kills_nodes", l.Reason)
				t.Logf("dead letter of %s: %s", l.TaskID, l.Detail)
			}
			require.ElementsMatch(t, poisons, dead)
			require.LessOrEqual(t, f.count(), c.deaths)
			t.Logf("%d process deaths; the poison was set aside after %v, the last of %d others succeeded after %v; %d deaths and %d blames charged to others",
				f.count(), buried.Round(time.Millisecond), count, took.Round(time.Millisecond),
				sum(s.fields(names, "deaths")), sum(s.fields(names, "blamed")))
		})
	}
}
