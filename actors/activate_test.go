package actors_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

type refunds struct{ calls int }

func (r *refunds) Handle(_ *actors.Context, m in) (int, error) { r.calls++; return m.N + r.calls, nil }

func (r *refunds) Amend(_ *actors.Context, m *messages.Entry) (string, error) { return m.GetId(), nil }

func (r *refunds) Audit(_ *actors.Context, m actors.Raw) (actors.Raw, error) { return m, nil }

func (r *refunds) Ping(*actors.Context, actors.None) (actors.None, error) { return nil, nil }

func (r *refunds) Note(_ *actors.Context, m string) (string, error) { return m, nil }

func agents() actors.Agents {
	return actors.Agents{"refund": actors.Of(func() *refunds { return &refunds{} }, actors.On((*refunds).Handle),
		actors.On((*refunds).Amend).As("amend"), actors.On((*refunds).Audit).As("raw"), actors.On((*refunds).Ping).As("ping"),
		actors.On((*refunds).Note).As("note"))}
}

func activate(t *testing.T, task *messages.Task) actors.Verdict {
	t.Helper()
	a, handler, ok := agents().Find(task.GetType())
	require.True(t, ok)
	return actors.Activate(t.Context(), &actors.Job{Agent: a, Handler: handler, Task: task, Store: &memory{}})
}

func TestRouting(t *testing.T) {
	require.NoError(t, agents().Validate())
	require.Equal(t, []string{"refund"}, agents().Types())
	a, handler, ok := agents().Find("refund/amend")
	require.True(t, ok)
	require.Equal(t, "amend", handler)
	require.True(t, a.Handler("amend"))
	require.False(t, a.Handler("nope"))
	_, _, ok = agents().Find("other")
	require.False(t, ok)

	for range 2 { // a fresh value each time
		v := activate(t, &messages.Task{TaskId: "t", Type: "refund", Payload: []byte(`{"N":41}`)})
		require.Equal(t, completed, v.Outcome)
		require.Equal(t, "42", string(v.Result))
	}
	v := activate(t, &messages.Task{TaskId: "t", Type: "refund/nope"})
	require.Equal(t, refused, v.Outcome)
	require.Equal(t, messages.Reason_REASON_UNKNOWN_HANDLER, v.Reason)
}

const entryType = "application/protobuf; proto=weir.v1.Entry"

