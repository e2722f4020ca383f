package acceptance

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/supervision"
)

// provider answers 429 to more calls than its limit in any stretch of its window, with the time to stay away.
type provider struct {
	limit  int
	window time.Duration

	mu    sync.Mutex
	taken []time.Time // answered with 200, within the last window
	all   []time.Time
	over  []time.Time // answered with 429
}

func (p *provider) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.taken) > 0 && now.Sub(p.taken[0]) >= p.window {
		p.taken = p.taken[1:]
	}
	if len(p.taken) >= p.limit {
		p.over = append(p.over, now)
		left := p.window - now.Sub(p.taken[0])
		w.Header().Set("Retry-After", strconv.Itoa(int((left+time.Second-1)/time.Second)))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.taken, p.all = append(p.taken, now), append(p.all, now)
}

// A provider allows 60 calls a minute, of which somebody else has used most when two workers begin with 200 tasks: one
// refusal quiets both of them, and after that there is none; no attempt is charged and nothing is held while tasks wait.
func TestQuotaKeepsWithinWhatAProviderAllows(t *testing.T) {
	window, limit, count, others := pick(4*time.Second, time.Minute), pick(40, 60), pick(100, 200), pick(32, 50)
	s := newSite(t, pick(time.Second, 2*time.Second))
	// At a fifteenth of the time a late call weighs fifteen times as much.
	p := &provider{limit: limit + pick(4, 0), window: window}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	quota := func(c *probeConfig) {
		c.Quotas = map[string]supervision.Rate{"provider": {Tokens: limit, Per: window}}
	}
	s.probe("w1", quota)
	s.probe("w2", quota)
	var tasks []task
	for _, id := range ids("t", count) {
		tasks = append(tasks, task{ID: id, Type: "call", Payload: server.URL})
	}
	weirBinary(t)
	began := time.Now()
	for range others {
		p.ServeHTTP(httptest.NewRecorder(), nil)
	}
	s.submit(tasks...)
	s.await(time.Minute, "most tasks wait for turns of their own and hold no entry", func() bool {
		return tally(s.states(ids("t", count)))["RETRYING"] > count/2 && s.pending() <= 10
	})
	s.await(10*window+waitLong, "every task is done", func() bool {
		return allAre(s.states(ids("t", count)), "SUCCEEDED")
	})
	took := time.Since(began)

	for _, class := range []string{"failures", "crashes", "timeouts", "deaths", "interruptions"} {
		require.Zero(t, sum(s.fields(ids("t", count), class)), "%s", class)
	}
	require.Empty(t, s.letters())
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.all, count+others, "each task called once")
	late := 0
	for _, at := range p.over {
		if at.Sub(began) > window {
			late++
		}
	}
	require.Zero(t, late, "refused after the first window")
	require.NotEmpty(t, p.over, "somebody else had used up the first window")
	require.LessOrEqual(t, len(p.over), 4, "the first refusal quiets everybody")
	keys, err := s.rdb.Keys(t.Context(), s.keys(s.group).Prefix+"quota:*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		ttl, err := s.rdb.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, ttl, strings.TrimPrefix(key, s.stream))
	}
	waits := sum(s.fields(ids("t", count), "waits"))
	t.Logf("%d tasks, %d per %v and %d taken by others: %v; %d refusals in the first window, 0 after; %d free waits, no attempt charged",
		count, limit, window, others, took.Round(time.Millisecond), len(p.over), waits)
}
