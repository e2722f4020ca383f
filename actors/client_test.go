package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// desk is a state of which a client needs one half.
type desk struct {
	actors.State // nil for the rest
	names        actors.Names
	bindErr      error
	batches      []int
	subs         []actors.Submission
	answer       func(actors.Submission) actors.Submitted
	submitErr    func() error
	unit         func() (*actors.UnitRecord, error)
	follow       func(after string) ([]actors.Chunk, error)
	mail         []actors.Mailing
	sent         func(actors.Mailing) (actors.Mailed, error)
}

func (d *desk) Bind(n actors.Names) error { d.names = n; return d.bindErr }

func (d *desk) Submit(_ context.Context, subs []actors.Submission) ([]actors.Submitted, error) {
	if d.submitErr != nil {
		if err := d.submitErr(); err != nil {
			return nil, err
		}
	}
	d.batches = append(d.batches, len(subs))
	d.subs = append(d.subs, subs...)
	out := make([]actors.Submitted, len(subs))
	for i, s := range subs {
		out[i] = actors.Submitted{EntryID: "1-1"}
		if d.answer != nil {
			out[i] = d.answer(s)
		}
	}
	return out, nil
}

func (d *desk) Task(_ context.Context, id string) (*actors.TaskRecord, error) {
	if id == "gone" {
		return nil, actors.ErrNoTask
	}
	return &actors.TaskRecord{ID: id}, nil
}

func (d *desk) Unit(context.Context, string, string) (*actors.UnitRecord, error) { return d.unit() }

func (d *desk) Follow(ctx context.Context, _, after string, block time.Duration) ([]actors.Chunk, error) {
	chunks, err := d.follow(after)
	if len(chunks) == 0 && err == nil {
		select {
		case <-ctx.Done():
		case <-time.After(block):
		}
	}
	return chunks, err
}

func client(t *testing.T, d *desk, opts ...actors.ClientOption) *actors.Client {
	t.Helper()
	c, err := actors.NewClient(d, actors.Names{Stream: "s"}, opts...)
	require.NoError(t, err)
	return c
}

func TestNewClient(t *testing.T) {
	d := &desk{}
	client(t, d)
	require.Equal(t, "agent-workers", d.names.Group)
	_, err := actors.NewClient(nil, actors.Names{})
	require.Error(t, err)
	_, err = actors.NewClient(d, actors.Names{Stream: "a{"})
	require.ErrorContains(t, err, "Names.Stream")
	_, err = actors.NewClient(&desk{bindErr: errBank}, actors.Names{})
	require.ErrorIs(t, err, errBank)
	for _, o := range []actors.ClientOption{actors.MaxPayload(0), actors.MaxBacklog(-2), actors.RememberIDs(0)} {
		_, err = actors.NewClient(d, actors.Names{}, o)
		require.ErrorContains(t, err, "must be positive")
	}
}

func TestSubmit(t *testing.T) {
	d := &desk{}
	c := client(t, d)
	got, err := c.Submit(t.Context(), actors.NewTask{
		Type: "refund/amend", ID: "o{1} \x00", Step: "2", Payload: &messages.Entry{Id: "1-1"},
		Fields: []actors.Field{{Name: "customer", Value: "acme"}, {Name: "traceparent", Value: "00-…"}},
	})
	require.NoError(t, err)
	require.Equal(t, "o{1} \x00", got.ID)
	require.Equal(t, "2", got.Unit)
	require.Equal(t, "1-1", got.EntryID)
	s := d.subs[0]
	require.Equal(t, messages.WorkHash("refund/amend", []byte("\x12\x031-1")), s.Work)
	require.EqualValues(t, 50_000, s.MaxLen)
	require.Equal(t, 24*time.Hour, s.TTL)
	fields := map[string]string{}
	for _, f := range s.Fields {
		fields[f.Name] = f.Value
	}
	require.NotEmpty(t, fields["created_at"])
	delete(fields, "created_at")
	require.Equal(t, map[string]string{
		"task_id": "o{1} \x00", "type": "refund/amend", "payload": "\x12\x031-1", "step": "2",
		"content_type": "application/protobuf; proto=weir.v1.Entry", "customer": "acme", "traceparent": "00-…",
	}, fields)
}

