package messages_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/messages"
)

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func pairs(kv ...string) []messages.Pair {
	var out []messages.Pair
	for i := 0; i < len(kv); i += 2 {
		out = append(out, messages.Pair{Name: kv[i], Value: kv[i+1]})
	}
	return out
}

func TestDecodeKeepsEveryByteOfThePayload(t *testing.T) {
	task, wake, err := messages.Decode(pairs("task_id", "a", "type", "echo", "payload", allBytes()), messages.Ref{ID: "1-1"}, messages.DecodeOptions{})
	require.NoError(t, err)
	require.Equal(t, []byte(allBytes()), task.GetPayload())
	require.Equal(t, "1-1", task.GetOrigin())
	require.Zero(t, wake)
}

func TestIdentity(t *testing.T) {
	ref := messages.Ref{Stream: "s", ID: "7-0"}
	for _, tc := range []struct {
		name   string
		fields []messages.Pair
		opts   messages.DecodeOptions
		want   string
	}{
		{"task_id first", pairs("task_id", "t", "event_id", "e", "type", "x"), messages.DecodeOptions{}, "t"},
		{"then event_id", pairs("event_id", "e", "type", "x"), messages.DecodeOptions{}, "e"},
		{"then the entry", pairs("type", "x"), messages.DecodeOptions{}, "7-0"},
		{"or its content", pairs("type", "x", "payload", "p"), messages.DecodeOptions{HashIdentity: true}, "h-" + messages.WorkHash("x\x00", []byte("p"))},
		{"in the inbox what it was read as", pairs("weir.id", "7-9", "type", "x"), messages.DecodeOptions{Inbox: true}, "7-9"},
		{"control fields are a producer's own on the public stream", pairs("weir.id", "7-9", "type", "x"), messages.DecodeOptions{}, "7-0"},
		{"the first of two counts", pairs("task_id", "a", "task_id", "b", "type", "x"), messages.DecodeOptions{}, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			task, _, err := messages.Decode(tc.fields, ref, tc.opts)
			require.NoError(t, err)
			require.Equal(t, tc.want, task.GetTaskId())
		})
	}
}

func TestWhatCannotBeDecoded(t *testing.T) {
	many := make([]messages.Pair, messages.MaxFields+1)
	for _, tc := range []struct {
		name   string
		fields []messages.Pair
		reason messages.Reason
		says   string
	}{
		{"nothing usable", pairs("hello", "world"), messages.Reason_REASON_UNDECODABLE, "no usable field"},
		{"no type", pairs("task_id", "a"), messages.Reason_REASON_UNDECODABLE, "type is missing"},
		{"no agent", pairs("type", "/x"), messages.Reason_REASON_UNDECODABLE, "names no agent"},
		{"key not UTF-8", pairs("\xff", "x", "type", "x"), messages.Reason_REASON_UNDECODABLE, "not UTF-8"},
		{"id not UTF-8", pairs("task_id", "\xff", "type", "x"), messages.Reason_REASON_UNDECODABLE, "task_id is not UTF-8"},
		{"id too long", pairs("task_id", strings.Repeat("x", 1025), "type", "x"), messages.Reason_REASON_UNDECODABLE, "1025 bytes"},
		{"attempt", pairs("attempt", "many", "type", "x"), messages.Reason_REASON_UNDECODABLE, "not a number"},
		{"created_at", pairs("created_at", "-1", "type", "x"), messages.Reason_REASON_UNDECODABLE, "not a number"},
		{"content type", pairs("content_type", "not one", "type", "x"), messages.Reason_REASON_UNDECODABLE, "media type"},
		{"payload", pairs("type", "x", "payload", strings.Repeat("x", 11), "task_id", "a"), messages.Reason_REASON_TOO_LARGE, "11 bytes, at most 10"},
		{"own fields", pairs("type", "x", "mine", strings.Repeat("x", 17<<10)), messages.Reason_REASON_TOO_LARGE, "own fields"},
		{"too many", many, messages.Reason_REASON_UNDECODABLE, "1001 fields"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := messages.Decode(tc.fields, messages.Ref{ID: "1-0"}, messages.DecodeOptions{MaxPayload: 10})
			var d *messages.DecodeError
			require.ErrorAs(t, err, &d)
			require.Equal(t, tc.reason, d.Reason)
			require.ErrorContains(t, err, tc.says)
		})
	}
	_, _, err := messages.Decode(pairs("payload", strings.Repeat("x", 11), "task_id", "a", "type", "x"), messages.Ref{}, messages.DecodeOptions{MaxPayload: 10})
	var d *messages.DecodeError
	require.ErrorAs(t, err, &d)
	require.Equal(t, "a", d.TaskID, "the identity is found behind a payload that is too large")
}

