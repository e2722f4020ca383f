package supervision_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

// What a store does not start is refused in the author's call, and never lost in silence.
func TestWhatAStoreDoesNotStartIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rt, _ := start(t, b.config("n1", actors.Agents{
			"emits": actors.Func(func(c *actors.Context, _ int) (actors.None, error) {
				return nil, actors.Emit(c, "other", actors.NewTask{Type: "x"})
			}),
			"spawns": actors.Func(func(c *actors.Context, _ int) ([]int, error) {
				return actors.Join(c, "all", time.Hour, []*actors.Child[int]{actors.Spawn[int](c, "one", actors.NewTask{Type: "x"})})
			}),
		}))
		for _, kind := range []string{"emits", "spawns"} {
			_, err := actors.Result[actors.Raw](t.Context(), submit(t, rt.Client(), actors.NewTask{Type: kind, ID: kind, Payload: 1}))
			require.ErrorContains(t, err, "does not start tasks for others yet")
		}
	})
}
