package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/cmd/weir/internal/bench/floor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMedian(t *testing.T) {
	require.InDelta(t, 2.0, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	got := medians([]floor.Latency{{N: 2, P50: 1, P99: 30}, {N: 3, P50: 3, P99: 10}, {N: 4, P50: 2, P99: 20}})
	require.Equal(t, Latencies{N: 9, P50: 2, P99: 20}, got)
}

func TestValidate(t *testing.T) {
	good := Options{Tasks: 4, Rounds: 1, InFlight: 1, Wakes: 1}
	require.NoError(t, good.Validate())
	bad := good
	bad.Rounds = 0
	require.EqualError(t, bad.Validate(), "rounds (0) must be at least 1")
}

// Commands are counted wherever their bytes are cut.
func TestCommandScan(t *testing.T) {
	resp := func(args ...string) string {
		s := fmt.Sprintf("*%d\r\n", len(args))
		for _, a := range args {
			s += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
		}
		return s
	}
	stream := resp("PING") + resp("EVALSHA", "*3\r\n$3\r\nGET\r\n", "0") + resp("SET", "k", "") + resp("xreadgroup", strings.Repeat("\n", 300))
	for size := 1; size < len(stream); size += 3 {
		var got []string
		var scan commandScan
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			scan.write([]byte(rest[:n]), func(name string) { got = append(got, name) })
			rest = rest[n:]
		}
		require.Equal(t, []string{"PING", "EVALSHA", "SET", "xreadgroup"}, got, "cut every %d bytes", size)
	}
}

func TestResidentBytes(t *testing.T) {
	n, err := residentBytes()
	require.NoError(t, err)
	require.Greater(t, n, int64(1<<20))
	require.Less(t, n, int64(1<<40))
}