func TestMessages(t *testing.T) {
	ref := messages.Ref{Stream: "s", ID: "7-0"}
	decode := func(names messages.FieldNames, inbox bool, kv ...string) (*messages.Task, error) {
		task, _, err := messages.Decode(pairs(kv...), ref, messages.DecodeOptions{Names: names, Inbox: inbox, MaxPayload: 10})
		return task, err
	}
	t.Run("an entry with a message and no type is one", func(t *testing.T) {
		want := &messages.Task{TaskId: "a", Message: "approve: it", EventId: "e", ContentType: "text/plain", Payload: []byte("\x00yes"), Origin: "7-0"}
		task, _, err := messages.Decode(messages.Encode(want, messages.FieldNames{}), ref, messages.DecodeOptions{})
		require.NoError(t, err)
		require.True(t, proto.Equal(want, task), "%v", task)
	})
	t.Run("with a type it is a producer's own field, of any length and any bytes", func(t *testing.T) {
		text := strings.Repeat("\xff", 2000)
		for _, kv := range [][]string{{"message", text, "task_id", "a", "type", "x"}, {"task_id", "a", "type", "x", "message", text}} {
			task, err := decode(messages.FieldNames{}, false, kv...)
			require.NoError(t, err)
			require.Empty(t, task.GetMessage())
			require.Equal(t, "x", task.GetType())
			require.Equal(t, text, string(task.GetFields()[0].GetValue()))
		}
	})
	t.Run("the inbox knows whose it is", func(t *testing.T) {
		task, err := decode(messages.FieldNames{}, true, "weir.id", "b", "message", "m", "task_id", "a")
		require.NoError(t, err)
		require.Equal(t, "b", task.GetTaskId())
	})
	t.Run("its field can be renamed, and is off where another has its name", func(t *testing.T) {
		task, err := decode(messages.FieldNames{Message: "signal"}, false, "task_id", "a", "signal", "m", "message", "own")
		require.NoError(t, err)
		require.Equal(t, "m", task.GetMessage())
		require.Len(t, task.GetFields(), 1)
		names := messages.FieldNames{Payload: "message"}.WithDefaults()
		require.NoError(t, names.Validate())
		require.Empty(t, names.WithDefaults().Message)
		task, err = decode(names, false, "task_id", "a", "type", "x", "message", "work", "", "nameless")
		require.NoError(t, err)
		require.Equal(t, "work", string(task.GetPayload()))
		_, err = decode(names, false, "task_id", "a", "message", "work", "", "nameless")
		require.ErrorContains(t, err, "type is missing")
		require.Error(t, messages.FieldNames{Payload: "m", Message: "m"}.WithDefaults().Validate())
	})
	for _, tc := range []struct {
		name string
		kv   []string
		says string
	}{
		{"no task", []string{"message", "m", "event_id", "e"}, "which task it is for"},
		{"no name", []string{"message", "", "task_id", "a"}, "message is empty"},
		{"name not UTF-8", []string{"message", "\xff", "task_id", "a"}, "not UTF-8"},
		{"name too long", []string{"message", strings.Repeat("x", 1025), "task_id", "a"}, "1025 bytes"},
		{"content type", []string{"message", "m", "task_id", "a", "content_type", "text"}, "media type"},
		{"payload", []string{"message", "m", "task_id", "a", "payload", "01234567890"}, "at most 10"},
	} {
		t.Run("refused: "+tc.name, func(t *testing.T) {
			_, err := decode(messages.FieldNames{}, false, tc.kv...)
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestRenamedFields(t *testing.T) {
	names := messages.FieldNames{TaskID: "job", Type: "kind", Payload: "data"}
	require.NoError(t, names.WithDefaults().Validate())
	want := &messages.Task{TaskId: "a", Type: "x", Payload: []byte("p"), Origin: "1-0"}
	task, _, err := messages.Decode(messages.Encode(want, names), messages.Ref{ID: "1-0"}, messages.DecodeOptions{Names: names})
	require.NoError(t, err)
	require.True(t, proto.Equal(want, task))
	names.Type = "job"
	require.EqualError(t, names.WithDefaults().Validate(), `Names.Fields.TaskID and Names.Fields.Type are both "job"`)
}

func TestEncodeDecodeAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 100)
		want := &messages.Task{
			TaskId: rapid.StringN(1, 20, 100).Draw(t, "id"), Type: "a" + text.Draw(t, "type"), Unit: text.Draw(t, "unit"),
			Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), Attempt: rapid.Int64Min(0).Draw(t, "attempt"),
			CreatedAtMs: rapid.Int64Min(0).Draw(t, "created"), EventId: text.Draw(t, "event"), Source: text.Draw(t, "source"),
			Traceparent: text.Draw(t, "trace"), Origin: "1-0",
			Fields: []*messages.Field{{Name: []byte("own"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "own")}},
		}
		task, _, err := messages.Decode(messages.Encode(want, messages.FieldNames{}), messages.Ref{ID: "1-0"}, messages.DecodeOptions{})
		require.NoError(t, err)
		require.True(t, proto.Equal(want, task), "%v\n%v", want, task)
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("task_id", "a", "type", "x", "payload", allBytes(), true)
	f.Add("weir.id", "a", "weir.wake", "12", "type", "x/y", true)
	f.Add("message", "m", "task_id", "a", "event_id", "e", false)
	f.Add("message", "m", "task_id", "a", "type", "", true)
	f.Add("\xff", "", "created_at", "9223372036854775808", "content_type", ";;", false)
	f.Fuzz(func(t *testing.T, a, b, c, d, e, g string, inbox bool) {
		task, _, err := messages.Decode(pairs(a, b, c, d, e, g), messages.Ref{ID: "1-0"}, messages.DecodeOptions{Inbox: inbox, MaxPayload: 64})
		if err != nil {
			var de *messages.DecodeError
			require.ErrorAs(t, err, &de)
			require.NotEmpty(t, de.Detail)
			return
		}
		require.NotEmpty(t, task.GetTaskId())
		require.NotEqual(t, task.GetType() == "", task.GetMessage() == "", "either work or a message")
		_, err = proto.Marshal(task)
		require.NoError(t, err, "a decoded task can be sent")
		_, err = messages.NewKeys(messages.Names{}.WithDefaults())
		require.NoError(t, err)
	})
}

func FuzzFields(f *testing.F) {
	f.Add("a", "b", "1:a,1:b,")
	f.Add("", allBytes(), "0:,0:,")
	f.Add("x", "y", "01:a,1:b,")
	f.Fuzz(func(t *testing.T, name, value, packed string) {
		in := []messages.Pair{{Name: name, Value: value}, {Name: name, Value: name}}
		out, err := messages.UnpackFields(messages.PackFields(in))
		require.NoError(t, err)
		require.Equal(t, in, out)
		if got, err := messages.UnpackFields(packed); err == nil {
			require.Equal(t, packed, messages.PackFields(got), "one text, one meaning")
		} else {
			require.ErrorIs(t, err, messages.ErrPacked)
		}
	})
}

func FuzzStep(f *testing.F) {
	f.Add("done", 1, int64(5), int64(6), "application/json", []byte("{}"), "", []byte("done 1 5 6 0 2 x\n{}"))
	f.Fuzz(func(t *testing.T, status string, n int, began, ended int64, ct string, value []byte, text string, raw []byte) {
		if s, err := messages.DecodeStep("x", raw); err == nil {
			again, err := messages.DecodeStep("x", messages.EncodeStep(s))
			require.NoError(t, err)
			require.Equal(t, s, again)
		} else {
			require.ErrorIs(t, err, messages.ErrStep)
		}
		if n < 0 || began < 0 || ended < 0 || strings.Contains(ct, "\n") {
			return
		}
		in := messages.Step{Name: "x", Status: messages.StepDone, Attempts: n, BeganMS: began, EndedMS: ended, ContentType: ct, Value: value, Error: text}
		if len(value) == 0 {
			in.Value = nil
		}
		b := messages.EncodeStep(in)
		out, err := messages.DecodeStep("x", b)
		require.NoError(t, err)
		require.Equal(t, in, out)
		for cut := range b {
			_, err := messages.DecodeStep("x", b[:cut])
			require.ErrorIs(t, err, messages.ErrStep, "a truncated checkpoint is seen")
		}
	})
}

func TestKeys(t *testing.T) {
	for _, tc := range []struct{ stream, group, id, want string }{
		{"agent:tasks", "agent-workers", "t1", "{agent:tasks}:agent-workers:task:t1"},
		{"{agent}:tasks", "w", "a{b}c", "{agent}:tasks:w:task:a%7Bb%7Dc"},
		{"s", "g:{1}", "%:", "{s}:g%3A%7B1%7D:task:%25%3A"},
		{"s", "g", "{}", "{s}:g:task:%7B%7D"},
	} {
		k, err := messages.NewKeys(messages.Names{Stream: tc.stream, Group: tc.group})
		require.NoError(t, err)
		require.Equal(t, tc.want, k.Task(tc.id))
	}
	for _, bad := range []string{"a{b", "a}b", "{}", "a{}b", "{a}{b}", "}{", "{a{b}}"} {
		require.Error(t, messages.Names{Stream: bad, Group: "g"}.WithDefaults().Validate(), bad)
	}
	// "{s}:schedule:inbox" must be a schedule of that name, and no group's inbox.
	for _, bad := range []string{"schedule", "submitted"} {
		require.ErrorContains(t, messages.Names{Stream: "s", Group: bad}.WithDefaults().Validate(), "Names.Group")
	}
}

func TestEscapedPartsNeverMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOf(rapid.RuneFrom([]rune("a:%{}5B3A")))
		a, b := part.Draw(t, "a"), part.Draw(t, "b")
		require.Equal(t, a, messages.Unescape(messages.Escape(a)))
		require.NotContains(t, messages.Escape(a), ":")
		if a != b {
			require.NotEqual(t, messages.Escape(a), messages.Escape(b))
		}
	})
	require.NotEqual(t, messages.EffectKey("a:b", "", "c"), messages.EffectKey("a", "", "b:c"))
	require.NotEqual(t, messages.EffectKey("a", "b", "c"), messages.EffectKey("a", "", "b:c"))
}

