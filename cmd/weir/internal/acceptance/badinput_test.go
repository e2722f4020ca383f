package acceptance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge/redistest"
)

// What no handler can use is set aside at its first delivery, to the byte and with its reason, and its neighbors run.
func TestUnusableEntriesAreSetAsideAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3*time.Second)
	s.worker("w1", "--max-payload", "1000")
	junk := "\x00\xff\xfe\x80"
	all := []struct {
		name   string
		fields []string
		reason string
	}{
		{"no usable field", []string{"colour", "blue"}, "undecodable"},
		{"a field name that is not UTF-8", []string{"task_id", "bad-key", "type", "noop", junk, "x"}, "undecodable"},
		{"a task id that is not UTF-8", []string{"task_id", junk, "type", "noop", "payload", "{}"}, "undecodable"},
		{"no type", []string{"task_id", "no-type", "payload", "{}"}, "undecodable"},
		{"content type that is none", []string{"task_id", "bad-ct", "type", "noop", "payload", "{}", "content_type", "what?"}, "undecodable"},
		{"unknown content type", []string{"task_id", "odd-ct", "type", "steps", "payload", "{}", "content_type", "application/x-odd"}, "bad_payload"},
		{"broken JSON", []string{"task_id", "bad-json", "type", "steps", "payload", `{"n":`, "content_type", "application/json"}, "bad_payload"},
		{"protobuf for a JSON handler", []string{"task_id", "proto", "type", "steps", "payload", junk, "content_type", "application/protobuf"}, "bad_payload"},
		{"wrong types in JSON", []string{"task_id", "odd-json", "type", "steps", "payload", `{"n":"many"}`}, "bad_payload"},
		{"payload over the cap", []string{"task_id", "large", "type", "noop", "payload", strings.Repeat("x", 1001)}, "too_large"},
		{"no such handler", []string{"task_id", "handler", "type", "noop/v9", "payload", "{}"}, "unknown_handler"},
		{"another work under one id", []string{"task_id", "good-0", "type", "noop", "payload", "other"}, "id_conflict"},
	}
	good := func(i int) *redis.XAddArgs {
		return xadd(s.stream, "task_id", fmt.Sprint("good-", i), "type", "noop", "payload", "{}")
	}
	require.NoError(t, s.rdb.XAdd(t.Context(), good(0)).Err())
	entries := map[string]int{} // id of the entry → which one
	for i, c := range all {
		id, err := s.rdb.XAdd(t.Context(), xadd(s.stream, c.fields...)).Result()
		require.NoError(t, err)
		entries[id] = i
		require.NoError(t, s.rdb.XAdd(t.Context(), good(i+1)).Err())
	}
	neighbors := make([]string, len(all)+1)
	for i := range neighbors {
		neighbors[i] = fmt.Sprint("good-", i)
	}
	s.await(waitLong, "the neighbors have succeeded", func() bool { return allAre(s.states(neighbors), "SUCCEEDED") })
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
	letters := s.letters()
	require.Len(t, letters, len(all))
	for _, l := range letters {
		i, ours := entries[l.EntryID]
		require.True(t, ours, "%+v", l)
		c := all[i]
		require.Equal(t, c.reason, l.Reason, "%s: %s", c.name, l.Detail)
		require.Equal(t, int64(1), l.Deliveries, c.name)
		require.NotEmpty(t, l.Detail, c.name)
		require.Equal(t, c.fields, s.letterFields(l.ID), c.name)
		t.Logf("%-32s %s: %s", c.name, l.Reason, firstLine(l.Detail))
	}
}

// letterFields are the original names and values of a dead letter, by `weir dead show`.
func (s *site) letterFields(id string) []string {
	s.t.Helper()
	out, err := s.weir("dead show "+id, "--json")
	require.NoError(s.t, err)
	var l letter
	require.NoError(s.t, json.Unmarshal([]byte(out), &l), out)
	var flat []string
	for _, f := range l.Fields {
		flat = append(flat, f.Name+string(f.NameBase64), f.Value+string(f.ValueBase64))
	}
	return flat
}

// fails runs weir and returns its exit code and what it says.
func (s *site) fails(args ...string) (code int, said string) {
	s.t.Helper()
	cmd := exec.Command(weirBinary(s.t), args...)
	cmd.Env = environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		s.t.Fatalf("weir %v: %v instead of an exit code; it said %q", args, err, stderr.String())
	}
	return exit.ExitCode(), stderr.String()
}

func TestSubmitRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3*time.Second)
	s.worker("w1")
	to := []string{"--redis", s.srv.URL(), "--stream", s.stream, "--group", s.group}
	file := t.TempDir() + "/large"
	require.NoError(t, os.WriteFile(file, []byte(`{"id":"large","type":"noop","payload":"`+strings.Repeat("x", 1<<20)+`"}`), 0o600))
	code, said := s.fails(append([]string{"submit", "--file", file}, to...)...)
	require.Equal(t, 1, code)
	require.Contains(t, said, "1048576")
	t.Log(strings.TrimSpace(said))

	// The same id at once, later, and with other work.
	first, err := s.weir("submit", "--type", "echo", "--id", "same", "--payload", `{"a":1}`, "--json")
	require.NoError(t, err)
	second, err := s.weir("submit", "--type", "echo", "--id", "same", "--payload", `{"a":1}`, "--json", "--wait")
	require.NoError(t, err)
	var one, two struct {
		New, Known int
		Tasks      []struct {
			EntryID string `json:"entry_id"`
			Result  json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(first), &one))
	require.NoError(t, json.Unmarshal([]byte(second), &two))
	require.Equal(t, 1, one.New)
	require.Equal(t, 1, two.Known)
	require.Equal(t, one.Tasks[0].EntryID, two.Tasks[0].EntryID)
	require.JSONEq(t, `{"a":1}`, string(two.Tasks[0].Result))
	code, said = s.fails(append([]string{"submit", "--type", "echo", "--id", "same", "--payload", `{"a":2}`}, to...)...)
	require.Equal(t, 1, code)
	t.Log(strings.TrimSpace(said))
}

// A producer that writes the same id twice has one task and one result.
func TestTheSameIDTwiceIsOneTask(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3*time.Second)
	for range 2 {
		for _, id := range ids("e", 50) {
			require.NoError(t, s.rdb.XAdd(t.Context(), xadd(s.stream, "task_id", id, "type", "effect", "payload", "{}")).Err())
		}
	}
	s.worker("w1")
	s.worker("w2")
	for _, id := range ids("e", 50) { // and later
		require.NoError(t, s.rdb.XAdd(t.Context(), xadd(s.stream, "task_id", id, "type", "effect", "payload", "{}")).Err())
	}
	s.await(waitLong, "all have succeeded", func() bool {
		return allAre(s.states(ids("e", 50)), "SUCCEEDED") && s.pending() == 0
	})
	require.Empty(t, s.wrongEffects(ids("e", 50), 1))
	st, err := s.status()
	require.NoError(t, err)
	require.Equal(t, int64(50), st.States["SUCCEEDED"])
	require.Empty(t, s.letters())
}

func TestStrangeTaskIDsWork(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3*time.Second)
	s.worker("w1")
	strange := []string{"a{b}c", "{}", "}{", "with some spaces", " ", strings.Repeat("x", 1024), "nul\x00inside", "a:b", "a%3Ab", "ünïcödé", "new\nline", "*", "[a-z]"}
	var tasks []task
	for _, id := range strange {
		tasks = append(tasks, task{ID: id, Type: "effect", Payload: map[string]string{}})
	}
	s.submit(tasks...)
	s.await(waitLong, "all have succeeded", func() bool { return allAre(s.states(strange), "SUCCEEDED") })
	require.Empty(t, s.wrongEffects(strange, 1))
	st, err := s.status()
	require.NoError(t, err)
	require.Equal(t, int64(len(strange)), st.States["SUCCEEDED"])
	require.Empty(t, s.letters())
	// One byte more is refused by name, and set aside where a producer wrote it itself.
	require.NoError(t, s.rdb.XAdd(t.Context(), xadd(s.stream, "task_id", strings.Repeat("x", 1025), "type", "noop")).Err())
	s.await(waitLong, "it is set aside", func() bool { return len(s.letters()) == 1 })
	code, said := s.fails("submit", "--redis", s.srv.URL(), "--type", "noop", "--id", strings.Repeat("x", 1025))
	require.Equal(t, 1, code)
	require.Contains(t, said, "1025 bytes")
}

// An agent type that no node has waits with an alarm, and is nobody's dead letter.
func TestATypeThatNobodyRunsWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t, time.Second)
	w1 := s.worker("w1", "--types", "noop", "--max-deliveries", "1")
	names := ids("e", 20)
	var tasks []task
	for _, id := range names {
		tasks = append(tasks, task{ID: id, Type: "echo", Payload: map[string]int{}})
	}
	s.submit(tasks...)
	s.submit(task{ID: "n", Type: "noop", Payload: map[string]int{}})
	s.await(waitLong, "the alarm", func() bool { return w1.logged("no live node runs", "echo") == 1 })
	s.await(waitLong, "others run", func() bool { return allAre(s.states([]string{"n"}), "SUCCEEDED") })
	st, err := s.status()
	require.NoError(t, err)
	require.Equal(t, []string{"echo"}, st.Unserved)
	require.Zero(t, st.Dead)
	s.worker("w2", "--types", "echo")
	s.await(waitLong, "the newcomer has run them", func() bool { return allAre(s.states(names), "SUCCEEDED") })
	require.Empty(t, s.letters())
	s.await(waitLong, "the alarm ends", func() bool { return w1.logged("or a node runs it", "echo") == 1 })
}

