package main_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type taskList struct {
	Tasks []struct {
		TaskID    string `json:"task_id"`
		State     string `json:"state"`
		Type      string `json:"type"`
		Attempt   int64  `json:"attempt"`
		UpdatedAt string `json:"updated_at"`
		Reason    string `json:"reason"`
		Doubt     string `json:"doubt"`
		Consumer  string `json:"consumer"`
		EntryID   string `json:"entry_id"`
	} `json:"tasks"`
	Next string `json:"next"`
}

func TestListTasks(t *testing.T) {
	s := newSite(t)
	require.Contains(t, s.ok("tasks"), "no tasks")
	s.worker("--consumer", "w1")
	for i := range 5 {
		require.Equal(t, 1, s.run("submit", "--type", "sleep", "--id", fmt.Sprint("bad", i), "--payload", `{"ms":-1}`, "--wait").code)
	}
	s.ok("submit", "--type", "fail", "--id", "again", "--payload", `{"times":2,"after_ms":3600000}`)
	s.ok("submit", "--type", "sleep", "--id", "runs", "--payload", `{"ms":60000}`)
	s.ok("submit", "--type", "nobody", "--id", "waits", "--payload", `1`)
	eventually(t, "they got there", func() bool { return s.state("runs") == "RUNNING" && s.state("again") == "RETRYING" })
	ids := func(l taskList) string {
		var all []string
		for _, t := range l.Tasks {
			all = append(all, t.TaskID)
		}
		return strings.Join(all, " ")
	}
	got := data[taskList](s, "tasks", "--state", "failed", "--type", "sleep", "--since", "1h")
	require.Equal(t, "bad4 bad3 bad2 bad1 bad0", ids(got))
	require.Equal(t, "rejected", got.Tasks[0].Reason)
	require.EqualValues(t, 1, got.Tasks[0].Attempt)
	page := data[taskList](s, "tasks", "--state", "FAILED", "--limit", "2")
	require.Equal(t, "bad4 bad3", ids(page))
	page = data[taskList](s, "tasks", "--state", "FAILED", "--limit", "2", "--after", page.Next)
	require.Equal(t, "bad2 bad1", ids(page))
	require.Contains(t, s.ok("tasks", "--limit", "2"), "more: --after "+data[taskList](s, "tasks", "--limit", "2").Next)
	require.Empty(t, data[taskList](s, "tasks", "--type", "echo").Tasks)
	require.Equal(t, "again", ids(data[taskList](s, "tasks", "--state", "RETRYING")))

	got = data[taskList](s, "tasks", "--state", "RUNNING")
	require.Equal(t, "runs", ids(got))
	require.Equal(t, "w1", got.Tasks[0].Consumer)
	require.Contains(t, s.ok("tasks", "--state", "RUNNING"), "in hand of w1")
	eventually(t, "it waits for its type", func() bool {
		return ids(data[taskList](s, "tasks", "--state", "PENDING", "--type", "nobody")) == "waits"
	})

	for _, args := range [][]string{{"--state", "DONE"}, {"--limit", "0"}, {"--since", "-1h"}, {"extra"}} {
		require.Equal(t, 2, s.run(append([]string{"tasks"}, args...)...).code, args)
	}
	o := s.run("tasks", "--after", "nonsense")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "page")
}
