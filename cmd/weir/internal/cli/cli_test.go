package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/blevesearch/bleve_index_api.AnalysisWorker"))
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"plain":             "plain",
		"two\nlines\there":  `two\nlines here`,
		"bell\a\x1b[31mred": `bell\u0007\u001b[31mred`,
		"\xff\x00":          `\xff\u0000`,
		"ünïcode 漢字":        "ünïcode 漢字",
		"0123456789abcdef":  "0123456789abcdef",
		"0123456789abcdefg": "0123456789abcdef…",
	} {
		require.Equal(t, want, oneLine(in, 16), in)
	}
}

func TestAge(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "<1ms", 900 * time.Microsecond: "900µs", 42 * time.Millisecond: "42ms", 1500 * time.Millisecond: "1.5s",
		61 * time.Second: "1m01s", 90 * time.Minute: "1h30m", 50 * time.Hour: "2d02h", -time.Second: "-1.0s",
	} {
		require.Equal(t, want, age(in))
	}
}

func TestCount(t *testing.T) {
	for in, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		require.Equal(t, want, count(in))
	}
	require.Equal(t, "1 task", plural(1, "task"))
	require.Equal(t, "2,000 tasks", plural(2000, "task"))
}

func TestTaskLines(t *testing.T) {
	got, err := parseTaskLine([]byte(`{"id":"a","type":"x/y","step":"s","payload":{"b":1.50},"fields":{"z":"1","a":"2"}}`), "other")
	require.NoError(t, err)
	require.Equal(t, actors.NewTask{
		ID: "a", Type: "x/y", Step: "s",
		Payload: actors.Raw{ContentType: "application/json", Bytes: []byte(`{"b":1.50}`)}, // to the byte
		Fields:  []actors.Field{{Name: "a", Value: "2"}, {Name: "z", Value: "1"}},
	}, got)

	got, err = parseTaskLine([]byte(`{"payload":null}`), "x")
	require.NoError(t, err)
	require.Equal(t, "null", string(got.Payload.(actors.Raw).Bytes))

	got, err = parseTaskLine([]byte(`{}`), "x")
	require.NoError(t, err)
	require.Equal(t, actors.Raw{}, got.Payload)

	for text, want := range map[string]string{
		`{"id":"a"}`:                "no type",
		`{"type":"x"} {"type":"x"}`: "more than one",
		`[]`:                        "cannot unmarshal",
		`{"type":"x","tpye":"y"}`:   `unknown field "tpye"`,
		`{"type":"x","payload":1,"payload_base64":""}`:          "exclude each other",
		`{"type":"x","payload":{},"content_type":"text/plain"}`: "must be a string",
		`{"type":"x","payload_base64":"%"}`:                     "base64",
		`{"type":"x","delay":"soon"}`:                           `delay "soon" is not a duration`,
		`{"type":"x","at":"soon"}`:                              "RFC 3339",
		`{"type":"x","unique":"k","for":"soon"}`:                `for "soon" is not a duration`,
	} {
		_, err := parseTaskLine([]byte(text), "")
		require.ErrorContains(t, err, want, text)
	}
}

func TestRedisOptions(t *testing.T) {
	o, err := redisOptions("redis://user:pass@example.org:7000/3?read_timeout=5s")
	require.NoError(t, err)
	require.Equal(t, "example.org:7000", o.Addr)
	require.Equal(t, 3, o.DB)
	require.Equal(t, 5*time.Second, o.ReadTimeout)
	require.Equal(t, -1, o.MaxRetries)
	for _, bad := range []string{"", "localhost:6379", "http://x", "redis://:secret@ho st", "redis://x/notanumber", "redis://:secret@x:port"} {
		_, err := redisOptions(bad)
		var usage *usageError
		require.ErrorAs(t, err, &usage, bad)
		require.NotContains(t, err.Error(), "secret", bad)
	}
}

func TestContent(t *testing.T) {
	for _, c := range []struct{ contentType, data, want string }{
		{"application/json", `{"a":1}`, `{"result":{"a":1}}`},
		{"application/problem+json", `1`, `{"result":1}`},
		{"application/json", `{broken`, `{"result":"{broken"}`},
		{"text/plain; charset=utf-8", `1`, `{"result":"1"}`},
		{"", `[1]`, `{"result":[1]}`},
		{"application/octet-stream", "\xff", `{"result_base64":"/w=="}`},
		{"application/json", ``, `{}`},
	} {
		b, err := json.Marshal(newContent(c.contentType, []byte(c.data)))
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(b), c.data)
	}
}

