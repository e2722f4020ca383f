//go:build polyglot

package polyglot_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// The producer, run twice with Node.js, and the README's redis-cli lines: each order is done once.
// It needs node, npm and redis-cli: `make polyglot` brings them.
func TestProducers(t *testing.T) {
	server := redistest.Start(t)
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "REDIS_URL="+server.URL())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund")

	rdb := server.Client()
	rt, err := supervision.New(supervision.Config{
		Stream: redisstream.New(rdb), State: redisstate.New(rdb),
		Agents: actors.Agents{"echo": actors.Func(func(_ *actors.Context, m actors.Raw) (actors.Raw, error) { return m, nil })},
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- rt.Run(context.Background()) }()
	result := func(task *actors.Task) string {
		require.Eventually(t, func() bool { _, err := task.Status(t.Context()); return err == nil }, 20*time.Second, 10*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		got, err := actors.Result[actors.Raw](ctx, task)
		require.NoError(t, err)
		return string(got.Bytes)
	}

	require.Contains(t, run("node", "producer.mjs", "3"), "order-A-3")
	run("node", "producer.mjs", "3")
	require.JSONEq(t, `{"order":"A-1","cents":1990}`, result(rt.Client().Task("order-A-1")))
	require.JSONEq(t, `{"order":"A-3","cents":2190}`, result(rt.Client().Task("order-A-3")))

	host, port, _ := strings.Cut(server.Addr(), ":")
	cli := func(args ...string) {
		run("redis-cli", append([]string{"-h", host, "-p", port, "XADD", "agent:tasks", "*"}, args...)...)
	}
	cli("task_id", "order-A-1", "type", "echo", "payload", `{"order":"A-1","cents":1990}`, "content_type", "application/json")
	cli("task_id", "order-A-2x", "step", "charge", "type", "echo", "payload", `{"cents":1990}`)
	cli("task_id", "order-A-2x", "step", "ship", "type", "echo", "payload", `{"to":"Ghent"}`)
	require.JSONEq(t, `{"cents":1990}`, result(rt.Client().Task("order-A-2x").Step("charge")))
	require.JSONEq(t, `{"to":"Ghent"}`, result(rt.Client().Task("order-A-2x").Step("ship")))

	require.Eventually(t, func() bool { return rt.Stats().Bridge.InFlight == 0 }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, int64(5), rt.Stats().Completed, "three orders and two parts, each once")
	require.NoError(t, rt.Drain(t.Context()))
	require.NoError(t, <-ended)
}
