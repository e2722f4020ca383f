package supervision_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/supervision"
)

// provider answers 429 to more calls in a window than it allows, whatever stretch of time one looks at.
type provider struct {
	*httptest.Server
	limit  int
	window time.Duration

	mu    sync.Mutex
	calls []time.Time
	over  int
}

func newProvider(t *testing.T, limit int, window time.Duration) *provider {
	p := &provider{limit: limit, window: window}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for len(p.calls) > 0 && now.Sub(p.calls[0]) > p.window {
		p.calls = p.calls[1:]
	}
	if len(p.calls) >= p.limit {
		p.over++
		w.Header().Set("Retry-After-Ms", fmt.Sprint(p.window.Milliseconds()-now.Sub(p.calls[0]).Milliseconds()+1))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.calls = append(p.calls, now)
}

// Two nodes keep within what one provider allows, from the first call on.
func TestNodesShareAQuota(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const window = 500 * time.Millisecond
		p := newProvider(t, 20, window)
		client := p.Client()
		agents := actors.Agents{"call": actors.Func(func(c *actors.Context, _ actors.None) (int, error) {
			return actors.Step(c, "call", func(s actors.StepContext) (int, error) {
				req, err := http.NewRequestWithContext(s, http.MethodGet, p.URL, http.NoBody)
				if err != nil {
					return 0, err
				}
				resp, err := client.Do(req)
				if err != nil {
					return 0, err
				}
				return resp.StatusCode, actors.FromHTTP(resp, resp.Body.Close())
			}, actors.Quota("p", 1))
		}).With(actors.NeedsQuota("p"))}
		var nodes []*supervision.Runtime
		for i := range 2 {
			cfg := b.config(fmt.Sprint("n", i), agents)
			// Half of what it allows: on a busy machine calls arrive when they can.
			cfg.Quotas = map[string]supervision.Rate{"p": {Tokens: 10, Per: window}}
			rt, _ := start(t, cfg)
			nodes = append(nodes, rt)
		}
		var tasks []*actors.Task
		for i := range 40 {
			tasks = append(tasks, submit(t, nodes[0].Client(), actors.NewTask{ID: fmt.Sprint("t", i), Type: "call"}))
		}
		began := time.Now()
		for _, task := range tasks {
			require.Equal(t, http.StatusOK, result[int](t, task))
			st, err := task.Status(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 1, st.Units[0].Ledger.Attempt(), "no attempt is charged")
		}
		require.Greater(t, time.Since(began), 1500*time.Millisecond, "it took its time")
		require.Zero(t, p.over)
	})
}
