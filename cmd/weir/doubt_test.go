package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A process dies between an effect that must not happen twice and its checkpoint: nobody runs it again, and a person settles
// it from the command line.
func TestADoubtIsListedAndResolved(t *testing.T) {
	s := newSite(t)
	require.Contains(t, s.ok("doubt", "list"), "no tasks")
	ids := []string{"done", "rerun", "fail"}
	for _, id := range ids {
		w := s.worker("--consumer", "w-"+id, "--lease", "1s")
		s.ok("submit", "--type", "effect", "--id", id, "--payload", `{"crash":"after-effect","blind":true}`)
		require.Equal(t, 137, w.end(), "it ends its process")
	}
	s.worker("--consumer", "w", "--lease", "1s")
	eventually(t, "all are in doubt", func() bool { return len(data[taskList](s, "doubt", "list").Tasks) == len(ids) })
	list := data[taskList](s, "doubt", "list", "--type", "effect")
	for _, task := range list.Tasks {
		require.Equal(t, "WAITING", task.State)
		require.Equal(t, "effect", task.Doubt)
	}
	require.Contains(t, s.ok("doubt", "list"), "in doubt on step effect")
	require.Contains(t, s.ok("task", "done"), "weir doubt resolve")

	require.Contains(t, s.ok("doubt", "resolve", "done", "--step", "effect", "--done", "--result", "7", "--reason", "the bank says so"), "goes on")
	require.Contains(t, s.ok("doubt", "resolve", "rerun", "--step", "effect", "--rerun"), "goes on")
	require.Contains(t, s.ok("doubt", "resolve", "fail", "--step", "effect", "--fail", "--json"), `"resolved": "fail"`)
	for id, want := range map[string]string{"done": "SUCCEEDED", "rerun": "SUCCEEDED", "fail": "FAILED"} {
		eventually(t, id+" has ended", func() bool { return s.state(id) == want })
	}
	require.Equal(t, "7", string(data[task](s, "task", "done").Units[0].Result))
	require.Equal(t, "2", string(data[task](s, "task", "rerun").Units[0].Result), "it happened twice, as a person wanted")
	require.Contains(t, s.ok("task", "done"), "the bank says so")
	letters := data[letters](s, "dead", "list", "--reason", "in_doubt").Letters
	require.Len(t, letters, 1)
	require.Equal(t, "fail", letters[0].TaskID)
	require.Empty(t, data[taskList](s, "doubt", "list").Tasks)

	// Retried from the dead letters it is in doubt again: nothing else is known now.
	s.ok("dead", "retry", letters[0].ID)
	eventually(t, "in doubt again", func() bool { return len(data[taskList](s, "doubt", "list").Tasks) == 1 })
	o := s.run("doubt", "resolve", "fail", "--step", "other", "--done")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, `is in doubt on step "effect"`)
	o = s.run("doubt", "resolve", "done", "--step", "effect", "--fail")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "it is SUCCEEDED")
	require.Equal(t, 1, s.run("doubt", "resolve", "nobody", "--step", "effect", "--done").code)
	for _, args := range [][]string{
		{"--step", "effect"},
		{"--step", "effect", "--done", "--fail"},
		{"--done"},
		{"--step", "effect", "--fail", "--result", "1"},
		{"--step", "effect", "--done", "--result", "{"},
		{"--step", "effect", "--done", "--content-type", ";"},
	} {
		require.Equal(t, 2, s.run(append([]string{"doubt", "resolve", "fail"}, args...)...).code, args)
	}
	s.ok("doubt", "resolve", "fail", "--step", "effect", "--done", "--result", "0")
	eventually(t, "it goes on", func() bool { return s.state("fail") == "SUCCEEDED" })
}