func TestAMovedEntryKeepsTheIdentityOfTheProducersEntry(t *testing.T) {
	moved := pairs("weir.origin", "7-9", "weir.wake", "0", "type", "x")
	task, _, err := messages.Decode(moved, messages.Ref{ID: "8-0"}, messages.DecodeOptions{Inbox: true})
	require.NoError(t, err)
	require.Equal(t, "7-9", task.GetTaskId())
	require.Equal(t, pairs("type", "x"), messages.ProducerFields(pairs("weir.id", "a", "weir.origin", "7-9", "weir.wake", "0", "type", "x")))
	require.Equal(t, pairs("type", "x"), messages.ProducerFields(moved))
	own := pairs("type", "x", "weir.id", "a", "weir.origin", "b", "weir.wake", "c")
	require.Equal(t, own, messages.ProducerFields(own), "only what Weir puts in front")
}

func TestWaitedRoundTrip(t *testing.T) {
	for _, w := range []messages.Waited{
		{},
		{Timeout: true},
		{Messages: map[int]messages.Mail{0: {"", nil}, 11: {"application/json", []byte("\n\x00{}\n")}, 2: {"a/b", []byte("x")}}},
		{Children: []string{}},
		{Timeout: true, Children: []string{"a", "some", ""}},
	} {
		got, err := messages.DecodeWaited("w", messages.EncodeWaited(w))
		require.NoError(t, err)
		for i, m := range w.Messages {
			w.Messages[i] = messages.Mail{m.ContentType, append([]byte{}, m.Payload...)}
		}
		require.Equal(t, w, got)
	}
	for _, bad := range []string{"x", "1:x,1:y,", "1:0,3:abc,", "2:-1,2:\n,,"} {
		_, err := messages.DecodeWaited("w", []byte(bad))
		require.ErrorIs(t, err, messages.ErrStep)
	}
}