func TestPayloads(t *testing.T) {
	binary := string([]byte{0x12, 3, '1', '-', '1'}) // Entry{Id: "1-1"}
	for name, c := range map[string]struct{ handler, contentType, payload, result, bad string }{
		"json":                       {payload: `{"N":1}`, result: `2`},
		"json by name":               {contentType: "application/json; charset=utf-8", payload: `{"N":1}`, result: `2`},
		"json by suffix":             {contentType: "application/vnd.acme.refund+json", payload: `{"N":1}`, result: `2`},
		"json, unknown field":        {payload: `{"N":1,"New":true}`, result: `2`},
		"json, broken":               {payload: `{"N":`, bad: "decode JSON as actors_test.in"},
		"json, trailing":             {payload: `{"N":1}{}`, bad: "decode JSON"},
		"json, empty":                {bad: "decode JSON"},
		"json, not UTF-8":            {payload: "{\"N\":1,\"X\":\"\xff\"}", bad: "is not UTF-8"},
		"json, other type":           {payload: `{"N":"one"}`, bad: "decode JSON"},
		"json, protobuf came":        {contentType: entryType, payload: binary, bad: "does not fit"},
		"unknown content type":       {contentType: "image/png", payload: `{}`, bad: `content type "image/png"`},
		"broken content type":        {contentType: "a/b; c", payload: `{}`, bad: "content type"},
		"protobuf":                   {handler: "amend", contentType: entryType, payload: binary, result: `"1-1"`},
		"protobuf, any name":         {handler: "amend", contentType: "application/x-protobuf", payload: binary, result: `"1-1"`},
		"protobuf, no name":          {handler: "amend", payload: binary, result: `"1-1"`},
		"protobuf, octets":           {handler: "amend", contentType: "application/octet-stream", payload: binary, result: `"1-1"`},
		"protojson":                  {handler: "amend", payload: ` {"id":"1-1","new":1}`, result: `"1-1"`},
		"protojson by name":          {handler: "amend", contentType: "application/json", payload: `{"id":"1-1"}`, result: `"1-1"`},
		"protobuf, empty":            {handler: "amend", result: `""`},
		"protobuf, broken":           {handler: "amend", payload: "\x12\xff", bad: "decode weir.v1.Entry"},
		"protobuf, another message":  {handler: "amend", contentType: "application/protobuf; proto=weir.v1.Task", payload: binary, bad: "payload is a weir.v1.Task, the handler takes a weir.v1.Entry"},
		"protobuf, other parameter":  {handler: "amend", contentType: `application/x-protobuf; messageType="weir.v1.Task"`, payload: binary, bad: "payload is a weir.v1.Task"},
		"protobuf, text came":        {handler: "amend", contentType: "text/plain", payload: "hi", bad: "does not fit weir.v1.Entry"},
		"raw, all bytes":             {handler: "raw", contentType: "image/png; x", payload: allBytes(), result: allBytes()},
		"none takes anything":        {handler: "ping", contentType: "image/png", payload: "\xff"},
		"text":                       {handler: "note", contentType: "text/plain; charset=utf-8", payload: "hi", result: `"hi"`},
		"text for something else":    {contentType: "text/plain", payload: "hi", bad: "text does not fit"},
		"a string is JSON otherwise": {handler: "note", payload: `"hi"`, result: `"hi"`},
	} {
		t.Run(name, func(t *testing.T) {
			typ := strings.TrimSuffix("refund/"+c.handler, "/")
			v := activate(t, &messages.Task{TaskId: "t", Type: typ, ContentType: c.contentType, Payload: []byte(c.payload)})
			if c.bad != "" {
				require.Equal(t, refused, v.Outcome)
				require.Equal(t, messages.Reason_REASON_BAD_PAYLOAD, v.Reason)
				require.Contains(t, v.Detail, c.bad)
				return
			}
			require.Equal(t, completed, v.Outcome, v.Error)
			require.Equal(t, c.result, string(v.Result))
		})
	}
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// The error protocol, wrapped and joined.
func TestErrors(t *testing.T) {
	plain := errors.New("x")
	for name, c := range map[string]struct {
		err     error
		outcome messages.Outcome
		charge  messages.Charge
		reason  messages.Reason
		after   time.Duration
	}{
		"any error":           {err: plain, outcome: retry, charge: messages.Charge_CHARGE_FAILURE, after: time.Second},
		"retry":               {err: fmt.Errorf("w: %w", actors.Retry(time.Hour, plain)), outcome: retry, charge: messages.Charge_CHARGE_FAILURE, after: time.Hour},
		"retry at once":       {err: actors.Retry(-1, plain), outcome: retry, charge: messages.Charge_CHARGE_FAILURE, after: time.Second},
		"rate limited":        {err: fmt.Errorf("w: %w", actors.RateLimited(time.Hour, plain)), outcome: retry, charge: messages.Charge_CHARGE_WAIT, after: time.Hour},
		"reject":              {err: fmt.Errorf("w: %w", actors.Reject(plain)), outcome: refused, charge: messages.Charge_CHARGE_FAILURE, reason: messages.Reason_REASON_REJECTED},
		"reject wins":         {err: errors.Join(actors.RateLimited(0, plain), actors.Reject(plain)), outcome: refused, charge: messages.Charge_CHARGE_FAILURE, reason: messages.Reason_REASON_REJECTED},
		"too large":           {err: fmt.Errorf("w: %w", actors.ErrTooLarge), outcome: refused, charge: messages.Charge_CHARGE_FAILURE, reason: messages.Reason_REASON_TOO_LARGE},
		"its own deadline":    {err: context.DeadlineExceeded, outcome: retry, charge: messages.Charge_CHARGE_FAILURE, after: time.Second},
		"an awaited timeout":  {err: fmt.Errorf("approve: %w", actors.ErrTimeout), outcome: retry, charge: messages.Charge_CHARGE_FAILURE, after: time.Second},
		"a made-up ErrParked": {err: actors.ErrParked, outcome: retry, charge: messages.Charge_CHARGE_FAILURE, after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			v := newWorld(func(*actors.Context, in) (int, error) { return 7, c.err }).activate(t.Context(), `{}`)
			require.Equal(t, c.outcome, v.Outcome)
			require.Equal(t, c.charge, v.Charge)
			require.Equal(t, c.reason, v.Reason)
			require.Equal(t, c.after, v.After)
			require.ErrorIs(t, v.Err, c.err)
			require.Equal(t, c.err.Error(), v.Error)
			require.Empty(t, v.Result)
		})
	}
}

