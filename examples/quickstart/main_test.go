package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/streambridge/redistest"
)

// The program as a newcomer runs it: an entry of plain XADD comes back as a result, Ctrl-C ends it well.
func TestTheProgram(t *testing.T) {
	server := redistest.Start(t)
	binary := filepath.Join(t.TempDir(), "quickstart")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	program := exec.CommandContext(t.Context(), binary)
	program.Env = append(program.Environ(), "REDIS_ADDR="+server.Addr())
	require.NoError(t, program.Start())

	rdb := server.Client()
	require.NoError(t, rdb.Do(t.Context(), "XADD", "agent:tasks", "*", "task_id", "ada", "type", "hello", "payload", `{"Name":"Ada"}`).Err())
	state := redisstate.New(rdb)
	defer state.Close()
	client, err := actors.NewClient(state, actors.Names{})
	require.NoError(t, err)
	// The entry is not a submission of this client: there is no task until the program has begun it.
	require.Eventually(t, func() bool {
		_, err := client.Task("ada").Status(t.Context())
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := actors.Result[string](ctx, client.Task("ada"))
	require.NoError(t, err)
	require.Equal(t, "hi Ada", got)

	require.NoError(t, program.Process.Signal(syscall.SIGINT))
	require.NoError(t, program.Wait())
}
