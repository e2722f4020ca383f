package main_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge/redistest"
)

// What bad entries get: a dead letter at the first delivery with the raw fields kept and the reason named, and the
// entries beside them are processed.
func TestBadEntriesAreSetAside(t *testing.T) {
	s := newSite(t)
	cases := []struct {
		name   string
		fields []string
		reason string
	}{
		{"no usable field", []string{"hello", "world"}, "undecodable"},
		{"no type", []string{"task_id", "nt", "payload", "{}"}, "undecodable"},
		{"a type without an agent", []string{"task_id", "ta", "type", "/x"}, "undecodable"},
		{"a name that is not UTF-8", []string{"task_id", "nu", "type", "noop", "\xff\xfe", "x"}, "undecodable"},
		{"an id that is not UTF-8", []string{"task_id", "\xff", "type", "noop"}, "undecodable"},
		{"an id of 2 kB", []string{"task_id", strings.Repeat("i", 2048), "type", "noop"}, "undecodable"},
		{"a content type that is none", []string{"task_id", "ct", "type", "echo", "content_type", "gibberish"}, "undecodable"},
		{"an unknown content type for its handler", []string{"task_id", "uc", "type", "steps", "content_type", "application/x-unknown", "payload", "{}"}, "bad_payload"},
		{"broken JSON", []string{"task_id", "bj", "type", "steps", "payload", `{"n":`}, "bad_payload"},
		{"a handler that the agent lacks", []string{"task_id", "uh", "type", "echo/nope", "payload", "{}"}, "unknown_handler"},
		{"a payload over the cap", []string{"task_id", "big", "type", "echo", "payload", strings.Repeat("x", 1<<20+1)}, "too_large"},
		{"an attempt that is no number", []string{"task_id", "an", "type", "echo", "attempt", "many"}, "undecodable"},
	}
	ids := make([]string, len(cases))
	for i, c := range cases {
		s.xadd("task_id", "good-"+c.name, "type", "echo", "payload", "1")
		ids[i] = s.xadd(c.fields...)
	}
	s.worker()
	eventually(t, "all set aside", func() bool { return data[status](s, "status").Dead >= int64(len(cases)) })
	eventually(t, "nothing pending", func() bool { return data[status](s, "status").Pending == 0 })
	for i, c := range cases {
		require.Equal(t, "SUCCEEDED", s.state("good-"+c.name), c.name)
		var found *letter
		for _, l := range data[letters](s, "dead", "list").Letters {
			if l.EntryID == ids[i] {
				full := data[letter](s, "dead", "show", l.ID)
				found = &full
			}
		}
		require.NotNil(t, found, c.name)
		require.Equal(t, c.reason, found.Reason, c.name)
		require.NotEmpty(t, found.Detail, c.name)
		require.EqualValues(t, 1, found.Deliveries, c.name)
		var kept []string
		for _, f := range found.Fields {
			for _, part := range []struct {
				text  *string
				bytes []byte
			}{{f.Name, f.NameBase64}, {f.Value, f.ValueBase64}} {
				if part.text != nil {
					part.bytes = []byte(*part.text)
				}
				kept = append(kept, string(part.bytes))
			}
		}
		require.Equal(t, c.fields, kept, c.name)
	}
	require.EqualValues(t, len(cases), data[status](s, "status").Dead)
	s.ok("dead", "list")
	for _, l := range data[letters](s, "dead", "list").Letters {
		out := s.ok("dead", "show", l.ID)
		require.NotContains(t, out, "\xff", "nothing that a terminal cannot show")
	}
}