// Keys that all groups of a stream share stand where a group's prefix would: a group of that name would write into them.
func TestAGroupIsNotCalledLikeASharedKey(t *testing.T) {
	keys, err := messages.NewKeys(messages.Names{Stream: "s", Group: "g"})
	require.NoError(t, err)
	for _, shared := range []string{keys.Submitted("x"), keys.Delayed(), keys.DelayedEntries(), keys.Unique("x"), keys.Schedule("x")} {
		group, _, _ := strings.Cut(strings.TrimPrefix(shared, "{s}:"), ":")
		require.ErrorContains(t, messages.Names{Stream: "s", Group: group}.Validate(), "Names.Group", shared)
	}
}

func TestDue(t *testing.T) {
	for value, want := range map[string]int64{"1800000000000": 1_800_000_000_000, "0": 0, "-5": 0, "tomorrow": 0, "": 0} {
		task, _, err := messages.Decode(pairs("type", "x", "due", value, "due", "7"), messages.Ref{ID: "1-1"}, messages.DecodeOptions{})
		require.NoError(t, err)
		due := task.Due(messages.FieldNames{})
		if want == 0 {
			require.True(t, due.IsZero(), value)
		} else {
			require.Equal(t, want, due.UnixMilli())
		}
		require.True(t, task.Due(messages.FieldNames{Due: "when"}).IsZero())
	}
}

func TestWaitsAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 100)
		want := messages.Wait{
			Kind:    rapid.SampledFrom([]messages.WaitKind{messages.WaitTimer, messages.WaitFirst, messages.WaitAll, messages.WaitJoin}).Draw(t, "kind"),
			SinceMS: rapid.Int64Min(0).Draw(t, "since"), Closes: rapid.Bool().Draw(t, "closes"), Need: rapid.IntMin(0).Draw(t, "need"),
			KeepGoing: rapid.Bool().Draw(t, "keep going"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "slots") {
			want.Slots = append(want.Slots, messages.Slot{Message: text.Draw(t, "message"), Nth: rapid.IntMin(1).Draw(t, "nth")})
			want.Children = append(want.Children, text.Draw(t, "child"))
		}
		got, err := messages.DecodeWait("w", messages.EncodeWait(want))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
	for _, damaged := range []string{
		"x", "4:kind,", messages.PackFields(pairs("since", "x")), messages.PackFields(pairs("slot", "a")), messages.PackFields(pairs("need", "")),
		messages.PackFields(pairs("other", "1")),
	} {
		_, err := messages.DecodeWait("w", damaged)
		require.ErrorIs(t, err, messages.ErrStep, "%q", damaged)
	}
}

func TestReceiptsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for r := messages.NotPending; r <= messages.NoMailbox; r++ {
		require.NotContains(t, r.String(), "receipt_")
		require.False(t, seen[r.String()])
		seen[r.String()] = true
	}
	require.Equal(t, "receipt_99", messages.Receipt(99).String())
}