func TestErrorTextIsBounded(t *testing.T) {
	v := newWorld(func(*actors.Context, in) (int, error) { return 0, errors.New(strings.Repeat("é", 5000) + "\xff") }).activate(t.Context(), `{}`)
	require.Less(t, len(v.Error), 4200)
	require.True(t, strings.HasPrefix(v.Error, "éé"))
}

// What Begin booked already ends the unit before its handler runs.
func TestSpentBeforeRunning(t *testing.T) {
	ran := false
	w := newWorld(func(*actors.Context, in) (int, error) { ran = true; return 0, nil }, actors.MaxCrashes(2))
	w.job.Begun.Ledger.Crashes = 3
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, refused, v.Outcome)
	require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, v.Reason)
	require.Contains(t, v.Detail, "3 crashes where 2 are allowed")
	require.False(t, ran)

	v = actors.Decide(actors.Crashed("panic: x"), actors.Ledger{}, w.agent.Budget(), 0, 1)
	require.Equal(t, messages.Charge_CHARGE_CRASH, v.Charge)
	require.Equal(t, time.Second, v.After)
}

func TestVerdictCommit(t *testing.T) {
	v := newWorld(func(*actors.Context, in) (int, error) { return 7, nil }).activate(t.Context(), `{}`)
	task := &messages.Task{TaskId: "t", Unit: "u", Type: "a"}
	fence, entry := actors.Fence{Number: 3, Incarnation: "i", Activation: 4}, messages.Ref{Stream: "s", ID: "1-1"}
	require.Equal(t, actors.Commit{
		TaskID: "t", Unit: "u", Type: "a", Fence: fence, Entry: entry, Outcome: completed, ContentType: "application/json", Result: []byte("7"),
	}, v.Commit(task, fence, entry))
}

func TestInfo(t *testing.T) {
	created := time.UnixMilli(1_700_000_000_000)
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		i := c.Info()
		require.Equal(t, "t-1", c.ID())
		require.Equal(t, "u", i.Unit)
		require.Equal(t, 3, i.Attempt)
		require.True(t, created.Equal(i.CreatedAt))
		require.Equal(t, "v", c.Field("k"))
		require.Empty(t, c.Field("none"))
		require.Equal(t, c.Fields(), i.Fields)
		require.Equal(t, "evt", i.EventID)
		return actors.Step(c, "s", func(s actors.StepContext) (string, error) { return s.Key, nil })
	})
	w.job.Task = &messages.Task{
		TaskId: "t-1", Unit: "u", Type: "a", Payload: []byte("{}"), EventId: "evt",
		Fields: []*messages.Field{{Name: []byte("k"), Value: []byte("v")}, {Name: []byte("k"), Value: []byte("w")}},
	}
	w.job.Begun.Ledger = actors.Ledger{Failures: 1, Deaths: 1, Waits: 9}
	w.job.Begun.Created = created
	v := w.activate(t.Context(), "")
	require.JSONEq(t, `"t-1:u:s"`, string(v.Result))
}

// Root and due are a producer's fields: what they cannot mean is no error.
func TestInfoRootAndDue(t *testing.T) {
	due := time.UnixMilli(1_700_000_000_000)
	for name, c := range map[string]struct {
		names  messages.FieldNames
		fields map[string]string
		root   string
		due    time.Time
	}{
		"none":          {root: "t-1"},
		"both":          {fields: map[string]string{"root": "order-1", "due": "1700000000000"}, root: "order-1", due: due},
		"other names":   {names: messages.FieldNames{Root: "r", Due: "d"}, fields: map[string]string{"r": "order-1", "d": "1700000000000", "due": "1"}, root: "order-1", due: due},
		"other meaning": {fields: map[string]string{"root": "\xff", "due": "tomorrow"}, root: "t-1"},
		"far too long":  {fields: map[string]string{"root": strings.Repeat("x", 1025), "due": "-1"}, root: "t-1"},
	} {
		t.Run(name, func(t *testing.T) {
			var got actors.Info
			w := newWorld(func(cx *actors.Context, _ in) (int, error) { got = cx.Info(); return 0, nil })
			w.job.Names = &actors.Names{Fields: c.names}
			w.job.Task = &messages.Task{TaskId: "t-1", Type: "a", Payload: []byte("{}")}
			for name, value := range c.fields {
				w.job.Task.Fields = append(w.job.Task.Fields, &messages.Field{Name: []byte(name), Value: []byte(value)})
			}
			w.activate(t.Context(), "")
			require.Equal(t, c.root, got.Root)
			require.True(t, c.due.Equal(got.Due), "%v", got.Due)
			require.Len(t, got.Fields, len(c.fields))
		})
	}
}