func TestSubmitLater(t *testing.T) {
	due := time.Now().Add(time.Hour)
	d := &desk{answer: func(s actors.Submission) actors.Submitted {
		if s.ID == "b" {
			return actors.Submitted{Known: true, Due: due, ID: "a", Unit: "2"}
		}
		return actors.Submitted{Due: due}
	}}
	c := client(t, d)
	at := time.Now().Add(-time.Hour)
	got, err := c.SubmitAll(t.Context(), []actors.NewTask{
		{Type: "x", ID: "a", Step: "2", Delay: time.Hour},
		{Type: "x", ID: "b", At: at, Unique: "k", For: time.Minute},
	})
	require.NoError(t, err)
	require.Equal(t, time.Hour, d.subs[0].Delay)
	require.Equal(t, at, d.subs[1].At)
	require.Equal(t, "k", d.subs[1].Unique)
	require.Equal(t, time.Minute, d.subs[1].For)
	require.Equal(t, due, got[0].Due)
	require.Equal(t, "a", got[1].ID, "whose key it is")
	require.Equal(t, "2", got[1].Unit)
	require.True(t, got[1].Known)
}

// The same work has the same hash, whenever and in whatever order of a map it is submitted.
func TestSubmitIsDeterministic(t *testing.T) {
	d := &desk{}
	c := client(t, d)
	for range 20 {
		_, err := c.Submit(t.Context(), actors.NewTask{Type: "a", ID: "x", Payload: map[string]int{"a": 1, "b": 2, "c": 3, "d": 4}})
		require.NoError(t, err)
		require.Equal(t, d.subs[0].Work, d.subs[len(d.subs)-1].Work)
	}
	one, err := c.Submit(t.Context(), actors.NewTask{Type: "a"})
	require.NoError(t, err)
	two, err := c.Submit(t.Context(), actors.NewTask{Type: "a"})
	require.NoError(t, err)
	require.NotEqual(t, one.ID, two.ID)
	require.GreaterOrEqual(t, len(one.ID), 20)
}

