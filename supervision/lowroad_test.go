package supervision_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/agentactor"
	"github.com/weir-run/weir/messages"
)

// plain makes an agent of a function that a plain protoactor actor runs for each Assign.
func plain(f func(c actor.Context, m *messages.Assign)) actors.Agent {
	return plainProps(func(c actor.Context) {
		if m, ok := c.Message().(*messages.Assign); ok {
			f(c, m)
		}
	})
}

func plainProps(f func(c actor.Context)) actors.Agent {
	return agentactor.FromProps(actor.PropsFromFunc(f))
}

func TestAPlainActorServesATask(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var tries atomic.Int32
		agents := actors.Agents{
			"count": plain(func(c actor.Context, m *messages.Assign) {
				sender, root := c.Sender(), c.ActorSystem().Root
				go root.Send(sender, agentactor.Finish(m, "text/plain", []byte("42"), nil))
			}),
			"again": plain(func(c actor.Context, m *messages.Assign) {
				if tries.Add(1) == 1 {
					f := agentactor.Finish(m, "", nil, errors.New("not yet"))
					f.AfterMs = 10
					c.Respond(f)
					return
				}
				c.Respond(agentactor.Finish(m, "text/plain", []byte("second"), nil))
			}),
			"no": plain(func(c actor.Context, m *messages.Assign) {
				f := agentactor.Finish(m, "", nil, errors.New("never"))
				f.Outcome = messages.Outcome_OUTCOME_REJECTED
				c.Respond(f)
			}),
		}
		rt, _ := start(t, b.config("n1", agents))
		require.Equal(t, "42", string(result[actors.Raw](t, submit(t, rt.Client(), actors.NewTask{Type: "count", ID: "a"})).Bytes))
		require.Equal(t, "second", string(result[actors.Raw](t, submit(t, rt.Client(), actors.NewTask{Type: "again", ID: "b"})).Bytes))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := actors.Result[actors.Raw](ctx, submit(t, rt.Client(), actors.NewTask{Type: "no", ID: "c"}))
		var failed *actors.TaskError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "rejected", failed.Reason)
	})
}

// A panic, an end without an answer, and silence past the deadline are crashes; an answer under an old fence is none.
func TestAPlainActorThatCrashes(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		crashing := func(crash func(c actor.Context, m *messages.Assign)) actors.Agent {
			var tries atomic.Int32
			return plain(func(c actor.Context, m *messages.Assign) {
				if tries.Add(1) == 1 {
					crash(c, m)
					return
				}
				c.Respond(agentactor.Finish(m, "text/plain", []byte(m.GetCrash()), nil))
			}).With(actors.Timeout(200 * time.Millisecond))
		}
		agents := actors.Agents{
			"panics": crashing(func(actor.Context, *messages.Assign) { panic("plain panic") }),
			"stops":  crashing(func(c actor.Context, _ *messages.Assign) { c.Stop(c.Self()) }),
			"silent": crashing(func(actor.Context, *messages.Assign) {}),
			"old": crashing(func(c actor.Context, m *messages.Assign) {
				f := agentactor.Finish(m, "", []byte("old"), nil)
				f.Fence = m.GetFence() + 7
				c.Respond(f)
			}),
		}
		rt, _ := start(t, b.config("n1", agents))
		for kind, says := range map[string]string{
			"panics": "plain panic", "stops": "stopped without an answer", "silent": "no answer within 200ms", "old": "no answer within 200ms",
		} {
			got := string(result[actors.Raw](t, submit(t, rt.Client(), actors.NewTask{Type: kind, ID: kind})).Bytes)
			require.Contains(t, got, says, kind)
		}
	})
}

// A handler that ends its goroutine, as require does in a test, is a crash and wedges nothing.
func TestAHandlerThatEndsItsGoroutine(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var tries atomic.Int32
		agents := actors.Agents{"a": actors.Func(func(*actors.Context, actors.Raw) (int, error) {
			if tries.Add(1) == 1 {
				runtime.Goexit()
			}
			return 7, nil
		})}
		rt, _ := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "a", ID: "t"})
		require.Equal(t, 7, result[int](t, task))
		record, err := task.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(1), record.Units[0].Ledger.Crashes)
	})
}