// Lines below WARN are written when the code around them really runs, not again on every replay.
func TestLogIsSilentWhileReplaying(t *testing.T) {
	var b bytes.Buffer
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		c.Log().Info("at the top")
		c.Log().Warn("beware")
		_, err := actors.Step(c, "a", func(actors.StepContext) (string, error) { return "", nil })
		if err != nil {
			return "", err
		}
		c.Log().Info("between")
		_, err = actors.Step(c, "b", func(s actors.StepContext) (string, error) {
			if s.Attempt == 1 {
				return "", actors.Retry(time.Hour, errBank)
			}
			return "", nil
		}, actors.Retries(1))
		if err != nil {
			return "", err
		}
		c.Log().Info("at the end")
		return "", nil
	})
	w.job.Logger = slog.New(slog.NewTextHandler(&b, nil))
	w.activate(t.Context(), `{}`)
	require.Equal(t, 1, strings.Count(b.String(), "at the top"))
	require.Contains(t, b.String(), "task_id=t-1 type=test")
	w.activate(t.Context(), `{}`)
	require.Equal(t, 1, strings.Count(b.String(), "at the top"))
	require.Equal(t, 1, strings.Count(b.String(), "between"))
	require.Equal(t, 2, strings.Count(b.String(), "beware"))
	require.Contains(t, b.String(), "at the end")
}

// The author is warned in production too, at most once a minute an agent.
func TestMisuseIsLoggedOnce(t *testing.T) {
	var b bytes.Buffer
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		_, _ = inDoubt(c, "mail")
		return "", nil
	})
	w.job.Logger = slog.New(slog.NewTextHandler(&b, nil))
	for range 3 {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, parked, v.Outcome)
		require.Len(t, v.Misuses, 1)
	}
	require.Equal(t, 1, strings.Count(b.String(), "the agent misuses the API"))
	require.Contains(t, b.String(), "type=test")
	require.Contains(t, b.String(), "mail")
}

func TestExternal(t *testing.T) {
	a := actors.External(42).With(actors.Timeout(time.Minute))
	x, ok := a.External()
	require.True(t, ok)
	require.Equal(t, 42, x)
	require.True(t, a.Handler("anything"))
	require.Equal(t, time.Minute, a.Timeout())
	_, ok = agents()["refund"].External()
	require.False(t, ok)
}

// publisher is a desk that keeps what is published.
type publisher struct {
	actors.StateDesk
	chunks []actors.Chunk
	err    error
	calls  int
}

func (p *publisher) Publish(_ context.Context, _ string, c actors.Chunk) error {
	p.calls++
	if p.err == nil {
		p.chunks = append(p.chunks, c)
	}
	return p.err
}

func TestPublish(t *testing.T) {
	p := &publisher{}
	w := newWorld(one(func(s actors.StepContext) (string, error) {
		s.Publish(nil) // says nothing
		s.Publish([]byte("tok"))
		if s.Attempt == 1 {
			return "", errBank
		}
		return "", actors.Retry(0, errBank)
	}, actors.RetryPolicy{Max: 1, Base: time.Millisecond}))
	w.job.Desk = p
	w.activate(t.Context(), `{}`)
	require.Len(t, p.chunks, 2)
	require.Less(t, p.chunks[0].Attempt, p.chunks[1].Attempt, "a second try starts the text again")
	require.Equal(t, "s", p.chunks[0].Step)

	// A desk that fails is left alone for a moment, and the step does not notice.
	p = &publisher{err: errBank}
	w = newWorld(one(func(s actors.StepContext) (string, error) {
		for range 5 {
			s.Publish([]byte("tok"))
		}
		return "", nil
	}))
	w.job.Desk = p
	require.Equal(t, completed, w.activate(t.Context(), `{}`).Outcome)
	require.Equal(t, 1, p.calls)
}
