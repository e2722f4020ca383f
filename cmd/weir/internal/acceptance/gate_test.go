package acceptance

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redistest"
)

// A server that runs out of memory shuts the gate before it refuses writes: who submits is told why and until when, what was
// accepted is done, and the gate opens when there is room again. A gate whose nodes are gone does not stay shut.
func TestTheGateShutsBeforeMemoryRunsOut(t *testing.T) {
	s := newSite(t, time.Second, redistest.MaxMemory("64mb", ""))
	p := s.worker("w1", "--gate", "memory=50%")
	payload := strconv.Quote(strings.Repeat("x", 100<<10))
	accepted := 0
	var refused error
	clock := time.NewTicker(200 * time.Millisecond) // 10 MB a second: it looks once a second
	defer clock.Stop()
	for refused == nil {
		<-clock.C
		require.Less(t, accepted, 1000)
		_, refused = s.weir("submit", "--type", "echo", "--id", "t"+strconv.Itoa(accepted), "--count", "20", "--payload", payload)
		if refused == nil {
			accepted += 20
		}
	}
	require.ErrorContains(t, refused, "gate shut: Redis uses 5")
	require.ErrorContains(t, refused, "of its memory, 50.0% are allowed; try again in")
	used := float64(s.stat("memory", "used_memory")) / (64 << 20)
	require.Less(t, used, 0.8, "there is room left for what runs")
	st, err := s.status()
	require.NoError(t, err)
	require.Equal(t, streambridge.GateIsShut, st.Gate.State)
	text, err := s.weir("status")
	require.NoError(t, err)
	require.Contains(t, text, "GATE")
	s.await(waitLong, "all that was accepted is done", func() bool { return s.pending() == 0 })
	require.Equal(t, 1, p.logged("intake is shut"))

	require.NoError(t, p.signal(os.Kill))
	took := s.await(30*time.Second, "a gate that nobody looks at opens", func() bool {
		st, err := s.status()
		require.NoError(t, err)
		return st.Gate.State == streambridge.GateIsOpen
	})
	s.worker("w2", "--gate", "memory=50%")
	s.await(waitLong, "the next node shuts it again", func() bool {
		st, err := s.status()
		require.NoError(t, err)
		return st.Gate.State == streambridge.GateIsShut
	})
	require.NoError(t, s.rdb.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	opened := s.await(waitLong, "the gate opens when there is room", func() bool {
		_, err := s.weir("submit", "--type", "noop")
		return err == nil
	})
	t.Logf("%d tasks of 100 kB accepted, then refused at %.0f %% of memory; open %v after its only node was killed, and %v after there was room",
		accepted, 100*used, took.Round(time.Millisecond), opened.Round(time.Millisecond))
}
