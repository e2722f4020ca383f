package redisstream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

func TestReadReply(t *testing.T) {
	const entries = "*2\r\n*2\r\n$3\r\n1-1\r\n*4\r\n$1\r\na\r\n$2\r\n\r\n\r\n$0\r\n\r\n$1\r\nb\r\n*2\r\n$3\r\n1-2\r\n*0\r\n"
	want := []streambridge.Entry{
		{Ref: messages.Ref{Stream: "s", ID: "1-1"}, Fields: []messages.Pair{{Name: "a", Value: "\r\n"}, {Name: "", Value: "b"}}, Deliveries: 1},
		{Ref: messages.Ref{Stream: "s", ID: "1-2"}, Deliveries: 1},
	}
	for _, tt := range []struct{ name, reply string }{
		{"RESP2", "*1\r\n*2\r\n$1\r\ns\r\n" + entries},
		{"RESP3", "%1\r\n$1\r\ns\r\n" + entries},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readReply([]byte(tt.reply))
			require.NoError(t, err)
			require.Equal(t, want, got)
			for i := range len(tt.reply) {
				_, err := readReply([]byte(tt.reply[:i]))
				require.ErrorIs(t, err, errReply, "cut at %d", i)
			}
		})
	}
	for _, nothing := range []string{"*-1\r\n", "$-1\r\n", "_\r\n", "*0\r\n"} {
		got, err := readReply([]byte(nothing))
		require.NoError(t, err, nothing)
		require.Empty(t, got)
	}
	_, err := readReply([]byte("-NOGROUP no such group\r\n"))
	require.True(t, groupGone(err))
	require.EqualError(t, err, "NOGROUP no such group")
}

func FuzzReadReply(f *testing.F) {
	f.Add([]byte("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"))
	f.Add([]byte("%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"))
	f.Add([]byte("*9999999999\r\n*999999999\r\n"))
	f.Fuzz(func(t *testing.T, reply []byte) { _, _ = readReply(reply) })
}
