package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redistest"
)

// site is one private Redis with one group on it, and the processes at work there.
type site struct {
	t       *testing.T
	srv     *redistest.Server
	rdb     *redis.Client // straight to the server, past any proxy
	stream  string
	group   string
	lease   time.Duration
	journal journal

	mu        sync.Mutex
	processes []*process
}

// newSite starts a server. Its workers have the given lease, a beat of a fifth and a tick of a fifth of it, at most a second.
func newSite(t *testing.T, lease time.Duration, opts ...redistest.Option) *site {
	t.Helper()
	s := &site{t: t, stream: "agent:tasks", group: "agent-workers", lease: lease, srv: redistest.Start(t, opts...)}
	s.rdb = s.srv.NewClient()
	t.Cleanup(func() {
		s.mu.Lock()
		all := s.processes
		s.mu.Unlock()
		var errs []error
		for _, p := range all {
			errs = append(errs, p.end())
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			s.explain(all)
		}
		s.rdb.Close()
	})
	return s
}

// explain logs what a failed test needs.
func (s *site) explain(all []*process) {
	for _, p := range all[max(0, len(all)-6):] {
		s.t.Logf("--- the log of %s ends with\n%s", p.name, p.tail(25))
	}
}

func (s *site) keys(group string) messages.Keys {
	k, err := messages.NewKeys(messages.Names{Stream: s.stream, Group: group})
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

// environ is this process's, without what would change a worker.
func environ(extra ...string) []string {
	var out []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "WEIR_") && !strings.HasPrefix(e, "REDIS_URL=") {
			out = append(out, e)
		}
	}
	return append(out, extra...)
}

// weir runs the binary to its end and returns its stdout.
func (s *site) weir(command string, args ...string) (stdout string, err error) {
	path := weirBinary(s.t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	all := append(strings.Fields(command), "--redis", s.srv.URL(), "--stream", s.stream, "--group", s.group)
	cmd := exec.CommandContext(ctx, path, append(all, args...)...)
	cmd.Env = environ()
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("weir %s: %w: %s", command, err, strings.TrimSpace(string(exit.Stderr)))
		}
		return string(out), err
	}
	return string(out), nil
}

// workerArgs are the flags that say where and how a worker works.
func (s *site) workerArgs(consumer string, extra ...string) []string {
	return append([]string{
		"worker", "--json", "--redis", s.srv.URL(), "--stream", s.stream, "--group", s.group, "--consumer", consumer,
		"--lease", s.lease.String(), "--beat", (s.lease / 5).String(), "--tick", s.tick().String(),
	}, extra...) // a flag that comes twice has its last value
}

func (s *site) tick() time.Duration { return min(s.lease/5, time.Second) }

// launch starts a worker without waiting for it.
func (s *site) launch(name, consumer string, extra ...string) (*process, error) {
	cmd := exec.Command(weirBinary(s.t), s.workerArgs(consumer, extra...)...)
	cmd.Env = environ()
	return s.spawn(name, cmd)
}

// worker starts a `weir worker` and waits until it is ready.
func (s *site) worker(name string, extra ...string) *process {
	s.t.Helper()
	p, err := s.launch(name, name, extra...)
	require.NoError(s.t, err)
	s.awaitReady(p)
	return p
}

// probe starts a probe and waits until it is ready.
func (s *site) probe(name string, change ...func(*probeConfig)) *process {
	s.t.Helper()
	cfg := probeConfig{
		Redis: s.srv.URL(), Stream: s.stream, Group: s.group, Consumer: name,
		Lease: s.lease, Beat: s.lease / 5, Tick: s.tick(),
	}
	for _, c := range change {
		c(&cfg)
	}
	text, err := json.Marshal(cfg)
	require.NoError(s.t, err)
	self, err := os.Executable()
	require.NoError(s.t, err)
	cmd := exec.Command(self)
	cmd.Env = environ(probeEnv + "=" + string(text))
	p, err := s.spawn(name, cmd)
	require.NoError(s.t, err)
	s.awaitReady(p)
	return p
}

// via sends a worker's or a probe's connections through a proxy.
func via(p *redistest.Proxy) string {
	return (&url.URL{Scheme: "redis", Host: p.Addr(), Path: "/0"}).String()
}

func (s *site) awaitReady(p *process) {
	s.t.Helper()
	select {
	case <-p.ready:
	case <-p.gone:
		s.t.Fatalf("%s ended before it was ready:\n%s", p.name, p.tail(20))
	case <-time.After(30 * time.Second):
		s.t.Fatalf("%s is not ready:\n%s", p.name, p.tail(20))
	}
}