func TestSubmitRefuses(t *testing.T) {
	d := &desk{}
	c := client(t, d, actors.MaxPayload(100))
	field := func(name string) actors.NewTask {
		return actors.NewTask{Type: "a", Fields: []actors.Field{{Name: name}}}
	}
	for name, c2 := range map[string]struct {
		task actors.NewTask
		is   error
		text string
	}{
		"no type":        {actors.NewTask{}, actors.ErrInvalid, `the type "" is not`},
		"half a type":    {actors.NewTask{Type: "a/"}, actors.ErrInvalid, `the type "a/" is not`},
		"three parts":    {actors.NewTask{Type: "a/b/c"}, actors.ErrInvalid, "is not"},
		"long id":        {actors.NewTask{Type: "a", ID: strings.Repeat("x", 1025)}, actors.ErrInvalid, "1025 bytes where 1024 are allowed"},
		"id not UTF-8":   {actors.NewTask{Type: "a", ID: "\xff"}, actors.ErrInvalid, "not UTF-8"},
		"step not UTF-8": {actors.NewTask{Type: "a", Step: "\xff"}, actors.ErrInvalid, "not UTF-8"},
		"long step":      {actors.NewTask{Type: "a", Step: strings.Repeat("x", 1025)}, actors.ErrInvalid, "the step has"},
		"payload":        {actors.NewTask{Type: "a", Payload: make(chan int)}, actors.ErrInvalid, "cannot be stored"},
		"large payload":  {actors.NewTask{Type: "a", Payload: strings.Repeat("x", 99)}, actors.ErrTooLarge, "101 bytes where 100 are allowed"},
		"large fields":   {actors.NewTask{Type: "a", Fields: []actors.Field{{Name: "f", Value: strings.Repeat("x", 16<<10)}}}, actors.ErrTooLarge, "the fields"},
		"many fields":    {actors.NewTask{Type: "a", Fields: slices.Repeat([]actors.Field{{Name: "f"}}, 1000)}, actors.ErrInvalid, "1000 fields"},
		"delay and at":   {actors.NewTask{Type: "a", Delay: 1, At: time.Now()}, actors.ErrInvalid, "exclude each other"},
		"before now":     {actors.NewTask{Type: "a", Delay: -1}, actors.ErrInvalid, "must not be negative"},
		"too late":       {actors.NewTask{Type: "a", Delay: actors.MaxDelay + 1}, actors.ErrInvalid, "must be at most"},
		"too far":        {actors.NewTask{Type: "a", At: time.Now().Add(actors.MaxDelay + time.Minute)}, actors.ErrInvalid, "must be at most"},
		"for nothing":    {actors.NewTask{Type: "a", For: time.Hour}, actors.ErrInvalid, "goes with a Unique key"},
		"for no time":    {actors.NewTask{Type: "a", Unique: "k"}, actors.ErrInvalid, "how long the Unique key is taken"},
		"long key":       {actors.NewTask{Type: "a", Unique: strings.Repeat("x", 1025), For: time.Hour}, actors.ErrInvalid, "the Unique key has"},
		"key not UTF-8":  {actors.NewTask{Type: "a", Unique: "\xff", For: time.Hour}, actors.ErrInvalid, "not UTF-8"},
		"its own field":  {field("payload"), actors.ErrInvalid, "is written by Submit itself"},
		"control field":  {field("weir.wake"), actors.ErrInvalid, "Weir's own"},
		"no name":        {field(""), actors.ErrInvalid, "needs a name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Submit(t.Context(), c2.task)
			require.ErrorIs(t, err, c2.is)
			require.ErrorContains(t, err, c2.text)
		})
	}
	require.Empty(t, d.subs, "nothing was sent")
	_, err := c.Submit(t.Context(), actors.NewTask{Type: "a", ID: strings.Repeat("x", 1024), Fields: []actors.Field{{Name: "f", Value: strings.Repeat("x", 16<<10-1)}}})
	require.NoError(t, err)
}

func TestSubmitAnswers(t *testing.T) {
	d := &desk{answer: func(s actors.Submission) actors.Submitted {
		switch s.ID {
		case "known":
			return actors.Submitted{EntryID: "0-1", Known: true}
		case "other":
			return actors.Submitted{Err: actors.ErrConflict}
		case "full":
			return actors.Submitted{Err: actors.ErrBacklogFull}
		}
		return actors.Submitted{EntryID: "2-1"}
	}}
	c := client(t, d)
	known, err := c.Submit(t.Context(), actors.NewTask{Type: "a", ID: "known"})
	require.NoError(t, err)
	require.True(t, known.Known)
	require.Equal(t, "0-1", known.EntryID)
	_, err = c.Submit(t.Context(), actors.NewTask{Type: "a", ID: "other"})
	require.ErrorIs(t, err, actors.ErrConflict)
	require.ErrorContains(t, err, `task "other"`)

	got, err := c.SubmitAll(t.Context(), []actors.NewTask{{Type: "a", ID: "1"}, {Type: "a", ID: "other"}, {Type: "a", ID: "full"}, {Type: "a", ID: "known"}})
	require.ErrorContains(t, err, "2 of 4 tasks refused")
	require.ErrorIs(t, err, actors.ErrConflict)
	require.ErrorIs(t, err, actors.ErrBacklogFull)
	require.Nil(t, got[1])
	require.Nil(t, got[2])
	require.Equal(t, "2-1", got[0].EntryID)
	require.True(t, got[3].Known)
}

