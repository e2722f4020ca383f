package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type cancelled struct {
	TaskID    string `json:"task_id"`
	State     string `json:"state"`
	Cancelled []struct {
		Unit string `json:"unit"`
		Was  string `json:"was"`
	} `json:"cancelled"`
}

func TestCancelFromTheCommandLine(t *testing.T) {
	s := newSite(t)
	s.ok("submit", "--type", "sleep", "--id", "waits", "--payload", `{"ms":60000}`)
	got := data[cancelled](s, "cancel", "waits", "--reason", "not needed any more")
	require.Equal(t, "PENDING", got.Cancelled[0].Was)
	s.worker()
	s.ok("submit", "--type", "sleep", "--id", "runs", "--payload", `{"ms":60000}`)
	eventually(t, "it runs", func() bool { return s.state("runs") == "RUNNING" })
	require.Regexp(t, `cancelled task runs, which was RUNNING\n`, s.ok("cancel", "runs", "--reason", "enough"))
	eventually(t, "nothing is pending", func() bool { return data[status](s, "status").Pending == 0 })
	for _, id := range []string{"runs", "waits"} {
		require.Equal(t, "CANCELLED", s.state(id))
		require.Regexp(t, "task "+id+" was cancelled before", s.ok("cancel", id))
	}
	text := s.ok("task", "runs")
	for _, want := range []string{"CANCELLED", "enough", " on "} {
		require.Contains(t, text, want)
	}

	s.ok("submit", "--type", "echo", "--id", "ends", "--payload", "1", "--wait")
	o := s.run("cancel", "ends")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "SUCCEEDED")
	o = s.run("cancel", "nobody")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "no task")
	require.Equal(t, 2, s.run("cancel").code)
	require.Empty(t, data[cancelled](s, "cancel", "runs").Cancelled)
	got = data[cancelled](s, "cancel", "by-hand", "--type", "echo", "--step", "1")
	require.Equal(t, "1", got.Cancelled[0].Unit)
}