// await polls until f is true. It returns how long that took, and ends the test when it takes too long.
func (s *site) await(limit time.Duration, what string, f func() bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !f() {
		if time.Since(began) > limit {
			s.t.Fatalf("after %v still not: %s\n%s", limit, what, s.picture())
		}
		<-look.C
	}
	return time.Since(began)
}

// picture is the group in one line.
func (s *site) picture() string {
	st, err := s.status()
	if err != nil {
		return err.Error()
	}
	text, _ := json.Marshal(st)
	return string(text)
}

// status is what `weir status --json` says.
func (s *site) status() (streambridge.Status, error) {
	var st streambridge.Status
	out, err := s.weir("status", "--json")
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		return st, fmt.Errorf("weir status --json: %w", err)
	}
	return st, nil
}

// task is one to submit.
type task struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Step    string `json:"step,omitempty"`
	Payload any    `json:"payload,omitempty"`
}

// submit submits tasks by `weir submit --file`.
func (s *site) submit(tasks ...task) {
	s.t.Helper()
	var text strings.Builder
	enc := json.NewEncoder(&text)
	for _, one := range tasks {
		require.NoError(s.t, enc.Encode(one))
	}
	file := s.t.TempDir() + "/tasks.jsonl"
	require.NoError(s.t, os.WriteFile(file, []byte(text.String()), 0o600))
	_, err := s.weir("submit", "--file", file, "--max-backlog", "-1")
	require.NoError(s.t, err)
}

// states reads the state of each task's whole unit, "" where there is no record.
func (s *site) states(ids []string) []string {
	s.t.Helper()
	return s.fields(ids, "state")
}

// fields reads one field of each task's hash.
func (s *site) fields(ids []string, field string) []string {
	s.t.Helper()
	keys, out := s.keys(s.group), make([]string, len(ids))
	var cmds []redis.Cmder
	var err error
	// After a restart the client's pool repeats its last refusal for up to a second.
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		cmds, err = s.rdb.Pipelined(s.t.Context(), func(p redis.Pipeliner) error {
			for _, id := range ids {
				p.HGet(s.t.Context(), keys.Task(id), field)
			}
			return nil
		})
		if err == nil || errors.Is(err, redis.Nil) || time.Now().After(end) {
			break
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		require.NoError(s.t, err)
	}
	for i, c := range cmds {
		out[i] = c.(*redis.StringCmd).Val()
	}
	return out
}

// tally counts equal strings.
func tally(all []string) map[string]int {
	n := map[string]int{}
	for _, s := range all {
		n[s]++
	}
	return n
}

// pending is how many entries of stream and inbox are delivered and not acknowledged.
func (s *site) pending() int64 {
	s.t.Helper()
	var n int64
	for _, key := range []string{s.stream, s.keys(s.group).Inbox()} {
		p, err := s.rdb.XPending(s.t.Context(), key, s.group).Result()
		require.NoError(s.t, err)
		n += p.Count
	}
	return n
}

// letter is a dead letter as `weir dead list --json` shows it.
type letter struct {
	ID         string `json:"id"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail"`
	TaskID     string `json:"task_id"`
	Unit       string `json:"unit"`
	Type       string `json:"type"`
	EntryID    string `json:"entry_id"`
	Deliveries int64  `json:"deliveries"`
	Fields     []struct {
		Name        string `json:"name"`
		NameBase64  []byte `json:"name_base64"`
		Value       string `json:"value"`
		ValueBase64 []byte `json:"value_base64"`
	} `json:"fields"`
}

// letters reads the dead letters.
func (s *site) letters() []letter {
	s.t.Helper()
	out, err := s.weir("dead list", "--json", "--limit", "10000")
	require.NoError(s.t, err)
	var all struct {
		Letters []letter `json:"dead_letters"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(out), &all), "%s", out)
	return all.Letters
}

// ids are "<prefix>1" to "<prefix>n".
func ids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint(prefix, i+1)
	}
	return out
}

// stat reads one number of INFO.
func (s *site) stat(section, name string) int64 {
	s.t.Helper()
	text, err := s.rdb.Info(s.t.Context(), section).Result()
	require.NoError(s.t, err)
	_, rest, ok := strings.Cut(text, name+":")
	require.True(s.t, ok, "INFO has no %s", name)
	var n int64
	_, err = fmt.Sscan(rest, &n)
	require.NoError(s.t, err)
	return n
}

func itoa(n int) string { return strconv.Itoa(n) }

// xadd is an entry as any producer writes it: names and values in turn.
func xadd(stream string, fields ...string) *redis.XAddArgs {
	return &redis.XAddArgs{Stream: stream, Values: fields}
}
