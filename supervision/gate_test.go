package supervision_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/supervision"
)

// A group that falls behind takes nothing in, works off what it has, and opens again.
func TestIntakeIsShutWhileTheGroupIsBehind(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		goOn := make(chan struct{})
		agents := actors.Agents{"slow": actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
			select {
			case <-goOn:
				return "done", nil
			case <-c.Context().Done():
				return "", c.Context().Err()
			}
		})}
		cfg := b.config("n1", agents)
		cfg.Gate = supervision.Gate{Pending: 10, Age: -1}
		rt, _ := start(t, cfg)
		events := make(chan string, 100)
		t.Cleanup(rt.Subscribe(func(e supervision.Event) {
			switch e := e.(type) {
			case supervision.GateWarned, supervision.GateShut, supervision.GateOpened:
				events <- e.Name()
			}
		}))
		var tasks []*actors.Task
		var shut *actors.GateError
		require.Eventually(t, func() bool {
			task, err := rt.Client().Submit(t.Context(), actors.NewTask{Type: "slow", ID: fmt.Sprint("t", len(tasks))})
			if errors.As(err, &shut) {
				return true
			}
			require.NoError(t, err)
			tasks = append(tasks, task)
			return false
		}, 10*time.Second, 50*time.Millisecond)
		require.ErrorIs(t, shut, actors.ErrGateShut)
		require.Contains(t, shut.Reason, "delivered and not acknowledged, 10 are allowed")
		require.Positive(t, shut.RetryAfter)
		require.GreaterOrEqual(t, len(tasks), 10)
		require.NoError(t, rt.Ready(), "it works off what is there")
		require.Eventually(t, func() bool { return rt.Gate().State == streambridge.GateIsShut }, 5*time.Second, 10*time.Millisecond)
		known, err := rt.Client().Submit(t.Context(), actors.NewTask{Type: "slow", ID: "t0"})
		require.NoError(t, err)
		require.True(t, known.Known)

		close(goOn)
		for _, task := range tasks {
			require.Equal(t, "done", result[string](t, task))
		}
		require.Eventually(t, func() bool {
			_, err := rt.Client().Submit(t.Context(), actors.NewTask{Type: "slow", ID: "after"})
			return err == nil
		}, 10*time.Second, 50*time.Millisecond)
		require.Eventually(t, func() bool { return rt.Gate().State == streambridge.GateIsOpen }, 5*time.Second, 10*time.Millisecond)
		var seen []string
		for len(seen) == 0 || seen[len(seen)-1] != "gate_opened" {
			seen = append(seen, <-events)
		}
		require.Contains(t, seen, "gate_shut")
	})
}