func TestATypeThatNobodyHasWaits(t *testing.T) {
	s := newSite(t)
	w := s.worker("--types", "echo", "--consumer", "one")
	s.ok("submit", "--type", "noop", "--id", "n")
	s.ok("submit", "--type", "echo", "--id", "e", "--wait")
	eventually(t, "the alarm", func() bool { return len(data[status](s, "status").Unserved) == 1 })
	require.Equal(t, []string{"noop"}, data[status](s, "status").Unserved)
	require.Regexp(t, `UNSERVED +noop \(1, oldest .+\): no live node runs this type`, s.ok("status"))
	require.Zero(t, data[status](s, "status").Dead)
	v := data[task](s, "task", "n")
	require.Equal(t, "PENDING", v.State)
	require.Equal(t, "noop", v.Waits[0].Type)
	require.False(t, v.Waits[0].Served)
	const why = `since .+ in the stream of type noop: no live node runs it`
	require.Regexp(t, `waits +`+why, s.ok("task", "n"))
	o := s.run("submit", "--type", "noop", "--id", "n", "--wait", "--timeout", "100ms")
	require.Equal(t, 1, o.code)
	require.Regexp(t, `n +PENDING +.*--timeout \(100ms\) is over; it waits `+why, o.out)

	// Of what another producer added there is no other trace.
	s.xadd("task_id", "nb-1", "type", "noop/nobody", "payload", "{}")
	eventually(t, "it waits too", func() bool { return s.state("nb-1") == "PENDING" })
	v = data[task](s, "task", "nb-1")
	require.Equal(t, "noop/nobody", v.Units[0].Type)
	require.Equal(t, "noop", v.Waits[0].Type)
	require.Regexp(t, `waits +`+why, s.ok("task", "nb-1"))
	st := data[status](s, "status")
	require.EqualValues(t, 2, st.Waiting[0].Entries)
	require.EqualValues(t, 2, st.States["PENDING"])

	s.worker("--types", "noop", "--consumer", "two")
	eventually(t, "it runs where the type is", func() bool { return s.state("n") == "SUCCEEDED" })
	require.Empty(t, data[status](s, "status").Unserved)
	require.False(t, isDone(w))
	require.Empty(t, data[task](s, "task", "n").Waits)
}

// A task of which there is nothing but a dead letter is known by that.
func TestATaskThatIsOnlyADeadLetter(t *testing.T) {
	s := newSite(t)
	s.xadd("task_id", "lost", "payload", "{}")
	nameless := s.xadd("hello", "world")
	s.worker()
	eventually(t, "both are set aside", func() bool { return data[status](s, "status").Dead == 2 })
	for _, id := range []string{"lost", nameless} {
		require.Regexp(t, `^task `+id+`: no record; dead letter (\d+-\d+): undecodable, .+ \(weir dead show \d+-\d+\)\n$`, s.ok("task", id))
		v := data[task](s, "task", id)
		require.Empty(t, v.Units)
		require.Equal(t, "undecodable", v.DeadLetter.Reason)
		s.ok("dead", "show", v.DeadLetter.ID)
	}
	require.Contains(t, s.run("task", "other").err, "no task")
}

// The log names reasons as everything else does.
func TestReasonsHaveOneName(t *testing.T) {
	s := newSite(t)
	w := s.worker()
	s.xadd("hello", "world")
	eventually(t, "it is set aside", func() bool { return data[status](s, "status").Dead == 1 })
	require.Contains(t, w.stderr(), "reason=undecodable")
}

func TestASubmissionOfWhatIsDone(t *testing.T) {
	s := newSite(t)
	s.worker()
	s.xadd("task_id", "ada", "type", "echo", "payload", `{}`)
	eventually(t, "done", func() bool { return s.state("ada") == "SUCCEEDED" })
	require.Contains(t, s.ok("submit", "--type", "echo", "--id", "ada"), "task ada: new entry; the task is done already, entry ")
	require.Contains(t, s.ok("submit", "--type", "echo", "--id", "ada"), "task ada: known, entry ")

	s.xadd("task_id", "eve", "type", "echo", "payload", `{}`)
	eventually(t, "done", func() bool { return s.state("eve") == "SUCCEEDED" })
	got := data[submitted](s, "submit", "--type", "echo", "--id", "eve", "--wait")
	require.Equal(t, "SUCCEEDED", got.Tasks[0].Before)
	require.Equal(t, 1, got.New)
}

