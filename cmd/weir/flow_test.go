package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSubmitToWorkerToTask(t *testing.T) {
	s := newSite(t)
	out := s.ok("submit", "--type", "echo", "--id", "a", "--payload", `{"x":"ü"}`)
	require.Regexp(t, `^task a: new, entry \d+-0\n$`, out)
	pending := data[task](s, "task", "a")
	require.Equal(t, "PENDING", pending.State)

	w := s.worker("--consumer", "w1", "--lease", "3s")
	got := data[submitted](s, "submit", "--type", "echo", "--id", "a", "--payload", `{"x":"ü"}`, "--wait")
	require.Equal(t, 1, got.Known)
	require.Equal(t, "SUCCEEDED", got.Tasks[0].State)
	require.JSONEq(t, `{"x":"ü"}`, string(got.Tasks[0].Result))

	got = data[submitted](s, "submit", "--type", "steps", "--id", "st", "--payload", `{"n":2,"sleep_ms":1}`, "--wait")
	require.Equal(t, 1, got.New)
	v := data[task](s, "task", "st")
	require.Len(t, v.Units, 1)
	require.Equal(t, "steps", v.Units[0].Type)
	require.EqualValues(t, 1, v.Units[0].Attempt)
	require.Equal(t, "2", string(v.Units[0].Result))
	require.Len(t, v.Units[0].Steps, 2)
	require.Equal(t, "step-1", v.Units[0].Steps[0].Step)
	require.Equal(t, "done", v.Units[0].Steps[0].Status)

	text := s.ok("task", "st")
	for _, want := range []string{"SUCCEEDED", "steps", "step-1", "step-2", "RESULT"} {
		require.Contains(t, text, want)
	}

	st := data[status](s, "status")
	require.Equal(t, s.stream, st.Stream)
	require.EqualValues(t, 2, st.States["SUCCEEDED"])
	require.Len(t, st.Consumers, 1)
	require.Equal(t, "w1", st.Consumers[0].Name)
	require.True(t, st.Consumers[0].Live)
	text = s.ok("status")
	for _, want := range []string{"agent-workers", "SUCCEEDED", "w1", "yes"} {
		require.Contains(t, text, want)
	}

	w.signal(syscall.SIGTERM)
	require.Contains(t, w.await("stopped"), "2 succeeded")
	require.Zero(t, w.end())
	require.Empty(t, data[status](s, "status").Consumers, "a worker that drained leaves no name behind")
}

func TestTheLifeOfATaskThatFails(t *testing.T) {
	s := newSite(t)
	s.worker("--json")
	got := data[submitted](s, "submit", "--type", "fail", "--id", "f", "--payload", `{"times":2,"after_ms":10}`, "--wait")
	require.Equal(t, "3", string(got.Tasks[0].Result))
	v := data[task](s, "task", "f")
	require.EqualValues(t, 2, v.Units[0].Attempts["failures"])
	require.NotEmpty(t, v.Timeline)

	got = data[submitted](s, "submit", "--type", "panic", "--id", "p", "--payload", `{"times":1}`, "--wait")
	require.Equal(t, "2", string(got.Tasks[0].Result))
	v = data[task](s, "task", "p")
	require.EqualValues(t, 1, v.Units[0].Attempts["crashes"])

	o := s.run("submit", "--type", "sleep", "--id", "bad", "--payload", `{"ms":-1}`, "--wait")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.out, "rejected")
	require.Empty(t, o.err)
	// It ran once: no attempt comes after a rejection.
	require.EqualValues(t, 1, data[task](s, "task", "bad").Units[0].Attempt)
	require.Regexp(t, `attempts +1 \(failures: 1\)`, s.ok("task", "bad"))
}

