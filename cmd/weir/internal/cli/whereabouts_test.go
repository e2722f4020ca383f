package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

// A look ends, however long the stream is and however large its entries are.
func TestALookIsBounded(t *testing.T) {
	for _, c := range []struct{ length, size, want int }{
		{0, 1, 0},
		{lookPage - 1, 1, lookPage - 1},
		{lookPage, 1, lookPage},
		{10 * lookMost, 1, lookMost},
		{10 * lookMost, 1 << 20, lookPage}, // whole pages: the first is over the bound
	} {
		next, seen := 0, 0
		value := strings.Repeat("x", c.size)
		from := func(after string) *redis.XMessageSliceCmd {
			if next == 0 {
				require.Empty(t, after)
			} else {
				require.Equal(t, fmt.Sprint(next-1), after)
			}
			var page []redis.XMessage
			for ; len(page) < lookPage && next < c.length; next++ {
				page = append(page, redis.XMessage{ID: fmt.Sprint(next), Values: map[string]any{"f": value}})
			}
			cmd := &redis.XMessageSliceCmd{}
			cmd.SetVal(page)
			return cmd
		}
		require.NoError(t, look(from, func(redis.XMessage) bool { seen++; return true }))
		require.Equal(t, c.want, seen, "%+v", c)
	}
}

func TestPendingUnits(t *testing.T) {
	at := idTime("5-1")
	got := pendingUnits([]standing{{Unit: "a", taskType: "x", created: at}, {Unit: "a"}, {Unit: "b", taskType: "y"}})
	require.Len(t, got, 2)
	require.Equal(t, "x", got[0].Type)
	require.EqualValues(t, 5, got[0].Created.UnixMilli())
	require.True(t, unbegun(&actors.TaskRecord{Units: got}))
	require.True(t, unbegun(nil))
	require.True(t, idTime("").IsZero())
}