func TestTaskView(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	r := &actors.TaskRecord{
		ID: "t", Fence: 3, EntryID: "1-0",
		Units: []actors.UnitRecord{{
			State: messages.State_STATE_RETRYING, Type: "x", Ledger: actors.Ledger{Failures: 2, Waits: 1}, Created: at, Began: at, Updated: at,
			Due: at, Error: "boom\nstack",
			Steps: []messages.Step{
				{Name: "a", Status: messages.StepDone, Attempts: 1, BeganMS: 1, EndedMS: 43, ContentType: "application/json", Value: []byte(`{"k":1}`)},
				{Name: "b", Status: messages.StepSpent, Attempts: 2, Value: []byte("retries"), Error: "no"},
			},
		}},
		Log: []actors.LogLine{{At: at, What: "retries", Detail: "boom"}},
	}
	v := newTaskView(r)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.JSONEq(t, `{
	  "task_id": "t", "state": "RETRYING", "fence": 3, "entry_id": "1-0",
	  "units": [{
	    "state": "RETRYING", "type": "x", "attempt": 3,
	    "attempts": {"failures": 2, "crashes": 0, "timeouts": 0, "deaths": 0, "blamed": 0, "interruptions": 0, "waits": 1},
	    "created_at": "2023-11-14T22:13:20Z", "began_at": "2023-11-14T22:13:20Z", "updated_at": "2023-11-14T22:13:20Z",
	    "due_at": "2023-11-14T22:13:20Z", "error": "boom\nstack",
	    "steps": [
	      {"step": "a", "status": "done", "attempts": 1, "began_at": "1970-01-01T00:00:00.001Z", "ended_at": "1970-01-01T00:00:00.043Z",
	       "took_ms": 42, "content_type": "application/json", "result": {"k": 1}},
	      {"step": "b", "status": "spent", "attempts": 2, "took_ms": 0, "error": "no"}
	    ]
	  }],
	  "timeline": [{"at": "2023-11-14T22:13:20Z", "what": "retries", "detail": "boom"}]
	}`, string(b))

	var out bytes.Buffer
	require.NoError(t, showTask(&out, r, v))
	for _, want := range []string{"RETRYING", "3 (failures: 2; waits, free: 1)", "boom …", "error: no", "timeline"} {
		require.Contains(t, out.String(), want)
	}
}

func TestWhatATaskWaitsFor(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	slots := []messages.Slot{{Message: "yes", Nth: 1}, {Message: "yes", Nth: 2}}
	r := &actors.TaskRecord{ID: "t", Unread: 2, Units: []actors.UnitRecord{{State: messages.State_STATE_WAITING, Type: "x", Waits: []actors.WaitRecord{
		{Name: "approve", Kind: messages.WaitFirst, Slots: []messages.Slot{{Message: "approve", Nth: 1}}, Since: at, Deadline: at},
		{Name: "both", Kind: messages.WaitAll, Slots: slots, Since: at},
		{Name: "nap", Kind: messages.WaitTimer, Since: at, Deadline: at},
	}}}}
	v := newTaskView(r)
	b, err := json.Marshal(v)
	require.NoError(t, err)
	require.Contains(t, string(b), `"waiting_for":[{"wait":"approve","kind":"first","messages":[{"message":"approve","nth":1}],`+
		`"since":"2023-11-14T22:13:20Z","deadline":"2023-11-14T22:13:20Z"},`)
	require.Contains(t, string(b), `"unread":2`)
	var out bytes.Buffer
	require.NoError(t, showTask(&out, r, v))
	for _, want := range []string{`waits for +approve, until`, `waits for +both: all of yes, yes \(2\)`, `waits for +nap: its time, until`, `unread +2 messages`} {
		require.Regexp(t, want, out.String())
	}
}

func TestAFoundStep(t *testing.T) {
	r := &actors.TaskRecord{ID: "t", Units: []actors.UnitRecord{{
		State: messages.State_STATE_FAILED, Ledger: actors.Ledger{Failures: 1},
		Steps: []messages.Step{{Name: "pay", Status: messages.StepFound, Attempts: 1, BeganMS: 5, EndedMS: 5, Value: []byte(`7`)}},
	}}}
	v := newTaskView(r)
	require.Equal(t, "7", string(v.Units[0].Steps[0].Result))
	require.EqualValues(t, 1, v.Units[0].Attempt, "it ran once and failed: none comes after it")
	var out bytes.Buffer
	require.NoError(t, showTask(&out, r, v))
	require.Regexp(t, `pay +found by its key, not run again +1 +\S+ \S+ +- +7\n`, out.String())
}

func TestUnserved(t *testing.T) {
	one := streambridge.TypeWaiting{Type: "x", Entries: 1, OldestMS: 40_000}
	require.Equal(t, "x (1, oldest 40.0s): no live node runs this type", unserved([]streambridge.TypeWaiting{{Type: "a", Served: true}, one}))
	require.Equal(t, "x (1, oldest 40.0s), y (1,200, oldest <1ms): no live node runs these types",
		unserved([]streambridge.TypeWaiting{one, {Type: "y", Entries: 1200}}))
}

