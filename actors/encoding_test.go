package actors_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

type sample struct {
	Text  string
	N     int64
	F     float64
	Bytes []byte
	List  []string
	Map   map[string]int
	Next  *sample
}

func drawSample(t *rapid.T, depth int) *sample {
	s := &sample{
		Text: rapid.String().Draw(t, "text"), N: rapid.Int64().Draw(t, "n"),
		F:     rapid.Float64Range(-1e300, 1e300).Draw(t, "f"),
		Bytes: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "bytes"),
		List:  rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "list"),
		Map:   rapid.MapOfN(rapid.String(), rapid.Int(), 1, 5).Draw(t, "map"),
	}
	if depth > 0 {
		s.Next = drawSample(t, depth-1)
	}
	return s
}

// What Encode writes, Decode reads, and the same value always gives the same bytes.
func TestEncodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSample(t, rapid.IntRange(0, 2).Draw(t, "depth"))
		contentType, data, err := actors.Encode(s)
		require.NoError(t, err)
		_, again, err := actors.Encode(s)
		require.NoError(t, err)
		require.Equal(t, data, again)
		got, err := actors.Decode[*sample](contentType, data)
		require.NoError(t, err)
		require.Equal(t, s, got)

		m := &messages.Task{TaskId: s.Text, Payload: s.Bytes, Attempt: s.N}
		contentType, data, err = actors.Encode(m)
		require.NoError(t, err)
		m2, err := actors.Decode[*messages.Task](contentType, data)
		require.NoError(t, err)
		require.True(t, proto.Equal(m, m2))
		_, err = actors.Decode[*messages.Entry](contentType, data)
		require.Error(t, err, "another message")
	})
}

func TestEncodeRefuses(t *testing.T) {
	for _, v := range []any{nil, make(chan int), func() {}, struct{ x int }{}, []any{make(chan int)}, complex(1, 1), nan()} {
		_, _, err := actors.Encode(v)
		require.ErrorIs(t, err, actors.ErrMisuse)
	}
	_, _, err := actors.Encode(&messages.Task{TaskId: "\xff"})
	require.ErrorIs(t, err, actors.ErrMisuse)
}

// Decoding never panics, whatever the content type and the bytes.
func FuzzDecode(f *testing.F) {
	for _, contentType := range []string{"", "application/json", "text/plain", "application/protobuf; proto=weir.v1.Task", "a/b; c=d", ";"} {
		for _, data := range []string{"", "{", `{"task_id":"x"}`, "\x0a\x01x", "null", "\xff", `"s"`, "[[[["} {
			f.Add(contentType, []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, data []byte) {
		if m, err := actors.Decode[*messages.Task](contentType, data); (err == nil) != (m != nil) {
			t.Fatalf("message %v with error %v", m, err)
		}
		_, _ = actors.Decode[*sample](contentType, data)
		_, _ = actors.Decode[string](contentType, data)
		_, _ = actors.Decode[map[string]any](contentType, data)
		raw, err := actors.Decode[actors.Raw](contentType, data)
		if err != nil || string(raw.Bytes) != string(data) {
			t.Fatalf("raw %q with error %v", raw.Bytes, err)
		}
	})
}
