package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/streambridge/redistest"
)

// weir is the binary under test, built once.
var weir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	weir = filepath.Join(dir, "weir")
	if out, err := exec.Command("go", "build", "-o", weir, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build weir: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if code == 0 {
		// bleve starts its analysis workers when the package is loaded, and they never end.
		if err := goleak.Find(goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// patience is how long anything may take here; it is long because machines that run tests are slow.
const patience = 60 * time.Second

// site is a stream on a Redis, and the commands on it.
type site struct {
	t      *testing.T
	srv    *redistest.Server
	stream string
	env    []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	return siteOn(t, redistest.Shared(t))
}

func siteOn(t *testing.T, srv *redistest.Server) *site {
	t.Helper()
	s := &site{t: t, srv: srv, stream: redistest.Name(t)}
	s.env = cleanEnv("WEIR_REDIS="+srv.URL(), "WEIR_STREAM="+s.stream)
	return s
}

// cleanEnv is this process's environment without what weir would read.
func cleanEnv(add ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") && !strings.HasPrefix(v, "REDIS_URL=") {
			env = append(env, v)
		}
	}
	return append(env, add...)
}

// outcome is what a command came to.
type outcome struct {
	code     int
	out, err string
}

func command(t *testing.T, env []string, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, weir, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// run runs a command on the site.
func (s *site) run(args ...string) outcome {
	s.t.Helper()
	return command(s.t, s.env, "", args...)
}

// ok runs a command that must succeed.
func (s *site) ok(args ...string) string {
	s.t.Helper()
	o := s.run(args...)
	require.Zero(s.t, o.code, "weir %s: %s%s", strings.Join(args, " "), o.out, o.err)
	return o.out
}

// data runs a command that must succeed, with --json, and decodes what it prints.
func data[T any](s *site, args ...string) T {
	s.t.Helper()
	var v T
	out := s.ok(append(args, "--json")...)
	require.NoError(s.t, json.Unmarshal([]byte(out), &v), out)
	return v
}

// xadd adds an entry as a foreign producer does, and returns its id.
func (s *site) xadd(fields ...string) string {
	s.t.Helper()
	args := []any{"XADD", s.stream, "*"}
	for _, f := range fields {
		args = append(args, f)
	}
	id, err := s.srv.Client().Do(s.t.Context(), args...).Text()
	require.NoError(s.t, err)
	return id
}

// eventually waits until ask gives true.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !ask() {
		if time.Now().After(end) {
			require.FailNow(t, "it never happened: "+what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// proc is a command that runs on.
type proc struct {
	t   *testing.T
	cmd *exec.Cmd

	mu    sync.Mutex
	errs  bytes.Buffer
	lines chan string
	done  chan struct{}
}

// worker starts a worker and waits until it is ready.
func (s *site) worker(args ...string) *proc {
	s.t.Helper()
	p := s.start(append([]string{"worker"}, args...)...)
	p.await("ready")
	return p
}

func (s *site) start(args ...string) *proc {
	s.t.Helper()
	p := &proc{t: s.t, cmd: exec.Command(weir, args...), lines: make(chan string, 1000), done: make(chan struct{})}
	p.cmd.Env = s.env
	p.cmd.Stderr = lockedWriter{p}
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, p.cmd.Start())
	go func() {
		defer close(p.done)
		defer close(p.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
		_ = p.cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("weir %s:\n%s", strings.Join(args, " "), p.stderr())
		}
	})
	return p
}

type lockedWriter struct{ p *proc }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.errs.Write(b)
}

func (p *proc) stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs.String()
}

// await waits for a line on stdout that contains text, and returns it.
func (p *proc) await(text string) string {
	p.t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				<-p.done
				require.FailNow(p.t, "the process ended before it said "+text, "code %d: %s", p.cmd.ProcessState.ExitCode(), p.stderr())
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-late:
			require.FailNow(p.t, "it never said "+text, p.stderr())
		}
	}
}

