package memstate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/statetest"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/memstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { statetest.Run(t, fresh) }

func fresh(t *testing.T) statetest.Fixture {
	names := messages.Names{Stream: "agent:tasks", Group: "agent-workers"}.WithDefaults()
	keys, err := messages.NewKeys(names)
	if err != nil {
		t.Fatal(err)
	}
	server := memstream.NewServer()
	open := func() *memstate.State {
		state := memstate.New(server.Stream())
		if err := state.Bind(names); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := state.Close(); err != nil {
				t.Error(err)
			}
		})
		return state
	}
	return statetest.Fixture{
		State: open(), Other: open(), Names: names,
		World: &world{server: server, stream: server.Stream(), keys: keys, group: names.Group},
	}
}

// world touches the group through scripts of its own.
type world struct {
	server *memstream.Server
	stream *memstream.Stream
	keys   messages.Keys
	group  string
}

func (w *world) script(t testing.TB, do func(tx *memstream.Tx)) {
	t.Helper()
	err := w.stream.Script(t.Context(), "fixture", w.keys, w.group, func(tx *memstream.Tx) error {
		do(tx)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) Deliver(t testing.TB, inbox bool, consumer string, fields []messages.Pair) (ref messages.Ref) {
	w.script(t, func(tx *memstream.Tx) {
		ref = tx.AddTo(inbox, fields)
		tx.HandOut(inbox, consumer)
	})
	return ref
}

func (w *world) Claim(t testing.TB, ref messages.Ref, consumer string) {
	w.script(t, func(tx *memstream.Tx) {
		if !tx.Claim(ref, consumer) {
			t.Fatalf("%v is not pending", ref)
		}
	})
}

func (w *world) TakeInbox(t testing.TB, consumer string) (found []statetest.Delivery) {
	w.script(t, func(tx *memstream.Tx) {
		for _, e := range tx.HandOut(true, consumer) {
			found = append(found, statetest.Delivery{Ref: e.Ref, Fields: e.Fields})
		}
	})
	return found
}

func (w *world) Ack(t testing.TB, ref messages.Ref) {
	w.script(t, func(tx *memstream.Tx) { tx.Settle(ref) })
}

func (w *world) Pending(t testing.TB, ref messages.Ref) (found bool) {
	w.script(t, func(tx *memstream.Tx) {
		for _, p := range tx.Pending(ref.Stream == w.keys.Inbox()) {
			found = found || p.ID == ref.ID
		}
	})
	return found
}

func (w *world) Trim(t testing.TB, ref messages.Ref) {
	if !w.server.Delete(ref) {
		t.Fatalf("%v is not in its stream", ref)
	}
}

func (w *world) Save(t testing.TB, ref messages.Ref, taskID, unit string) {
	w.script(t, func(tx *memstream.Tx) { tx.Save(ref, taskID, unit) })
}

func (w *world) Public(t testing.TB) (found []statetest.Delivery) {
	w.script(t, func(tx *memstream.Tx) {
		for _, e := range tx.Entries(false) {
			found = append(found, statetest.Delivery{Ref: e.Ref, Fields: e.Fields})
		}
	})
	return found
}

func (w *world) Live(t testing.TB, incarnation string, live bool) {
	w.script(t, func(tx *memstream.Tx) {
		if live {
			tx.SetLive(incarnation, time.Minute)
		} else {
			tx.SetLive(incarnation, 0)
		}
	})
}

func (w *world) Tick(t testing.TB, incarnation string, at time.Time) {
	w.script(t, func(tx *memstream.Tx) { tx.KeepLife(incarnation).TickMS = at.UnixMilli() })
}

func (w *world) Gate(t testing.TB, lag, limit int, hint time.Duration) {
	w.script(t, func(tx *memstream.Tx) { tx.SetGate(lag, limit, hint) })
}

func (w *world) Calm(t testing.TB, until time.Time) {
	w.script(t, func(tx *memstream.Tx) {
		if until.IsZero() {
			tx.SetCalm(0)
		} else {
			tx.SetCalm(until.UnixMilli())
		}
	})
}

func (w *world) EndTrial(t testing.TB, incarnation string) {
	w.script(t, func(tx *memstream.Tx) { tx.KeepLife(incarnation).TrialUntilMS = 0 })
}

func (w *world) Now(testing.TB) time.Time { return w.server.Clock() }
func (w *world) Wipe(testing.TB)          { w.server.FlushAll() }

func (w *world) Due(t testing.TB) map[string]time.Time {
	found := map[string]time.Time{}
	w.script(t, func(tx *memstream.Tx) {
		for member, ms := range tx.DueSet() {
			found[member] = time.UnixMilli(ms)
		}
	})
	return found
}

func (w *world) Delayed(t testing.TB) map[string]time.Time {
	found := map[string]time.Time{}
	w.script(t, func(tx *memstream.Tx) {
		for member, ms := range tx.DelayedMembers() {
			found[member] = time.UnixMilli(ms)
		}
	})
	return found
}

func (w *world) Promote(t testing.TB, taskID, unit string) {
	w.script(t, func(tx *memstream.Tx) { tx.Promote(taskID, unit) })
}

func (w *world) Pass(t testing.TB, d time.Duration) {
	w.script(t, func(tx *memstream.Tx) { tx.Hasten(d) })
}

// Turn is a tick by a node that takes nothing.
func (w *world) Turn(t testing.TB) {
	t.Helper()
	w.as(t, "00000000000000ee", "clock", func(s *memstream.Stream) error {
		_, err := s.Tick(t.Context(), streambridge.TickRequest{DeadTTL: time.Hour})
		return err
	})
}

// as lets a node do something.
func (w *world) as(t testing.TB, incarnation, consumer string, do func(s *memstream.Stream) error) {
	t.Helper()
	s := w.server.Stream()
	defer func() { require.NoError(t, s.Close()) }()
	node := messages.Node{Incarnation: incarnation, Consumer: consumer, Lease: 24 * time.Hour, Beat: time.Hour, Types: []string{"none"}}
	require.NoError(t, s.Open(t.Context(), messages.Names{Stream: w.keys.Stream, Group: w.group}.WithDefaults(), node))
	require.NoError(t, do(s))
}

func (w *world) Release(t testing.TB, incarnation, consumer string, ref messages.Ref, taskID, unit string) {
	t.Helper()
	w.as(t, incarnation, consumer, func(s *memstream.Stream) error {
		_, err := s.Release(t.Context(), []streambridge.Held{{Ref: ref, TaskID: taskID, Unit: unit}})
		return err
	})
}

func (w *world) Bury(t testing.TB, incarnation, consumer string, ref messages.Ref, taskID, unit, agentType string, reason messages.Reason, fail bool) {
	t.Helper()
	w.as(t, incarnation, consumer, func(s *memstream.Stream) error {
		return s.Bury(t.Context(), []streambridge.Burial{{
			Ref: ref, Reason: reason, Detail: "set aside", TaskID: taskID, Unit: unit, Type: agentType, Fail: fail,
		}})
	})
}

func (w *world) Settle(t testing.TB, letterID, how string) (refused error) {
	t.Helper()
	w.as(t, "00000000000000ee", "clock", func(s *memstream.Stream) error {
		refused = s.Settle(t.Context(), letterID, settlements[how])
		return nil
	})
	return refused
}

var settlements = map[string]streambridge.Settlement{
	"retry": streambridge.Retry, "complete": streambridge.Complete, "drop": streambridge.Drop,
}

func (w *world) Uncopy(t testing.TB, taskID, unit string) {
	w.script(t, func(tx *memstream.Tx) { tx.Unsave(messages.Ref{}, taskID, unit) })
}

func (w *world) Standing(t testing.TB, taskID string) (found map[string]time.Duration) {
	w.script(t, func(tx *memstream.Tx) { found = tx.Standing(taskID) })
	return found
}

func (w *world) Dead(t testing.TB) (found []*messages.DeadLetter) {
	w.script(t, func(tx *memstream.Tx) { found = tx.Letters() })
	return found
}

func (w *world) Index(t testing.TB, state messages.State, agentType string) (members []string) {
	w.script(t, func(tx *memstream.Tx) { members = tx.Index(state, agentType) })
	return members
}

func (w *world) Count(t testing.TB, name string) (n int64) {
	w.script(t, func(tx *memstream.Tx) { n = tx.Total(name) })
	return n
}
