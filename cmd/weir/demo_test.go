package main_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge/redistest"
)

type demo struct {
	Where      string `json:"where"`
	Reports    int    `json:"reports"`
	Succeeded  int    `json:"succeeded"`
	ModelCalls int    `json:"model_calls"`
	StepsRun   int    `json:"steps_run"`
	Crash      struct {
		Kept     []string `json:"kept_steps"`
		Repeated []string `json:"repeated_steps"`
	} `json:"crash"`
	DeadLetter letter `json:"dead_letter"`
	ElapsedMS  int64  `json:"elapsed_ms"`
}

func TestDemo(t *testing.T) {
	srv := redistest.Start(t)
	for where, env := range map[string][]string{
		"redis_url":    {"REDIS_URL=" + srv.URL()},
		"redis_server": nil,
		"memory":       {"PATH=/nowhere"},
	} {
		t.Run(where, func(t *testing.T) {
			o := command(t, cleanEnv(env...), "", "demo", "--json")
			require.Zero(t, o.code, o.err)
			var d demo
			require.NoError(t, json.Unmarshal([]byte(o.out), &d))
			require.Equal(t, where, d.Where)
			require.Equal(t, 149, d.Reports)
			require.Equal(t, 149, d.Succeeded)
			require.Equal(t, 2*149+1, d.ModelCalls)
			require.Equal(t, 3*149+1, d.StepsRun)
			require.Equal(t, []string{"reply"}, d.Crash.Repeated)
			require.Equal(t, []string{"intent", "similar"}, d.Crash.Kept)
			require.Equal(t, "undecodable", d.DeadLetter.Reason)
			require.Less(t, d.ElapsedMS, int64(30_000))
		})
	}
	require.Empty(t, srv.Client().Keys(t.Context(), "*").Val(), "the demo leaves nothing on a Redis that is not its own")
}

func TestDemoForAPerson(t *testing.T) {
	t.Parallel()
	o := command(t, cleanEnv(), "", "demo")
	require.Zero(t, o.code, o.err)
	require.Empty(t, o.err)
	require.NotContains(t, o.out, "\x1b", "no control characters where nobody watches")
	for _, want := range []string{"runs on", "CRASH", "recovered", "set aside", "dead letters", "149 answered", "run again: reply"} {
		require.Contains(t, o.out, want)
	}
	for line := range strings.Lines(o.out) {
		require.Less(t, len([]rune(line)), 230)
	}
}

func TestDemoThatStaysUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.start("demo", "--keep", "--redis", s.srv.URL())
	line := p.await("weir status")
	// The command that it names works.
	o := command(t, cleanEnv("WEIR_REDIS="+s.srv.URL()), "", append(strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "weir ")), "--json")...)
	require.Zero(t, o.code, o.err)
	var st status
	require.NoError(t, json.Unmarshal([]byte(o.out), &st))
	require.EqualValues(t, 149, st.States["SUCCEEDED"])
	require.EqualValues(t, 1, st.Dead)
	p.signal(syscall.SIGINT)
	require.Zero(t, p.end())
}

func TestBench(t *testing.T) {
	s := newSite(t)
	var rep struct {
		Floor, Noop struct {
			Median float64 `json:"median"`
		}
		Steps struct {
			Rounds []float64 `json:"rounds"`
		} `json:"three_steps"`
		Start struct {
			N int `json:"n"`
		} `json:"handler_start"`
	}
	out := s.ok("bench", "--tasks", "400", "--rounds", "2", "--wakes", "5", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &rep))
	require.Positive(t, rep.Floor.Median)
	require.Positive(t, rep.Noop.Median)
	require.Len(t, rep.Steps.Rounds, 2)
	require.Equal(t, 10, rep.Start.N)
	for _, key := range s.srv.Client().Keys(t.Context(), "*").Val() {
		require.NotContains(t, key, "bench", "it removes what it made")
	}
	require.Contains(t, s.ok("bench", "--tasks", "40", "--rounds", "1", "--wakes", "2"), "OF THE FLOOR")
}

func TestBenchOfAnIdleNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var idle struct {
		PerSecond float64            `json:"commands_per_second"`
		By        map[string]float64 `json:"per_second_by_command"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.ok("bench", "--idle", "--idle-time", "5s", "--json")), &idle))
	require.Positive(t, idle.By["xreadgroup"])
	require.LessOrEqual(t, idle.PerSecond, 3.0, idle.By)
}

func TestBenchOfParkedTasks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var p struct {
		Tasks int   `json:"tasks"`
		RSS   int64 `json:"rss_bytes"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.ok("bench", "--parked", "500", "--json")), &p))
	require.Equal(t, 500, p.Tasks)
	require.Positive(t, p.RSS)
}

func TestVersion(t *testing.T) {
	s := newSite(t)
	require.Regexp(t, `^weir \S+`, s.ok("version"))
	v := data[map[string]any](s, "version")
	require.NotEmpty(t, v["go"])
}