func TestDeadLetters(t *testing.T) {
	s := newSite(t)
	s.worker()
	require.Contains(t, s.ok("dead", "list"), "no dead letters")
	for _, id := range []string{"d1", "d2", "d3"} {
		require.Equal(t, 1, s.run("submit", "--type", "sleep", "--id", id, "--payload", `{"ms":-1}`, "--wait").code)
	}
	list := data[letters](s, "dead", "list")
	require.Len(t, list.Letters, 3)
	require.Equal(t, "rejected", list.Letters[0].Reason)
	require.Equal(t, "d1", list.Letters[0].TaskID)
	page := data[letters](s, "dead", "list", "--limit", "2")
	require.Len(t, page.Letters, 2)
	require.True(t, page.More)
	page = data[letters](s, "dead", "list", "--after", page.Letters[1].ID)
	require.Len(t, page.Letters, 1)
	require.Empty(t, data[letters](s, "dead", "list", "--reason", "budget_spent").Letters)
	require.Contains(t, s.ok("dead", "list"), "rejected")

	one := data[letter](s, "dead", "show", list.Letters[0].ID)
	require.Equal(t, "task_id", *one.Fields[0].Name)
	require.Equal(t, "d1", *one.Fields[0].Value)
	require.Contains(t, s.ok("dead", "show", one.ID), `{"ms":-1}`)

	s.ok("dead", "drop", list.Letters[0].ID)
	require.Equal(t, "FAILED", s.state("d1"))
	s.ok("dead", "complete", list.Letters[1].ID)
	require.Equal(t, "SUCCEEDED", s.state("d2"))
	// It fails again, and is a dead letter again.
	s.ok("dead", "retry", "--all", "--task", "d3")
	eventually(t, "a new dead letter", func() bool {
		l := data[letters](s, "dead", "list").Letters
		return len(l) == 1 && l[0].ID != list.Letters[2].ID
	})

	for _, args := range [][]string{
		{"dead", "complete", list.Letters[0].ID}, {"dead", "show", "1-1"}, {"dead", "retry", "nonsense"},
	} {
		o := s.run(args...)
		require.Equal(t, 1, o.code, args)
		require.Contains(t, o.err, "no dead letter")
	}
}

func TestSubmitAFile(t *testing.T) {
	s := newSite(t)
	s.worker()
	lines := `{"id":"x1","type":"echo","payload":{"n":1}}

{"id":"x2","payload":[2],"fields":{"tenant":"t1"}}
{"id":"x3","type":"echo","payload":"héllo","content_type":"text/plain"}
{"id":"x4","type":"echo","payload_base64":"/wA=","content_type":"application/octet-stream"}
`
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
	got := data[submitted](s, "submit", "--type", "echo", "--file", file, "--wait")
	require.Equal(t, 4, got.New)
	require.JSONEq(t, `{"n":1}`, string(got.Tasks[0].Result))
	require.JSONEq(t, `[2]`, string(got.Tasks[1].Result))
	require.JSONEq(t, `"héllo"`, string(got.Tasks[2].Result))
	require.Empty(t, got.Tasks[3].Result, "bytes that are no text are in base64")

	o := command(t, s.env, lines, "submit", "--type", "echo", "-")
	require.Zero(t, o.code, o.err)
	require.Equal(t, "4 tasks: 0 new, 4 known\n", o.out)

	o = command(t, s.env, `{"id":"y1","type":"echo"}`+"\n"+`{"id":"y2","typ":"echo"}`, "submit", "-")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.err, "line 2 of the standard input")
	require.Contains(t, o.err, `unknown field "typ"`)
}

func TestSubmitForLater(t *testing.T) {
	s := newSite(t)
	s.worker("--lease", "900ms")
	out := s.ok("submit", "--type", "echo", "--id", "far", "--delay", "2h")
	require.Regexp(t, `^task far: new, is due \d{4}-.* \(in (2h00m|1h59m)[^)]*\)\n$`, out)
	require.Regexp(t, `^task far: known, is due `, s.ok("submit", "--type", "echo", "--id", "far", "--delay", "5s"))
	v := data[task](s, "task", "far")
	require.Equal(t, "SCHEDULED", v.State)
	require.Empty(t, v.EntryID)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), *v.Units[0].DueAt, time.Minute)
	require.Regexp(t, `due +\d{4}-`, s.ok("task", "far"))

	at := time.Now().Add(time.Hour).Truncate(time.Second)
	got := data[submitted](s, "submit", "--type", "echo", "--id", "at", "--at", at.Format(time.RFC3339))
	require.True(t, got.Tasks[0].DueAt.Equal(at))
	require.Empty(t, got.Tasks[0].EntryID)

	// A producer that knows nothing of Weir names a time with its entry.
	s.xadd("task_id", "raw", "type", "echo", "payload", "{}", "due", fmt.Sprint(at.UnixMilli()))
	eventually(t, "it waits for its time", func() bool { return s.state("raw") == "SCHEDULED" })
	v = data[task](s, "task", "raw")
	require.True(t, v.Units[0].DueAt.Equal(at))
	st := data[status](s, "status")
	require.EqualValues(t, 3, st.States["SCHEDULED"])
	require.EqualValues(t, 2, st.Delayed)
	require.EqualValues(t, 1, st.Due)
	require.Zero(t, st.Pending)
	require.Regexp(t, `delayed +2 to join the stream`, s.ok("status"))

	began := time.Now()
	got = data[submitted](s, "submit", "--type", "echo", "--id", "soon", "--delay", "1s", "--wait")
	require.Equal(t, "SUCCEEDED", got.Tasks[0].State)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	s.xadd("task_id", "raw2", "type", "echo", "payload", "{}", "due", fmt.Sprint(time.Now().Add(time.Second).UnixMilli()))
	eventually(t, "its time has come", func() bool { return s.state("raw2") == "SUCCEEDED" })

	o := s.run("submit", "--type", "echo", "--id", "far", "--wait", "--timeout", "100ms")
	require.Equal(t, 1, o.code)
	require.Contains(t, o.out, "SCHEDULED")
	require.Contains(t, o.out, "it is due")
}