// A worker that cannot start has done nothing to sum up.
func TestAFailedStartHasNoSummary(t *testing.T) {
	evicting := redistest.Start(t, redistest.MaxMemory("100mb", "allkeys-lru"))
	for _, format := range []string{"--json=false", "--json"} {
		o := command(t, cleanEnv("WEIR_REDIS="+evicting.URL()), "", "worker", format)
		require.Equal(t, 1, o.code)
		require.Empty(t, o.out)
		require.Contains(t, o.err, "noeviction")
	}
}

func TestTheSameIDTwice(t *testing.T) {
	s := newSite(t)
	s.worker()
	first := data[submitted](s, "submit", "--type", "echo", "--id", "i", "--payload", "1", "--wait")
	again := data[submitted](s, "submit", "--type", "echo", "--id", "i", "--payload", "1", "--wait")
	require.Equal(t, 1, again.Known)
	require.Equal(t, first.Tasks[0].EntryID, again.Tasks[0].EntryID)

	o := s.run("submit", "--type", "echo", "--id", "i", "--payload", "2")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "id taken by other work")
	require.Equal(t, 1, strings.Count(o.err, "\n"))

	// From producers that ask nobody: the same again is nothing, other work is a dead letter.
	s.xadd("task_id", "i", "type", "echo", "payload", "1", "content_type", "application/json")
	s.xadd("task_id", "i", "type", "echo", "payload", "3", "content_type", "application/json")
	eventually(t, "the conflict is set aside", func() bool { return data[status](s, "status").Dead == 1 })
	require.Equal(t, "id_conflict", data[letters](s, "dead", "list").Letters[0].Reason)
	v := data[task](s, "task", "i")
	require.Equal(t, "1", string(v.Units[0].Result))
	require.Equal(t, "SUCCEEDED", v.State)
}

func TestUncommonIDs(t *testing.T) {
	s := newSite(t)
	s.worker()
	ids := []string{"a{b}c", "{}", "}{", "with spaces", "a:b", "a%3Ab", "ä\n", "a\x00b", "*", "[x]?", strings.Repeat("k", 1024)}
	var lines bytes.Buffer
	for _, id := range ids {
		line, err := json.Marshal(map[string]any{"id": id, "type": "echo", "payload": map[string]string{"id": id}})
		require.NoError(t, err)
		lines.Write(append(line, '\n'))
	}
	o := command(t, s.env, lines.String(), "submit", "-", "--wait", "--json")
	require.Zero(t, o.code, o.err)
	var got submitted
	require.NoError(t, json.Unmarshal([]byte(o.out), &got))
	require.Equal(t, len(ids), got.New)
	for i, id := range ids {
		require.Equal(t, id, got.Tasks[i].TaskID)
		var result map[string]string
		require.NoError(t, json.Unmarshal(got.Tasks[i].Result, &result))
		require.Equal(t, id, result["id"], "never another task's state")
		if !strings.Contains(id, "\x00") { // no argument can hold it
			require.Equal(t, id, data[task](s, "task", id).TaskID)
		}
	}

	for name, id := range map[string]string{"1025 bytes": strings.Repeat("k", 1025), "not UTF-8": "\xff"} {
		o := s.run("submit", "--type", "echo", "--id", id)
		require.Equal(t, 1, o.code, name)
		require.Contains(t, o.err, "invalid task", name)
	}
}

func TestPayloadOverTheCap(t *testing.T) {
	s := newSite(t)
	big := `{"id":"big","type":"echo","payload":"` + strings.Repeat("x", 1<<20) + `"}`
	o := command(t, s.env, big, "submit", "-")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "too large")
	require.Contains(t, o.err, `"big"`)
	require.Less(t, len(o.err), 500)
	require.Zero(t, data[status](s, "status").Length)
	o = command(t, s.env, big, "submit", "-", "--max-payload", "2000000")
	require.Zero(t, o.code, o.err)
}

