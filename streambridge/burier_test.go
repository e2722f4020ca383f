package streambridge

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

// graveyard refuses some letters, or all of them.
type graveyard struct {
	Stream
	down   bool
	never  map[string]bool
	calls  int
	buried map[string]bool
}

func (g *graveyard) Bury(_ context.Context, dead []Burial) error {
	g.calls++
	for _, d := range dead {
		if g.down || g.never[d.ID] {
			return errors.New("refused")
		}
		g.buried[d.ID] = true
	}
	return nil
}

func TestTheBurierNeitherStopsAtSomeLettersNorAsksADeadServerForEach(t *testing.T) {
	g := &graveyard{never: map[string]bool{}, buried: map[string]bool{}}
	b := &burier{stream: g, post: func(event) {}, timeout: time.Second, monitor: &monitor{log: hclog.NewNullLogger(), emit: func(Event) {}}}
	var batch []errand
	for i := range buryBatch {
		ref := messages.Ref{Stream: "s", ID: fmt.Sprint(i, "-0")}
		batch = append(batch, errand{letter: &Burial{Ref: ref}, held: Held{Ref: ref}})
		g.never[ref.ID] = i < 5 // in a row, and first
	}
	g.down = true
	left := b.batch(t.Context(), batch)
	require.Len(t, left, buryBatch)
	require.Equal(t, 3, g.calls, "all at once, and two by themselves")

	g.down = false
	for round := 0; len(left) > 5; round++ {
		require.Less(t, round, 5)
		left = b.batch(t.Context(), left)
	}
	require.Len(t, g.buried, buryBatch-5)
}
