package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type sent struct {
	TaskID    string `json:"task_id"`
	Known     bool   `json:"known"`
	TaskKnown bool   `json:"task_known"`
}

// That a message ends a wait is tested with the approval example.
func TestSendFromTheCommandLine(t *testing.T) {
	s := newSite(t)
	require.Regexp(t, "nothing is known of such a task yet", s.ok("send", "later", "--name", "approve"))
	s.ok("submit", "--type", "echo", "--id", "later", "--payload", "1")
	got := data[sent](s, "send", "later", "--name", "approve", "--message-id", "m-2", "--payload", `{"By":"ann"}`)
	require.Equal(t, sent{TaskID: "later", TaskKnown: true}, got)
	require.True(t, data[sent](s, "send", "later", "--name", "approve", "--message-id", "m-2", "--payload", `{"By":"ann"}`).Known)
	o := s.run("send", "later", "--name", "approve", "--payload", `"other"`)
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "answered already")
	s.worker()
	eventually(t, "it ends", func() bool { return s.state("later") == "SUCCEEDED" })
	o = s.run("send", "later", "--name", "more")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "has ended")
	for _, args := range [][]string{{"send", "later"}, {"send", "--name", "x"}, {"send", "later", "--name", "x", "--payload", "{"}} {
		require.Equal(t, 2, s.run(args...).code, args)
	}
}