func TestSubmitUnique(t *testing.T) {
	s := newSite(t)
	require.Regexp(t, `^task a: new, `, s.ok("submit", "--type", "echo", "--id", "a", "--unique", "k", "--for", "1h"))
	require.Regexp(t, `^task a: known, entry `, s.ok("submit", "--type", "echo", "--id", "b", "--payload", "2", "--unique", "k", "--for", "1h"))
	lines := `{"id":"c","unique":"k","for":"1h"}
{"id":"d","delay":"1h"}
{"id":"e"}
{"id":"f","at":"2031-05-04T15:00:00Z","unique":"k2","for":"10m"}
`
	o := command(t, s.env, lines, "submit", "--type", "echo", "--delay", "2h", "--json", "-")
	require.Zero(t, o.code, o.err)
	var got submitted
	require.NoError(t, json.Unmarshal([]byte(o.out), &got))
	require.Equal(t, 3, got.New)
	require.Equal(t, "a", got.Tasks[0].TaskID)
	require.True(t, got.Tasks[0].Known)
	require.WithinDuration(t, time.Now().Add(time.Hour), *got.Tasks[1].DueAt, time.Minute)
	require.WithinDuration(t, time.Now().Add(2*time.Hour), *got.Tasks[2].DueAt, time.Minute, "what a line does not say, the flags do")
	require.Equal(t, 2031, got.Tasks[3].DueAt.Year())
	require.EqualValues(t, 3, data[status](s, "status").States["SCHEDULED"])
}

func TestSubmitMany(t *testing.T) {
	s := newSite(t)
	out := s.ok("submit", "--type", "noop", "--id", "m", "--count", "2500")
	require.Equal(t, "2,500 tasks: 2,500 new, 0 known\n", out)
	require.Equal(t, "2,500 tasks: 0 new, 2,500 known\n", s.ok("submit", "--type", "noop", "--id", "m", "--count", "2500"))
	w := s.worker()
	eventually(t, "all done", func() bool { return data[status](s, "status").States["SUCCEEDED"] == 2500 })
	w.signal(syscall.SIGINT)
	require.Zero(t, w.end())
}

func TestTwoUnitsOfATask(t *testing.T) {
	s := newSite(t)
	s.worker()
	for _, step := range []string{"one", "two"} {
		s.ok("submit", "--type", "echo", "--id", "u", "--step", step, "--payload", `"`+step+`"`, "--wait")
	}
	v := data[task](s, "task", "u")
	require.Len(t, v.Units, 2)
	require.Equal(t, `"one"`, string(v.Units[0].Result))
	require.Equal(t, `"two"`, string(v.Units[1].Result))
}

func TestSigtermLetsWorkEnd(t *testing.T) {
	s := newSite(t)
	w := s.worker()
	s.ok("submit", "--type", "sleep", "--id", "z", "--payload", `{"ms":1000}`)
	eventually(t, "it runs", func() bool { return s.state("z") == "RUNNING" })
	w.signal(syscall.SIGTERM)
	require.Zero(t, w.end())
	require.Equal(t, "SUCCEEDED", s.state("z"))
}

func TestSigtermGivesLongWorkBack(t *testing.T) {
	s := newSite(t)
	w := s.worker("--grace", "50ms")
	s.ok("submit", "--type", "sleep", "--id", "long", "--payload", `{"ms":3000}`)
	eventually(t, "it runs", func() bool { return s.state("long") == "RUNNING" })
	w.signal(syscall.SIGTERM)
	require.Zero(t, w.end())
	require.Equal(t, "PENDING", s.state("long"))

	s.worker() // with the default lease of 15 s: what was released is taken at once
	began := time.Now()
	eventually(t, "it runs elsewhere", func() bool { return s.state("long") == "RUNNING" })
	require.Less(t, time.Since(began), 5*time.Second)
	v := data[task](s, "task", "long")
	require.EqualValues(t, 1, v.Units[0].Attempt, "a drain charges nothing")
	require.EqualValues(t, 1, v.Units[0].Attempts["interruptions"])
}

func TestASecondSignalEndsAtOnce(t *testing.T) {
	s := newSite(t)
	w := s.worker("--grace", "1h")
	s.ok("submit", "--type", "sleep", "--id", "s", "--payload", `{"ms":3600000}`)
	eventually(t, "it runs", func() bool { return s.state("s") == "RUNNING" })
	w.signal(syscall.SIGTERM)
	eventually(t, "it drains", func() bool { return w.cmd.Process.Signal(syscall.SIGTERM) != nil || isDone(w) })
	require.Equal(t, 1, w.end())
	require.Contains(t, w.stderr(), "second signal")
}