func TestGraceFlag(t *testing.T) {
	var d time.Duration
	g := (*graceFlag)(&d)
	require.Empty(t, g.String())
	for in, want := range map[string]time.Duration{"none": -1, "5s": 5 * time.Second, "-1ns": -1} {
		require.NoError(t, g.Set(in))
		require.Equal(t, want, d)
	}
	require.Error(t, g.Set("soon"))
}

func TestLetterView(t *testing.T) {
	l := &messages.DeadLetter{
		Id: "5-0", Reason: messages.Reason_REASON_UNDECODABLE, Detail: "why", AtMs: 1, Entry: &messages.Entry{Stream: "s", Id: "1-0", Deliveries: 1},
		Fields: []*messages.Field{{Name: []byte("n"), Value: []byte("v")}, {Name: []byte("\xff"), Value: []byte("\x1b[2J\xfe")}},
	}
	b, err := json.Marshal(newLetterView(l, true))
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"5-0","reason":"undecodable","detail":"why","stream":"s","entry_id":"1-0","deliveries":1,
	  "at":"1970-01-01T00:00:00.001Z","bytes":8,"fields":[{"name":"n","value":"v"},{"name_base64":"/w==","value_base64":"G1sySv4="}]}`, string(b))
	var out bytes.Buffer
	require.NoError(t, showLetter(&out, l, newLetterView(l, true)))
	require.NotContains(t, out.String(), "\x1b", "an entry cannot write to the terminal")
	require.Contains(t, out.String(), `\u001b[2J\xfe`)
}

func TestStatesInOrder(t *testing.T) {
	require.Equal(t, []string{"PENDING", "RUNNING", "SUCCEEDED", "CANCELLED", "A_NEW_ONE"},
		statesInOrder(map[string]int64{"A_NEW_ONE": 1, "SUCCEEDED": 1, "CANCELLED": 1, "PENDING": 1, "RUNNING": 1}))
}

func TestUsable(t *testing.T) {
	require.True(t, usable("7.0.15"))
	require.True(t, usable("6.2.0"))
	require.False(t, usable("6.0.9"))
	require.False(t, usable("5.0"))
	require.False(t, usable(""))
}

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	info.Main.Version = "v1.2.3"
	v := versionOf(info, true)
	require.Equal(t, "v1.2.3", v.Version)
	require.Equal(t, "abc", v.Revision)
	require.True(t, v.Modified)
	require.Equal(t, "devel", versionOf(nil, false).Version)
}

type fakeProber struct {
	live, ready error
	gate        streambridge.Gate
}

func (p fakeProber) Live() error             { return p.live }
func (p fakeProber) Ready() error            { return p.ready }
func (p fakeProber) Gate() streambridge.Gate { return p.gate }

func TestHealth(t *testing.T) {
	s, err := startHealth("", nil)
	require.NoError(t, err)
	require.Empty(t, s.address())
	require.NoError(t, s.close(t.Context()))

	rec := httptest.NewRecorder()
	probe(fakeProber{ready: io.ErrUnexpectedEOF}.Ready, nil)(rec, nil)
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, "unexpected EOF\n", rec.Body.String())

	s, err = startHealth("127.0.0.1:0", fakeProber{gate: streambridge.Gate{State: streambridge.GateIsShut, Reason: "too much"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	require.Equal(t, "ok, gate shut: too much", readiness(fakeProber{gate: streambridge.Gate{State: streambridge.GateIsShut, Reason: "too much"}}.Gate()))
	require.Equal(t, "ok", readiness(streambridge.Gate{State: streambridge.GateIsOpen}))
	_, err = startHealth(s.address(), fakeProber{})
	require.ErrorContains(t, err, "listen for health checks")
}

func TestGateFlag(t *testing.T) {
	var g gateFlag
	require.NoError(t, g.Set("age=12h,pending=5,lag=off,memory=80%"))
	require.Equal(t, gateFlag{Age: 12 * time.Hour, Pending: 5, Lag: -1, Memory: 0.8}, g)
	require.NoError(t, g.Set("off"))
	require.Equal(t, gateFlag{Age: -1, Pending: -1, Lag: -1, Length: -1, Memory: -1}, g)
	for bad, says := range map[string]string{
		"age": "must be a limit", "depth=3": "no such limit", "lag=0": "at least 1, or off", "memory=120%": "at most 1", "age=x": "invalid duration",
	} {
		g = gateFlag{}
		require.ErrorContains(t, g.Set(bad), says, bad)
	}
}

func TestWrap(t *testing.T) {
	text := wrap(strings.Repeat("word ", 30)+strings.Repeat("x", 50), 40)
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, len(strings.TrimSpace(line)), 50)
	}
	require.Equal(t, "a b\nc", wrap("a  b\nc", 3))
}
