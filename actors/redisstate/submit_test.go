package redisstate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

// batch is ten thousand tasks: every fifth is for later, and every seventh has a unique key that it shares with none.
func batch(n int) []actors.NewTask {
	tasks := make([]actors.NewTask, n)
	for i := range tasks {
		tasks[i] = actors.NewTask{Type: "noop", ID: fmt.Sprint("t", i), Payload: map[string]int{"n": i}}
		if i%5 == 0 {
			tasks[i].Delay = time.Hour
		}
		if i%7 == 0 {
			tasks[i].Unique, tasks[i].For = fmt.Sprint("k", i), time.Hour
		}
	}
	return tasks
}

const many = 10_000

// inOrder checks that each task is in the stream once, in the order of the batch, or waits for its time.
func inOrder(t *testing.T, w *world, n int) {
	t.Helper()
	got, at := w.Public(t), 0
	for i := range n {
		if i%5 == 0 {
			continue
		}
		require.Less(t, at, len(got), "task %d", i)
		require.Equal(t, fmt.Sprint("t", i), got[at].Field("task_id"))
		at++
	}
	require.Len(t, got, at)
	require.Len(t, w.Delayed(t), (n+4)/5)
}

func TestSubmitTenThousand(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	c, err := actors.NewClient(s, w.names)
	require.NoError(t, err)
	began := time.Now()
	got, err := c.SubmitAll(t.Context(), batch(many))
	require.NoError(t, err)
	t.Logf("%d tasks in %v", many, time.Since(began).Round(time.Millisecond))
	inOrder(t, w, many)
	for i, task := range got {
		require.Equal(t, fmt.Sprint("t", i), task.ID)
		require.False(t, task.Known)
		require.Equal(t, i%5 == 0, !task.Due.IsZero())
	}
	again, err := c.SubmitAll(t.Context(), batch(many))
	require.NoError(t, err)
	inOrder(t, w, many)
	for i, task := range again {
		require.True(t, task.Known)
		require.Equal(t, got[i].EntryID, task.EntryID)
		require.True(t, got[i].Due.Equal(task.Due))
	}
}

// The replies of some scripts on the way are lost, one at a time, and with each the rest of its pipeline. Whoever repeats
// the whole batch until it succeeds has each task once, in order.
func TestSubmitTenThousandOverABadLine(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	wire := redistest.StartProxy(t, srv.Addr())
	rdb := srv.NewClient(redistest.Via(wire))
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c, err := actors.NewClient(w.state(t, rdb), w.names)
	require.NoError(t, err)
	_, err = newWorld(t, srv.Client()).state(t, srv.Client()).Submit(t.Context(), []actors.Submission{{ID: "warm", Fields: []messages.Pair{{Name: "a"}}}})
	require.NoError(t, err, "the server knows the script from here on")
	for _, n := range []int{0, 130, 999, 3000, 7777, many - 1} {
		lost := wire.LoseReply(func(cmd []string) bool { return slices.Contains(cmd, fmt.Sprint("t", n)) })
		got, err := c.SubmitAll(t.Context(), batch(many))
		require.Error(t, err)
		<-lost
		for i, task := range got {
			if task != nil {
				require.Equal(t, fmt.Sprint("t", i), task.ID)
			}
		}
		require.Nil(t, got[n], "its answer was lost")
	}
	got, err := c.SubmitAll(t.Context(), batch(many))
	require.NoError(t, err)
	for i, task := range got {
		require.True(t, task.Known, "task %d", i)
	}
	inOrder(t, w, many)
}

// Some of a batch are refused, each for a reason of its own; the others are added.
func TestSubmitTenThousandOfWhichSomeAreRefused(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	s := w.state(t, srv.Client())
	c, err := actors.NewClient(s, w.names)
	require.NoError(t, err)
	var other []actors.NewTask
	for i := 0; i < many; i += 100 {
		other = append(other, actors.NewTask{Type: "noop", ID: fmt.Sprint("t", i), Payload: "other work"})
	}
	_, err = c.SubmitAll(t.Context(), other)
	require.NoError(t, err)

	got, err := c.SubmitAll(t.Context(), batch(many))
	require.ErrorIs(t, err, actors.ErrConflict)
	require.ErrorContains(t, err, "100 of 10000 tasks refused")
	for i, task := range got {
		require.Equal(t, i%100 == 0, task == nil, "task %d", i)
	}

	small, err := actors.NewClient(s, w.names, actors.MaxBacklog(8000+100+30)) // the next eight of ten, and thirty more
	require.NoError(t, err)
	more := batch(many + 100)[many:]
	got, err = small.SubmitAll(t.Context(), more)
	require.ErrorIs(t, err, actors.ErrBacklogFull)
	added := 0
	for _, task := range got {
		if task != nil {
			added++
		}
	}
	require.Equal(t, 30+20, added, "thirty had room in the stream, and twenty are for later")
	require.Len(t, w.Public(t), 8000+100+30)
}

// A submission for later, or with a unique key, whose reply was lost is known when it is made again.
func TestSubmitLaterLostReply(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	wire := redistest.StartProxy(t, srv.Addr())
	rdb := srv.NewClient(redistest.Via(wire))
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := w.state(t, rdb)
	sub := actors.Submission{
		ID: "a", Work: "1", Fields: []messages.Pair{{Name: "task_id", Value: "a"}}, Delay: time.Hour, Unique: "k", For: time.Hour,
	}
	_, err := s.Submit(t.Context(), []actors.Submission{{ID: "warm", Work: "1", Fields: sub.Fields}}) // the script is known now
	require.NoError(t, err)
	lost := wire.LoseReply(func(cmd []string) bool {
		return redistest.Script(submitScript.plain.source)(cmd) || redistest.Script(submitScript.flagged.source)(cmd)
	})
	_, err = s.Submit(t.Context(), []actors.Submission{sub})
	require.Error(t, err)
	<-lost
	got, err := s.Submit(t.Context(), []actors.Submission{sub})
	require.NoError(t, err)
	require.True(t, got[0].Known)
	require.Empty(t, got[0].ID, "known by its id, not by its key")
	require.Len(t, w.Delayed(t), 1)
}

// A batch whose context ends is in the stream up to some point, and known as far when it is made again.
func TestSubmitUntilTheContextEnds(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	c, err := actors.NewClient(w.state(t, srv.Client()), w.names)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	got, err := c.SubmitAll(ctx, batch(many))
	if err == nil {
		t.Skip("a fast machine")
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	added := 0
	for _, task := range got {
		if task != nil {
			added++
		}
	}
	require.Less(t, added, many)
	_, err = c.SubmitAll(t.Context(), batch(many))
	require.NoError(t, err)
	inOrder(t, w, many)
}