func TestSubmitAll(t *testing.T) {
	d := &desk{}
	c := client(t, d, actors.MaxBacklog(-1))
	tasks := make([]actors.NewTask, 10_000)
	for i := range tasks {
		tasks[i] = actors.NewTask{Type: "a", ID: fmt.Sprint(i)}
	}
	got, err := c.SubmitAll(t.Context(), tasks)
	require.NoError(t, err)
	require.Len(t, got, 10_000)
	require.Len(t, d.batches, 10)
	for i, task := range got {
		require.Equal(t, fmt.Sprint(i), task.ID)
		require.Equal(t, task.ID, d.subs[i].ID)
	}
	require.Zero(t, d.subs[0].MaxLen)

	d.batches = nil
	large := actors.NewTask{Type: "a", Payload: strings.Repeat("x", 1<<19)}
	_, err = c.SubmitAll(t.Context(), slices.Repeat([]actors.NewTask{large}, 40))
	require.NoError(t, err)
	require.Equal(t, []int{15, 15, 10}, d.batches, "8 MiB a call")

	tasks[9_999].Type = ""
	d.subs = nil
	_, err = c.SubmitAll(t.Context(), tasks)
	require.ErrorContains(t, err, "submit task 10000 of 10000")
	require.Empty(t, d.subs, "all are checked first")

	tasks[9_999].Type = "a"
	calls := 0
	d.submitErr = func() error {
		if calls++; calls > 2 {
			return errBank
		}
		return nil
	}
	got, err = c.SubmitAll(t.Context(), tasks)
	require.ErrorIs(t, err, errBank)
	require.ErrorContains(t, err, "2000 of them sent")
	require.NotNil(t, got[1_999])
	require.Nil(t, got[2_000])
}

func TestResult(t *testing.T) {
	unit := func(s messages.State, contentType, result string) func() (*actors.UnitRecord, error) {
		return func() (*actors.UnitRecord, error) {
			return &actors.UnitRecord{State: s, ContentType: contentType, Result: []byte(result), Error: "no money", Reason: messages.Reason_REASON_REJECTED}, nil
		}
	}
	d := &desk{}
	task := client(t, d).Task("t")

	d.unit = unit(messages.State_STATE_SUCCEEDED, "application/json", `{"N":7}`)
	got, err := actors.Result[in](t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, 7, got.N)
	raw, err := actors.Result[actors.Raw](t.Context(), task)
	require.NoError(t, err)
	require.Equal(t, "application/json", raw.ContentType)
	_, err = actors.Result[int](t.Context(), task)
	require.ErrorContains(t, err, `result of task "t"`)

	d.unit = unit(messages.State_STATE_SUCCEEDED, "", "")
	entry, err := actors.Result[*messages.Entry](t.Context(), task)
	require.NoError(t, err)
	require.Nil(t, entry, "a handler's nil")
	d.unit = unit(messages.State_STATE_SUCCEEDED, "application/protobuf; proto=weir.v1.Task", "")
	_, err = actors.Result[*messages.Entry](t.Context(), task)
	require.ErrorContains(t, err, "weir.v1.Task")

	d.unit = unit(messages.State_STATE_FAILED, "", "")
	_, err = actors.Result[in](t.Context(), task)
	var failed *actors.TaskError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, actors.TaskError{ID: "t", State: messages.State_STATE_FAILED, Reason: "rejected", Detail: "no money"}, *failed)
	require.EqualError(t, failed, `task "t" ended FAILED (rejected): no money`)
	require.NotErrorIs(t, err, actors.ErrCancelled)
	d.unit = unit(messages.State_STATE_CANCELLED, "", "")
	_, err = actors.Result[in](t.Context(), task)
	require.ErrorIs(t, err, actors.ErrCancelled)

	d.unit = func() (*actors.UnitRecord, error) { return nil, actors.ErrNoTask }
	_, err = actors.Result[in](t.Context(), task)
	require.ErrorIs(t, err, actors.ErrNoTask)
}

func TestResultWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, polls := time.Now(), 0
		d := &desk{unit: func() (*actors.UnitRecord, error) {
			polls++
			if time.Since(start) > 10*time.Second {
				return &actors.UnitRecord{State: messages.State_STATE_SUCCEEDED, ContentType: "application/json", Result: []byte("1")}, nil
			}
			if time.Since(start) > 5*time.Second {
				return nil, errBank // the server restarts
			}
			return &actors.UnitRecord{State: messages.State_STATE_RUNNING}, nil
		}}
		_, err := actors.Result[int](t.Context(), client(t, d).Task("t"))
		require.NoError(t, err)
		require.Less(t, polls, 70)

		d.unit = func() (*actors.UnitRecord, error) {
			return &actors.UnitRecord{State: messages.State_STATE_RETRYING}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = actors.Result[int](ctx, client(t, d).Task("t"))
		require.ErrorIs(t, err, actors.ErrNotEnded)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		d.unit = func() (*actors.UnitRecord, error) { return nil, errBank }
		start = time.Now()
		_, err = actors.Result[int](t.Context(), client(t, d).Task("t"))
		require.ErrorIs(t, err, errBank)
		require.Greater(t, time.Since(start), 30*time.Second)
	})
}

func TestStatus(t *testing.T) {
	c := client(t, &desk{})
	r, err := c.Task("t").Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, "t", r.ID)
	_, err = c.Task("gone").Status(t.Context())
	require.ErrorIs(t, err, actors.ErrNoTask)
	require.Equal(t, "2", c.Task("t").Step("2").Unit)
}

func TestFollow(t *testing.T) {
	chunk := func(offset, data string) actors.Chunk {
		return actors.Chunk{Offset: offset, Data: []byte(data), Step: "s", Attempt: 1}
	}
	running := func() (*actors.UnitRecord, error) {
		return &actors.UnitRecord{State: messages.State_STATE_RUNNING}, nil
	}
	read := func(ctx context.Context, d *desk, after string) (text string, err error) {
		for ch, e := range client(t, d).Task("t").Follow(ctx, after) {
			if e != nil {
				return text, e
			}
			text += string(ch.Data)
		}
		return text, nil
	}

	// The store says that it is over.
	d := &desk{unit: running, follow: func(after string) ([]actors.Chunk, error) {
		switch after {
		case "5-0":
			return []actors.Chunk{chunk("5-1", "a"), chunk("5-2", "b")}, nil
		case "5-2":
			return []actors.Chunk{chunk("5-3", "c"), {End: true}}, nil
		}
		return nil, errBank
	}}
	text, err := read(t.Context(), d, "5-0")
	require.NoError(t, err)
	require.Equal(t, "abc", text)

	synctest.Test(t, func(t *testing.T) {
		// The task has ended, and its last piece came between the two looks.
		ended := false
		d := &desk{
			unit: func() (*actors.UnitRecord, error) {
				ended = true
				return &actors.UnitRecord{State: messages.State_STATE_FAILED}, nil
			},
			follow: func(after string) ([]actors.Chunk, error) {
				if ended && after == "" {
					return []actors.Chunk{chunk("1-1", "last")}, nil
				}
				return nil, nil
			},
		}
		text, err := read(t.Context(), d, "")
		require.NoError(t, err)
		require.Equal(t, "last", text)

		// Nobody says anything, until the reader has enough.
		d = &desk{unit: running, follow: func(string) ([]actors.Chunk, error) { return nil, nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = read(ctx, d, "")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})

	d = &desk{unit: func() (*actors.UnitRecord, error) { return nil, actors.ErrNoTask }, follow: func(string) ([]actors.Chunk, error) { return nil, nil }}
	synctest.Test(t, func(t *testing.T) {
		_, err := read(t.Context(), d, "")
		require.ErrorIs(t, err, actors.ErrNoTask)
	})
	d.follow = func(string) ([]actors.Chunk, error) { return nil, errBank }
	_, err = read(t.Context(), d, "")
	require.ErrorIs(t, err, errBank)

	// A reader may stop at any piece.
	d.follow = func(string) ([]actors.Chunk, error) { return []actors.Chunk{chunk("1-1", "a"), chunk("1-2", "b")}, nil }
	for ch, err := range client(t, d).Task("t").Follow(t.Context(), "") {
		require.NoError(t, err)
		require.Equal(t, "a", string(ch.Data))
		break
	}
}