func TestTwoProcessesWithOneName(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2*time.Second)
	s.worker("w1")
	args := s.workerArgs("w1")
	code, said := s.fails(args...)
	require.Equal(t, 1, code)
	require.Contains(t, said, "w1")
	require.Equal(t, 1, strings.Count(strings.TrimSpace(lastLine(said)), "weir worker:"), said)
	t.Log(lastLine(said))
	// The first one has noticed nothing.
	s.submit(task{ID: "t", Type: "effect", Payload: map[string]string{}})
	s.await(waitLong, "it still works", func() bool { return allAre(s.states([]string{"t"}), "SUCCEEDED") })
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// What is wrong with a server or a flag is one sentence at start that names it.
func TestAStartThatCannotWorkSaysWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3*time.Second, redistest.Password("secret"))
	url := s.srv.URL()
	require.NoError(t, s.rdb.Set(t.Context(), "a-string", "x", 0).Err())
	evicting := redistest.Start(t, redistest.MaxMemory("50mb", "allkeys-lru"))
	old := startOldServer(t)
	for _, c := range []struct {
		name string
		code int
		says []string
		args []string
	}{
		{"wrong address", 1, []string{"127.0.0.1:1", "does not answer"}, []string{"--redis", "redis://127.0.0.1:1"}},
		{"no password", 1, []string{"password"}, []string{"--redis", "redis://" + s.srv.Addr()}},
		{"wrong password", 1, []string{"password"}, []string{"--redis", "redis://:wrong@" + s.srv.Addr()}},
		{"a key of another type", 1, []string{"a-string"}, []string{"--redis", url, "--stream", "a-string"}},
		{"evicting", 1, []string{"allkeys-lru", "noeviction"}, []string{"--redis", evicting.URL()}},
		{"too old", 1, []string{"6.0.16", "6.2"}, []string{"--redis", "redis://" + old}},
		{"lease and beat", 2, []string{"Lease (6s)", "Beat (4s)"}, []string{"--redis", url, "--lease", "6s", "--beat", "4s"}},
		{"no room", 2, []string{"InFlight (-5)"}, []string{"--redis", url, "--max-in-flight", "-5"}},
		{"deliveries", 2, []string{"MaxDeliveries (-7)"}, []string{"--redis", url, "--max-deliveries", "-7"}},
		{"braces", 2, []string{"a}b{"}, []string{"--redis", url, "--stream", "a}b{"}},
		{"not a URL", 2, []string{"--redis"}, []string{"--redis", "localhost"}},
	} {
		code, said := s.fails(append([]string{"worker"}, c.args...)...)
		require.Equal(t, c.code, code, "%s: %s", c.name, said)
		for _, word := range c.says {
			require.Contains(t, said, word, c.name)
		}
		require.NotContains(t, said, "secret", c.name)
		require.LessOrEqual(t, strings.Count(strings.TrimSpace(said), "\n"), 1, "%s: one sentence: %s", c.name, said)
		t.Logf("%-22s exit %d: %s", c.name, code, lastLine(said))
	}
}

// In a group of nodes with different agents, an entry that the wrong node reads reaches the right one in its next turn,
// however many wrong ones there are to read it first.
func TestAnEntryFindsTheOneNodeThatRunsIt(t *testing.T) {
	t.Parallel()
	s := newSite(t, 5*time.Second)
	for _, name := range []string{"w1", "w2", "w3", "w4"} {
		s.worker(name, "--types", "noop")
	}
	s.worker("w5", "--types", "echo")
	names := ids("e", 50)
	var tasks []task
	for _, id := range names {
		tasks = append(tasks, task{ID: id, Type: "echo", Payload: map[string]int{}})
	}
	s.submit(tasks...)
	took := s.await(waitLong, "all have succeeded", func() bool { return allAre(s.states(names), "SUCCEEDED") })
	require.LessOrEqual(t, took, 2*s.tick()+3*time.Second)
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
	t.Logf("%d entries, and four nodes of five cannot run them: all done after %v (a tick is %v)", len(names), took.Round(time.Millisecond), s.tick())
}
