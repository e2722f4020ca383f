package supervision_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/supervision"
)

// crowd counts how many run at once, by name.
type crowd struct {
	mu       sync.Mutex
	now, top map[string]int
}

func newCrowd() *crowd { return &crowd{now: map[string]int{}, top: map[string]int{}} }

func (c *crowd) in(names ...string) (out func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range names {
		c.now[n]++
		c.top[n] = max(c.top[n], c.now[n])
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range names {
			c.now[n]--
		}
	}
}

func (c *crowd) most(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.top[name]
}

type tenant struct{ Name string }

// Two nodes keep within the limits of the group, of an agent type, of a key and of each node; everything is done, retries and
// crashes included, and nobody waits at the end.
func TestNodesKeepLimits(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		c := newCrowd()
		var nodes []*supervision.Runtime
		for i := range 2 {
			node := fmt.Sprint("node", i)
			limited := actors.Func(func(x *actors.Context, m tenant) (string, error) {
				defer c.in("all", "limited", m.Name, node)()
				time.Sleep(5 * time.Millisecond)
				switch {
				case x.Info().Attempt > 1:
				case x.ID() == "t7":
					return "", actors.Retry(time.Millisecond, fmt.Errorf("once more"))
				case x.ID() == "t11":
					panic("boom")
				}
				return "ok", nil
			}).With(actors.Limit(5, nil), actors.Limit(2, func(_ actors.Info, m actors.Raw) string { return string(m.Bytes) }))
			free := actors.Func(func(_ *actors.Context, _ tenant) (string, error) {
				defer c.in("all", node)()
				time.Sleep(5 * time.Millisecond)
				return "ok", nil
			})
			cfg := b.config(fmt.Sprint("n", i), actors.Agents{"limited": limited, "free": free})
			cfg.Concurrency = supervision.Concurrency{Group: 7, Node: 4}
			rt, _ := start(t, cfg)
			nodes = append(nodes, rt)
		}
		var tasks []*actors.Task
		for i := range 60 {
			n := actors.NewTask{ID: fmt.Sprint("t", i), Type: "limited", Payload: tenant{fmt.Sprint("tenant", i%4)}}
			if i%3 == 0 {
				n.Type = "free"
			}
			tasks = append(tasks, submit(t, nodes[0].Client(), n))
		}
		for _, task := range tasks {
			require.Equal(t, "ok", result[string](t, task))
		}
		require.LessOrEqual(t, c.most("all"), 7)
		require.Greater(t, c.most("all"), 4)
		require.LessOrEqual(t, c.most("limited"), 5)
		require.LessOrEqual(t, c.most("node0"), 4)
		require.LessOrEqual(t, c.most("node1"), 4)
		for i := range 4 {
			require.LessOrEqual(t, c.most(fmt.Sprint("tenant", i)), 2)
			require.Positive(t, c.most(fmt.Sprint("tenant", i)))
		}
		st, err := tasks[11].Status(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, st.Units[0].Ledger.Crashes)
	})
}

// A key function that panics is a crash of its task, and of no other.
func TestALimitsKeyThatPanics(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := actors.Agents{"a": actors.Func(func(*actors.Context, actors.Raw) (string, error) { return "ok", nil }).
			With(actors.MaxCrashes(0), actors.Limit(1, func(i actors.Info, _ actors.Raw) string {
				if i.TaskID == "bad" {
					panic("no key")
				}
				return "k"
			}))}
		rt, _ := start(t, b.config("n", agents))
		bad, good := submit(t, rt.Client(), actors.NewTask{ID: "bad", Type: "a"}), submit(t, rt.Client(), actors.NewTask{ID: "good", Type: "a"})
		require.Equal(t, "ok", result[string](t, good))
		_, err := actors.Result[string](t.Context(), bad)
		var failed *actors.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, messages.State_STATE_FAILED, failed.State)
		require.Contains(t, failed.Detail, "no key")
	})
}
