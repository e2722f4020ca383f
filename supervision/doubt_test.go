package supervision_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
	"github.com/weir-run/weir/supervision"
)

// A node is cut off, for good, in the middle of effects that must not happen twice: they are in doubt, and a person settles
// them in three ways. (With processes that die, and Redis: cmd/weir.)
func TestDoubtsAreSettledByAPerson(t *testing.T) {
	server := memstream.NewServer()
	handle := func() (*memstream.Stream, actors.State) {
		s := server.Stream()
		return s, memstate.New(s)
	}
	b := backend{actors.Names{Stream: "s", Group: "g"}, func() (supervision.Stream, actors.State) { return handle() }}
	var effects atomic.Int32
	inside, ids := make(chan struct{}, 3), []string{"done", "rerun", "fail"}
	agents := func(dies bool) actors.Agents {
		return actors.Agents{"pay": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
			return actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
				effects.Add(1)
				if dies {
					inside <- struct{}{}
					<-s.Done()
				}
				return "receipt", s.Err()
			}, actors.Unrepeatable())
		})}
	}
	stream, state := handle()
	doomed, err := supervision.New(b.configOf("n1", stream, state, agents(true)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- doomed.Run(ctx) }()
	require.Eventually(t, func() bool { return doomed.Ready() == nil }, 10*time.Second, time.Millisecond)
	_, desk := handle()
	client, err := actors.NewClient(desk, b.names)
	require.NoError(t, err)
	for _, id := range ids {
		submit(t, client, actors.NewTask{Type: "pay", ID: id})
		<-inside
	}
	stream.SetDown(errors.New("cut off"))
	rt, _ := start(t, b.config("n2", agents(false)))
	stop()

	var page actors.TaskPage
	require.Eventually(t, func() bool {
		page, err = client.Tasks(t.Context(), actors.TaskQuery{Doubt: true})
		return err == nil && len(page.Tasks) == 3
	}, 20*time.Second, 10*time.Millisecond)
	for _, item := range page.Tasks {
		require.Equal(t, "pay", item.Unit.Doubt)
		require.Equal(t, messages.State_STATE_WAITING, item.Unit.State)
	}
	require.EqualValues(t, 3, effects.Load(), "none ran again")
	require.NoError(t, client.Task("done").ResolveDone(t.Context(), "pay", "found in the books", "I looked"))
	require.NoError(t, client.Task("rerun").ResolveRerun(t.Context(), "pay", "nothing in the books"))
	require.NoError(t, client.Task("fail").ResolveFail(t.Context(), "pay", "nobody knows"))
	var none *actors.NoDoubtError
	require.ErrorAs(t, client.Task("done").ResolveFail(t.Context(), "pay", "too late"), &none)
	require.Equal(t, "found in the books", result[string](t, client.Task("done")))
	require.Equal(t, "receipt", result[string](t, client.Task("rerun")))
	_, err = actors.Result[string](t.Context(), client.Task("fail"))
	var failed *actors.TaskError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "in_doubt", failed.Reason)
	require.EqualValues(t, 4, effects.Load())
	require.Eventually(t, func() bool { return rt.Stats().Bridge.InFlight == 0 }, 10*time.Second, time.Millisecond)
	require.Error(t, <-ended, "the node that was cut off could give nothing back")
}