func isDone(p *proc) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func TestKilledWorkerIsReplaced(t *testing.T) {
	s := newSite(t)
	w := s.worker("--lease", "1500ms", "--tick", "200ms", "--consumer", "first")
	s.ok("submit", "--type", "sleep", "--id", "k", "--count", "20", "--payload", `{"ms":1500}`)
	eventually(t, "they run", func() bool { return data[status](s, "status").Pending == 20 })
	w.signal(syscall.SIGKILL)
	require.Equal(t, -1, w.end())
	s.worker("--lease", "1500ms", "--tick", "200ms", "--consumer", "second")
	eventually(t, "all end", func() bool { return data[status](s, "status").States["SUCCEEDED"] == 20 })
	v := data[task](s, "task", "k-1")
	require.EqualValues(t, 1, v.Units[0].Attempts["deaths"])
}

func TestEffectsHappenOnce(t *testing.T) {
	s := newSite(t)
	crashes := []string{"none", "before-effect", "after-effect", "before-ack"}
	for _, c := range crashes {
		s.ok("submit", "--type", "effect", "--id", s.stream+"-"+c, "--payload", fmt.Sprintf(`{"crash":%q}`, c))
	}
	// Three of them kill their process, each once.
	done := func() bool {
		return data[status](s, "status").States["SUCCEEDED"] == 4 && data[status](s, "status").Pending == 0
	}
	for start := 0; start < 8 && !done(); start++ {
		w := s.start("worker", "--lease", "1s", "--tick", "100ms", "--max-in-flight", "1", "--consumer", fmt.Sprintf("e%d", start))
		eventually(t, "all done, or the worker died", func() bool { return isDone(w) || done() })
		if isDone(w) {
			require.Equal(t, 137, w.end())
		}
	}
	require.True(t, done())
	for _, c := range crashes {
		n, err := s.srv.Client().Get(t.Context(), "effect:"+s.stream+"-"+c+":effect").Int()
		require.NoError(t, err)
		require.Equal(t, 1, n, c)
	}
	// What a crash left in the open is shown as what it is, whoever looked it up.
	found := data[task](s, "task", s.stream+"-after-effect").Units[0].Steps[0]
	require.Equal(t, "found", found.Status)
	require.NotEmpty(t, found.Result)
	require.Regexp(t, `effect +found by its key, not run again`, s.ok("task", s.stream+"-after-effect"))
	require.Equal(t, "done", data[task](s, "task", s.stream+"-none").Units[0].Steps[0].Status)
	require.Zero(t, data[status](s, "status").Dead)
}

func TestExitIsPoison(t *testing.T) {
	s := newSite(t)
	w := s.worker()
	s.ok("submit", "--type", "exit", "--payload", `{"code":42}`)
	require.Equal(t, 42, w.end())
}

func TestHealth(t *testing.T) {
	s := newSite(t)
	w := s.start("worker", "--json", "--health", "127.0.0.1:0", "--grace", "1h")
	var line struct {
		Health   string   `json:"health"`
		Consumer string   `json:"consumer"`
		Types    []string `json:"types"`
	}
	require.NoError(t, json.Unmarshal([]byte(w.await(`"ready"`)), &line))
	require.NotEmpty(t, line.Consumer)
	require.Contains(t, line.Types, "effect")
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + line.Health + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, strings.TrimSpace(string(b))
	}
	for _, path := range []string{"/livez", "/readyz"} {
		code, body := get(path)
		require.Equal(t, 200, code, body)
		require.Equal(t, "ok", body)
	}
	s.ok("submit", "--type", "sleep", "--id", "h", "--payload", `{"ms":2000}`)
	eventually(t, "it runs", func() bool { return s.state("h") == "RUNNING" })
	w.signal(syscall.SIGTERM)
	eventually(t, "it is not ready", func() bool { code, _ := get("/readyz"); return code == 503 })
	code, body := get("/livez")
	require.Equal(t, 200, code, body)
	require.Zero(t, w.end())
	http.DefaultClient.CloseIdleConnections()
}

func TestFieldNames(t *testing.T) {
	s := newSite(t)
	s.env = append(s.env, "WEIR_FIELDS=task_id=id,type=kind,payload=body")
	s.worker("--types", "echo")
	s.xadd("id", "r1", "kind", "echo", "body", `{"a":1}`)
	eventually(t, "done", func() bool { return s.state("r1") == "SUCCEEDED" })
	got := data[submitted](s, "submit", "--type", "echo", "--id", "r2", "--wait")
	require.Equal(t, "SUCCEEDED", got.Tasks[0].State)
}
