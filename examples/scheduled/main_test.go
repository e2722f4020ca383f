package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/streambridge/redistest"
)

// Two of the program run, one of them is killed: each tick has one report, and the daily one waits for its time.
func TestTheProgram(t *testing.T) {
	server := redistest.Start(t)
	binary := filepath.Join(t.TempDir(), "scheduled")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := make(chan string, 1000)
	program := func() *exec.Cmd {
		p := exec.CommandContext(t.Context(), binary)
		p.Env = append(p.Environ(), "REDIS_ADDR="+server.Addr())
		stdout, err := p.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		go func() {
			for scan := bufio.NewScanner(stdout); scan.Scan(); {
				lines <- scan.Text()
			}
		}()
		return p
	}
	first, second := program(), program()
	reports := map[string]int{}
	next := func() {
		t.Helper()
		select {
		case line := <-lines:
			require.Contains(t, line, "report: demo from ")
			reports[line]++
		case <-time.After(30 * time.Second):
			require.Fail(t, "no report")
		}
	}
	next()
	next()
	require.NoError(t, first.Process.Signal(os.Kill))
	_ = first.Wait()
	next()
	next()
	for line, n := range reports {
		require.Equal(t, 1, n, line)
	}

	state := redisstate.New(server.Client())
	defer state.Close()
	client, err := schedule.NewClient(state, actors.Names{})
	require.NoError(t, err)
	list, err := client.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "daily-report", list[0].Name)
	require.True(t, list[0].HasWhen)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	require.Equal(t, "09:00", list[0].Next.In(berlin).Format("15:04"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tasks, err := actors.NewClient(state, actors.Names{})
	require.NoError(t, err)
	sent, err := actors.Result[string](ctx, tasks.Task(list[1].LastTask))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(sent, "sent: demo from "), sent)

	require.NoError(t, second.Process.Signal(os.Interrupt))
	require.NoError(t, second.Wait())
}

func TestTheCondition(t *testing.T) {
	for month, want := range map[time.Month]bool{time.July: true, time.August: false} {
		got, err := daily.When(t.Context(), time.Date(2026, month, 3, 9, 0, 0, 0, time.UTC))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoError(t, daily.Validate())
	require.NoError(t, often.Validate())
}
