package streamtest

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// bury makes a dead letter of a fresh entry of a task and returns its id.
func (n *node) bury(id string, reason messages.Reason, fail bool) string {
	n.w.Helper()
	before := len(n.letters())
	n.w.Add(task(id)...)
	held := n.hold(1)
	if fail {
		n.w.Begin(n.Node, id, "")
	}
	require.NoError(n.w, n.Bury(n.w.ctx(), []streambridge.Burial{
		{Ref: held[0].Ref, Reason: reason, Detail: "detail", TaskID: id, Type: "t", Fail: fail},
	}))
	ls := n.letters()
	require.Len(n.w, ls, before+1)
	return ls[before].GetId()
}

var deskTests = []test{
	{"dead letters are listed in pages, oldest first", func(w *world) {
		n := w.open("a")
		var ids []string
		for _, id := range []string{"x", "y", "z"} {
			ids = append(ids, n.bury(id, messages.Reason_REASON_REJECTED, true))
		}
		page, err := n.Letters(w.ctx(), "", 2)
		require.NoError(w, err)
		require.Len(w, page, 2)
		require.Equal(w, ids[1], page[1].GetId())
		page, err = n.Letters(w.ctx(), ids[1], 2)
		require.NoError(w, err)
		require.Len(w, page, 1)
		one, err := n.Letter(w.ctx(), ids[0])
		require.NoError(w, err)
		require.Equal(w, "x", one.GetTaskId())
		require.Positive(w, one.GetAtMs())
		for _, id := range []string{"1-1", "", "no id", "-", "+"} {
			_, err = n.Letter(w.ctx(), id)
			require.ErrorIs(w, err, streambridge.ErrNoLetter, id)
			require.ErrorIs(w, n.Settle(w.ctx(), id, streambridge.Drop), streambridge.ErrNoLetter, id)
		}
	}},
	{"retry runs it again with a fresh ledger and a new fence", func(w *world) {
		n := w.open("a")
		id := n.bury("x", messages.Reason_REASON_BUDGET_SPENT, true)
		fence := w.Unit("x", "").Fence
		for range 2 {
			require.NoError(w, n.Settle(w.ctx(), id, streambridge.Retry), "a lost reply is repeated")
		}
		require.Empty(w, n.letters())
		u := w.Unit("x", "")
		require.Equal(w, messages.State_STATE_PENDING, u.State)
		require.Greater(w, u.Fence, fence)
		require.Zero(w, u.Failures)
		require.Empty(w, u.Reason)
		got := n.read(10)
		require.Len(w, got, 1)
		require.Equal(w, "x", value(got[0], messages.ControlID))
		require.Equal(w, "1", value(got[0], messages.ControlWake))
		require.Equal(w, "work of x", value(got[0], "payload"))
	}},
	{"retry keeps what its waits came to; the open ones are gone with the failure", func(w *world) {
		w.Add(task("x")...)
		n := w.open("a")
		held := n.hold(1)
		w.nap("x", "", "nap", 0, task("x"))
		w.nap("x", "", "open", Lease, task("x"))
		w.Begin(n.Node, "x", "")
		w.Pass(time.Millisecond)
		n.tick(0)
		require.NoError(w, n.Bury(w.ctx(), []streambridge.Burial{
			{Ref: held[0].Ref, Reason: messages.Reason_REASON_REJECTED, Detail: "detail", TaskID: "x", Type: "t", Fail: true},
		}))
		u := w.Unit("x", "")
		require.Empty(w, u.Waits)
		require.Equal(w, []string{"nap"}, u.Steps)
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.Zero(w, st.Due)
		require.NoError(w, n.Settle(w.ctx(), n.letters()[0].GetId(), streambridge.Retry))
		require.Equal(w, []string{"nap"}, w.Unit("x", "").Steps)
		require.Equal(w, messages.State_STATE_PENDING, w.Unit("x", "").State)
	}},
	{"retry of an id conflict does not touch the other's work", func(w *world) {
		n := w.open("a")
		id := n.bury("x", messages.Reason_REASON_ID_CONFLICT, false)
		w.Begin(n.Node, "x", "")
		require.NoError(w, n.Settle(w.ctx(), id, streambridge.Retry))
		require.Equal(w, messages.State_STATE_RUNNING, w.Unit("x", "").State)
		require.Len(w, n.read(10), 1)
	}},
	{"complete ends the unit without running it", func(w *world) {
		n := w.open("a")
		id := n.bury("x", messages.Reason_REASON_REJECTED, true)
		for range 2 {
			require.NoError(w, n.Settle(w.ctx(), id, streambridge.Complete))
		}
		require.Equal(w, messages.State_STATE_SUCCEEDED, w.Unit("x", "").State)
		require.Empty(w, n.letters())
		require.Empty(w, n.read(10))
	}},
	{"drop leaves the unit failed", func(w *world) {
		n := w.open("a")
		id := n.bury("x", messages.Reason_REASON_REJECTED, true)
		require.NoError(w, n.Settle(w.ctx(), id, streambridge.Drop))
		require.Equal(w, messages.State_STATE_FAILED, w.Unit("x", "").State)
		require.Empty(w, n.letters())
		require.ErrorIs(w, n.Settle(w.ctx(), id, streambridge.Retry), streambridge.ErrNoLetter)
	}},
	{"a letter without a body cannot be retried", func(w *world) {
		n := w.open("a")
		w.Add(task("x")...)
		held := n.hold(1)
		w.Delete(held[0].Ref)
		n.beat(held...)
		ls := n.letters()
		require.Len(w, ls, 1)
		require.Error(w, n.Settle(w.ctx(), ls[0].GetId(), streambridge.Retry))
		require.Len(w, n.letters(), 1)
		require.Error(w, n.Settle(w.ctx(), ls[0].GetId(), 0))
		require.NoError(w, n.Settle(w.ctx(), ls[0].GetId(), streambridge.Drop))
	}},
	{"the status says how it stands", func(w *world) {
		a, b := w.open("a"), w.open("b")
		a.bury("x", messages.Reason_REASON_REJECTED, true)
		w.add(5)
		require.Len(w, a.read(2), 2)
		w.Retry("r", "", Lease, task("r"))
		a.tick(0)
		w.Kill(b.Node)
		st, err := a.Status(w.ctx())
		require.NoError(w, err)
		require.Equal(w, w.Names().Stream, st.Stream)
		require.Equal(w, w.Names().Group, st.Group)
		require.EqualValues(w, 5, st.Length)
		require.EqualValues(w, 3, st.Lag)
		require.EqualValues(w, 2, st.Pending)
		require.EqualValues(w, 1, st.Dead)
		require.EqualValues(w, 1, st.Due)
		require.EqualValues(w, 1, st.States["FAILED"])
		require.EqualValues(w, 1, st.States["RETRYING"])
		require.Len(w, st.Consumers, 2)
		for _, c := range st.Consumers {
			require.Equal(w, c.Name == "a", c.Live, c.Name)
			if c.Name == "a" {
				require.EqualValues(w, 2, c.Pending)
				require.Equal(w, a.Node.Incarnation, c.Incarnation)
			}
		}
	}},
	{"the status says what runs on after its timeout", func(w *world) {
		a, b := w.open("a"), w.open("b")
		stuck := func() (at []int64) {
			st, err := a.Status(w.ctx())
			require.NoError(w, err)
			slices.SortFunc(st.Consumers, func(c, d streambridge.Consumer) int { return strings.Compare(c.Name, d.Name) })
			for _, c := range st.Consumers {
				at = append(at, c.Stuck)
			}
			return at
		}
		for _, n := range []int64{3, 1, 0, 2} {
			_, err := a.Tick(w.ctx(), streambridge.TickRequest{StrayAfter: Lease, DeadTTL: Lease, Stuck: n})
			require.NoError(w, err)
			require.Equal(w, []int64{n, 0}, stuck())
		}
		w.Kill(a.Node)
		b.tick(0)
		for _, n := range stuck() {
			require.Zero(w, n, "what ran there is gone")
		}
	}},
	{"the status says what waits for an agent type", func(w *world) {
		w.add(3)
		a := w.open("a")
		held := a.hold(3)
		require.NoError(w, a.Move(w.ctx(), "u:1", held[:2]))
		require.NoError(w, a.Move(w.ctx(), "v", held[2:]))
		status := func(n *node) streambridge.Status {
			st, err := n.Status(w.ctx())
			require.NoError(w, err)
			return st
		}
		a.tick(0)
		st := status(a)
		require.Equal(w, []string{"u:1", "v"}, st.Unserved)
		require.Len(w, st.Waiting, 2)
		require.Equal(w, "u:1", st.Waiting[0].Type)
		require.EqualValues(w, 2, st.Waiting[0].Entries)
		require.Eventually(w, func() bool {
			w.Pass(time.Millisecond)
			return status(a).Waiting[0].OldestMS > 1
		}, Lease, time.Millisecond)
		require.False(w, st.Waiting[0].Served)
		require.EqualValues(w, 3, st.States["PENDING"])
		require.Zero(w, st.States["RUNNING"])

		b := w.open("b", "other", "u:1") // it has the type from its first tick on, and that drains it
		require.Len(w, b.tick(10).Drained, 2)
		st = status(a)
		require.Equal(w, []string{"v"}, st.Unserved)
		require.Len(w, st.Waiting, 1)
		require.EqualValues(w, 1, st.States["PENDING"])
		require.EqualValues(w, 2, st.States["RUNNING"], "in b's hands")
	}},
	{"status of a group at rest", func(w *world) {
		n := w.open("a")
		st, err := n.Status(w.ctx())
		require.NoError(w, err)
		require.True(w, st.StreamExists && st.GroupExists)
		require.Empty(w, st.Waiting)
		require.Zero(w, st.Length+st.Inbox+st.Pending+st.Dead+st.Due+st.OldestMS)
		require.Less(w, st.Consumers[0].LastTickMS, Lease.Milliseconds())
		w.Pass(time.Second)
	}},
}
