package redisstream_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

// A look writes nothing: no group, no consumer, no key.
func TestALookLeavesNoTrace(t *testing.T) {
	rdb := redistest.Start(t).Client()
	names := messages.Names{Stream: "s", Group: "g"}
	desk := redisstream.New(rdb)
	require.NoError(t, desk.Bind(names))
	require.Error(t, redisstream.New(rdb).Bind(messages.Names{Stream: "a{b"}))

	status, err := desk.Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.Length)
	letters, err := desk.Letters(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, letters)
	require.Zero(t, rdb.DBSize(t.Context()).Val())

	require.NoError(t, rdb.Do(t.Context(), "XADD", "s", "*", "type", "x").Err())
	status, err = desk.Status(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, status.Length)
	require.EqualValues(t, 1, status.Lag, "nobody has read it")
	require.EqualValues(t, 1, status.States["PENDING"])
	require.EqualValues(t, 1, rdb.DBSize(t.Context()).Val())
	require.ErrorIs(t, desk.Settle(t.Context(), "1-1", streambridge.Drop), streambridge.ErrNoLetter)

	_, err = desk.Tick(t.Context(), streambridge.TickRequest{})
	require.ErrorIs(t, err, streambridge.ErrNotOpen)
	_, err = desk.Read(t.Context(), 1, time.Second)
	require.ErrorIs(t, err, streambridge.ErrNotOpen)
}