func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// end waits for the process's end and returns its exit code, -1 for a signal.
func (p *proc) end() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		require.FailNow(p.t, "the process did not end", p.stderr())
		return 0
	}
}

// The parts of what --json prints that the tests look at.
type (
	submitted struct {
		New   int `json:"new"`
		Known int `json:"known"`
		Tasks []struct {
			TaskID  string          `json:"task_id"`
			EntryID string          `json:"entry_id"`
			Known   bool            `json:"known"`
			DueAt   *time.Time      `json:"due_at"`
			Before  string          `json:"state_before"`
			State   string          `json:"state"`
			Reason  string          `json:"reason"`
			Error   string          `json:"error"`
			Result  json.RawMessage `json:"result"`
		} `json:"tasks"`
		Error string `json:"error"`
	}
	task struct {
		TaskID     string `json:"task_id"`
		State      string `json:"state"`
		Fence      uint64 `json:"fence"`
		EntryID    string `json:"entry_id"`
		Deliveries int64  `json:"deliveries"`
		Units      []struct {
			Unit     string           `json:"unit"`
			State    string           `json:"state"`
			Type     string           `json:"type"`
			Attempt  int64            `json:"attempt"`
			Attempts map[string]int64 `json:"attempts"`
			Result   json.RawMessage  `json:"result"`
			Reason   string           `json:"reason"`
			Error    string           `json:"error"`
			DueAt    *time.Time       `json:"due_at"`
			Steps    []struct {
				Step   string          `json:"step"`
				Status string          `json:"status"`
				TookMS int64           `json:"took_ms"`
				Result json.RawMessage `json:"result"`
			} `json:"steps"`
		} `json:"units"`
		Waits []struct {
			Type   string `json:"type"`
			Served bool   `json:"served"`
		} `json:"waits_for_type"`
		DeadLetter *letter `json:"dead_letter"`
		Timeline   []struct {
			What   string `json:"what"`
			Detail string `json:"detail"`
		} `json:"timeline"`
	}
	status struct {
		Stream   string           `json:"stream"`
		Length   int64            `json:"length"`
		Inbox    int64            `json:"inbox"`
		Lag      int64            `json:"lag"`
		Pending  int64            `json:"pending"`
		Dead     int64            `json:"dead"`
		Due      int64            `json:"due"`
		Delayed  int64            `json:"delayed"`
		States   map[string]int64 `json:"states"`
		Unserved []string         `json:"unserved"`
		Waiting  []struct {
			Type     string `json:"type"`
			Entries  int64  `json:"entries"`
			OldestMS int64  `json:"oldest_ms"`
			Served   bool   `json:"served"`
		} `json:"waiting_types"`
		StreamExists bool `json:"stream_exists"`
		GroupExists  bool `json:"group_exists"`
		Consumers    []struct {
			Name string `json:"name"`
			Live bool   `json:"live"`
		} `json:"consumers"`
	}
	letter struct {
		ID         string `json:"id"`
		Reason     string `json:"reason"`
		Detail     string `json:"detail"`
		TaskID     string `json:"task_id"`
		Type       string `json:"type"`
		EntryID    string `json:"entry_id"`
		Deliveries int64  `json:"deliveries"`
		Fields     []struct {
			Name        *string `json:"name"`
			NameBase64  []byte  `json:"name_base64"`
			Value       *string `json:"value"`
			ValueBase64 []byte  `json:"value_base64"`
		} `json:"fields"`
	}
	letters struct {
		Letters []letter `json:"dead_letters"`
		More    bool     `json:"more"`
	}
)

// state is the task's state, "" while nobody knows it.
func (s *site) state(id string) string {
	s.t.Helper()
	o := s.run("task", id, "--json")
	if o.code != 0 {
		require.Contains(s.t, o.err, "no task")
		return ""
	}
	var v task
	require.NoError(s.t, json.Unmarshal([]byte(o.out), &v))
	return v.State
}