func TestOneConsumerNameTwice(t *testing.T) {
	s := newSite(t)
	first := s.worker("--consumer", "c", "--lease", "1500ms", "--beat", "200ms")
	o := s.run("worker", "--consumer", "c", "--lease", "1500ms")
	require.Equal(t, 1, o.code)
	require.Contains(t, lastLine(o.err), "the consumer name is taken by a live process")
	require.False(t, isDone(first))
	s.ok("submit", "--type", "echo", "--id", "still", "--wait")
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// What cannot work is said at the start in one sentence, by every command that it concerns.
func TestTheWrongServer(t *testing.T) {
	locked := redistest.Start(t, redistest.Password("secret"))
	evicting := redistest.Start(t, redistest.MaxMemory("100mb", "allkeys-lru"))
	wrongKey := newSite(t)
	require.NoError(t, wrongKey.srv.Client().Set(t.Context(), wrongKey.stream, "x", 0).Err())

	for _, c := range []struct {
		name string
		env  []string
		want string
		cmds string
	}{
		{"nobody there", []string{"WEIR_REDIS=redis://127.0.0.1:1"}, "Redis at 127.0.0.1:1 does not answer", "worker submit status task dead"},
		{"no such host", []string{"WEIR_REDIS=redis://nowhere.invalid:6379"}, "cannot be found", "worker status"},
		{"no password", []string{"WEIR_REDIS=redis://" + locked.Addr()}, "wants a password", "worker submit status task dead"},
		{"wrong password", []string{"WEIR_REDIS=redis://:wrong@" + locked.Addr()}, "refuses the password", "worker submit status task dead"},
		{"evicting", []string{"WEIR_REDIS=" + evicting.URL()}, "noeviction", "worker"},
		{"wrong key", []string{"WEIR_REDIS=" + wrongKey.srv.URL(), "WEIR_STREAM=" + wrongKey.stream}, "stream", "worker submit status task dead"},
	} {
		for name := range strings.FieldsSeq(c.cmds) {
			args := map[string][]string{
				"worker": {"worker", "--log-level", "off"}, "submit": {"submit", "--type", "noop"}, "status": {"status"},
				"task": {"task", "x"}, "dead": {"dead", "list"},
			}[name]
			o := command(t, cleanEnv(c.env...), "", args...)
			require.Equal(t, 1, o.code, "%s: %s: %s", c.name, name, o.err)
			require.Contains(t, o.err, c.want, "%s: %s", c.name, name)
			require.Equal(t, 1, strings.Count(o.err, "\n"), "%s: %s: %s", c.name, name, o.err)
			require.NotContains(t, o.err, "wrong@", "a password is not repeated")
			require.NotContains(t, o.out, "ready")
		}
	}
}

func TestUsage(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct {
		args string
		want string
	}{
		{"nonsense", `unknown command "nonsense"`},
		{"statu", `did you mean "status"?`},
		{"status --nonsense", "unknown flag: --nonsense"},
		{"status extra", `takes no arguments, and was given "extra"`},
		{"task", "give the id of one task"},
		{"task a b", "give the id of one task"},
		{"dead show", "give the id of one dead letter"},
		{"worker --grace soon", `"soon"`},
		{"dead nonsense", `unknown command "nonsense"`},
		{"dead drop", "either the ids of dead letters or --all"},
		{"dead drop --all 1-1", "either the ids of dead letters or --all"},
		{"dead drop 1-1 --type x", "go with --all"},
		{"dead list --reason nonsense", `no reason "nonsense", only`},
		{"dead drop --all --reason nonsense", "budget_spent"},
		{"dead list --limit 0", "--limit (0) must be at least 1"},
		{"submit", "--type is missing"},
		{"submit --type x --delay 1s --at 2031-05-04T15:00:00Z", "exclude each other"},
		{"submit --type x --delay -1s", "must not be negative"},
		{"submit --type x --at tomorrow", "RFC 3339"},
		{"submit --type x --unique k", "needs --for"},
		{"submit --type x --for 1h", "goes with --unique"},
		{"submit --type echo --payload {", "--payload is not JSON"},
		{"submit --type echo --count 0", "--count (0) must be at least 1"},
		{"submit --file x --id y", "--id does not go with a file"},
		{"submit --file x -", "exclude each other"},
		{"submit --type echo what", `unexpected argument "what"`},
		{"submit --type echo --timeout 1s", "--timeout goes with --wait"},
		{"worker --lease 1s --beat 5s", "Lease (1s) must be at least 3×Beat (5s)"},
		{"worker --lease 2s --tick 5s", "Tick (5s) must be at most half of Lease (2s)"},
		{"worker --max-in-flight -5", "InFlight (-5)"},
		{"worker --max-deliveries -7", "MaxDeliveries (-7)"},
		{"worker --log-level loud", `--log-level ("loud")`},
		{"worker --lease soon", `"soon"`},
		{"worker --types nope", `no type "nope"`},
		{"worker --group=", "must not be empty"},
		{"worker --stream a{b", "braces"},
		{"worker --fields colour=red", `no field "colour"`},
		{"worker --fields type=x,payload=x", `both "x"`},
		{"status --redis localhost:6379", "must be a URL"},
		{"status --redis http://x", "not a usable URL"},
		{"bench --rounds 0", "--rounds (0) must be at least 1"},
		{"bench --parked 1 --idle", "exclude each other"},
		{"version extra", "takes no arguments"},
	} {
		o := s.run(strings.Fields(c.args)...)
		require.Equal(t, 2, o.code, "%s: %s", c.args, o.err)
		require.Contains(t, o.err, c.want, c.args)
		require.Equal(t, 1, strings.Count(o.err, "\n"), "no more than a sentence: %s: %s", c.args, o.err)
		require.Empty(t, o.out, c.args)
	}

	o := command(t, cleanEnv("WEIR_REDIS="+s.srv.URL(), "WEIR_LEASE=soon"), "", "worker")
	require.Equal(t, 2, o.code)
	require.Contains(t, o.err, "$WEIR_LEASE")

	for _, args := range [][]string{{}, {"help"}, {"dead"}, {"--help"}, {"worker", "--help"}} {
		o := s.run(args...)
		require.Zero(t, o.code)
		require.Contains(t, o.out, "weir")
	}
	require.Contains(t, s.ok("worker", "--help"), "[$WEIR_CONSUMER]")
	require.NotContains(t, s.ok("worker", "--help"), "-1ns")
	require.Contains(t, s.ok("dead", "list", "--help"), "kills_nodes")
	require.Equal(t, s.ok("version"), s.ok("--version"))
}

func TestTheRedisThatIsMeant(t *testing.T) {
	s := newSite(t)
	dead := "redis://127.0.0.1:1"
	for _, c := range []struct {
		env  []string
		args []string
	}{
		{[]string{"REDIS_URL=" + s.srv.URL()}, nil},
		{[]string{"REDIS_URL=" + dead, "WEIR_REDIS=" + s.srv.URL()}, nil},
		{[]string{"REDIS_URL=" + dead, "WEIR_REDIS=" + dead}, []string{"--redis", s.srv.URL()}},
	} {
		o := command(t, cleanEnv(append(c.env, "WEIR_STREAM="+s.stream)...), "", append([]string{"status"}, c.args...)...)
		require.Zero(t, o.code, o.err)
	}
}

func TestALookMakesNothing(t *testing.T) {
	s := newSite(t)
	st := data[status](s, "status")
	require.Equal(t, s.stream, st.Stream)
	require.Zero(t, st.Length)
	require.False(t, st.StreamExists || st.GroupExists)
	require.True(t, strings.HasPrefix(s.ok("status"), "stream "+s.stream+" does not exist (yet)\n"))
	require.Empty(t, data[letters](s, "dead", "list").Letters)
	o := s.run("task", "nobody")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, `no task "nobody" is known`)
	require.Empty(t, s.srv.Client().Keys(t.Context(), "*"+s.stream+"*").Val())

	s.xadd("task_id", "x", "type", "echo")
	require.EqualValues(t, 1, data[status](s, "status").Lag)
	require.Contains(t, s.ok("status"), "no consumers")
	require.True(t, strings.HasPrefix(s.ok("status", "--group", "typo"), "group typo does not exist on stream "+s.stream))
	st = data[status](s, "status")
	require.True(t, st.StreamExists)
	require.False(t, st.GroupExists)
	s.worker()
	require.True(t, data[status](s, "status").GroupExists)
	require.NotContains(t, s.ok("status"), "does not exist")
}
