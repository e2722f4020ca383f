package supervision_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

// A key of somebody else's under a task's name sets that one task aside; it holds no place and stops nobody.
func TestAForeignKeyUnderATasksNameIsADeadLetter(t *testing.T) {
	client := redistest.Shared(t).Client()
	names := actors.Names{Stream: redistest.Name(t), Group: "g"}
	keys, err := messages.NewKeys(names)
	require.NoError(t, err)
	require.NoError(t, client.Set(t.Context(), keys.Task("bad"), "mine", 0).Err())
	cfg := backend{names, nil}.configOf("n1", redisstream.New(client), redisstate.New(client), actors.Agents{
		"a": actors.Func(func(*actors.Context, actors.Raw) (int, error) { return 1, nil }),
	})
	rt, _ := start(t, cfg)
	submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "bad"})
	require.Equal(t, 1, result[int](t, submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "good"})))
	var letters []*messages.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = cfg.Stream.Letters(t.Context(), "", 10)
		return err == nil && len(letters) == 1
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, messages.Reason_REASON_BAD_STATE, letters[0].GetReason())
	require.Contains(t, letters[0].GetDetail(), "WRONGTYPE")
	require.Eventually(t, func() bool { return rt.Stats().Bridge.InFlight == 0 && rt.Ready() == nil }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, "mine", client.Get(t.Context(), keys.Task("bad")).Val(), "it is not ours to touch")
	require.NoError(t, cfg.Stream.Settle(t.Context(), letters[0].GetId(), streambridge.Drop))
}
