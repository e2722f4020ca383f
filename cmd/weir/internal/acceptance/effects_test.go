package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

// waitLong bounds waits for what takes seconds on a quiet machine.
const waitLong = 90 * time.Second

// Tasks that each count one effect, over workers that are killed all the time and that some of the tasks end in the worst
// moments: every effect happens once.
func TestEffectsHappenOnceWhileProcessesDie(t *testing.T) {
	s := newSite(t, pick(time.Second, 2*time.Second))
	count := pick(600, 5000)
	var tasks []task
	var names, harmless []string
	crashes := []string{"before-effect", "after-effect", "before-ack"}
	for i := range count {
		payload := map[string]string{"crash": "none"}
		if i%60 == 30 {
			payload["crash"] = crashes[i/60%len(crashes)]
		} else {
			harmless = append(harmless, fmt.Sprint("t", i))
		}
		names = append(names, fmt.Sprint("t", i))
		tasks = append(tasks, task{ID: names[i], Type: "effect", Payload: payload})
	}
	f := s.fleet(3, true)
	began := time.Now()
	// In parts, so that there is work while processes die.
	submitted := 0
	next := time.Now()
	for kill := 0; ; kill++ {
		if submitted < count {
			n := min(submitted+count/10, count)
			s.submit(tasks[submitted:n]...)
			submitted = n
		}
		next = next.Add(pick(1500*time.Millisecond, 2*time.Second))
		for time.Now().Before(next) && f.broken() == nil {
			if submitted == count && allAre(s.states(names), "SUCCEEDED") {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		require.NoError(t, f.broken())
		states := tally(s.states(names))
		if states["SUCCEEDED"] == count {
			break
		}
		require.Zero(t, states["FAILED"], "%+v", s.letters())
		require.Less(t, time.Since(began), pick(2*time.Minute, 10*time.Minute), "%v", tally(s.states(names)))
		require.NoError(t, f.kill(kill%3))
	}
	took := time.Since(began)
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
	f.stop(t)

	twice := s.wrongEffects(names, 1)
	require.Empty(t, twice, "effects that did not happen exactly once")
	require.Empty(t, s.letters())
	st, err := s.status()
	require.NoError(t, err)
	require.Equal(t, int64(count), st.States["SUCCEEDED"], "%+v", st)
	for state, n := range st.States {
		if state != "SUCCEEDED" {
			require.Zero(t, n, state)
		}
	}
	require.Zero(t, st.Pending)
	require.Zero(t, st.Due)
	t.Logf("%d tasks in %v over %d process deaths; every effect once; %d deaths charged to tasks, and %d blames, %d of them to tasks that never end a process",
		count, took.Round(time.Millisecond), f.count(), sum(s.fields(names, "deaths")), sum(s.fields(names, "blamed")), sum(s.fields(harmless, "blamed")))
}

// wrongEffects lists the tasks whose effect did not happen n times.
func (s *site) wrongEffects(names []string, n int64) []string {
	s.t.Helper()
	var wrong []string
	cmds, err := s.rdb.Pipelined(s.t.Context(), func(p redis.Pipeliner) error {
		for _, id := range names {
			p.Get(s.t.Context(), "effect:"+messages.EffectKey(id, "", "effect"))
		}
		return nil
	})
	if err != nil {
		require.ErrorIs(s.t, err, redis.Nil)
	}
	for i, c := range cmds {
		if got, _ := c.(*redis.StringCmd).Int64(); got != n {
			wrong = append(wrong, fmt.Sprintf("%s: %d", names[i], got))
		}
	}
	return wrong
}

func allAre(all []string, one string) bool {
	for _, s := range all {
		if s != one {
			return false
		}
	}
	return true
}

// sum adds numbers as Redis keeps them; a missing one is 0.
func sum(all []string) int {
	total := 0
	for _, s := range all {
		n := 0
		_, _ = fmt.Sscan(s, &n)
		total += n
	}
	return total
}
