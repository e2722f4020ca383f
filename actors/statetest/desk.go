package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func submission(task *messages.Task) actors.Submission {
	return actors.Submission{
		ID: task.GetTaskId(), Unit: task.GetUnit(), Work: messages.WorkHash(task.GetType(), task.GetPayload()),
		Fields: fieldsOf(task),
	}
}

func (r *rig) submit(tasks ...actors.Submission) []actors.Submitted {
	r.t.Helper()
	got, err := r.State.Submit(r.t.Context(), tasks)
	require.NoError(r.t, err)
	require.Len(r.t, got, len(tasks))
	return got
}

var deskCases = map[string]func(*testing.T, *rig){
	"submit adds in order and keeps the bytes": func(t *testing.T, r *rig) {
		var tasks []actors.Submission
		for i := range 300 {
			task := newTask(fmt.Sprint("t", i))
			task.Payload = []byte(allBytes(i))
			tasks = append(tasks, submission(task))
		}
		got := r.submit(tasks...)
		public := r.World.Public(t)
		require.Len(t, public, 300)
		for i, s := range got {
			require.NoError(t, s.Err)
			require.False(t, s.Known)
			require.Equal(t, public[i].Ref.ID, s.EntryID)
			require.Equal(t, tasks[i].Fields, public[i].Fields)
		}
	},
	"submitted again it is known": func(t *testing.T, r *rig) {
		first := r.submit(submission(newTask("a")))[0]
		again := r.submit(submission(newTask("a")), submission(newTask("b")), submission(newTask("b")))
		require.Equal(t, actors.Submitted{EntryID: first.EntryID, Known: true}, again[0])
		require.False(t, again[1].Known)
		require.True(t, again[2].Known)
		require.Len(t, r.World.Public(t), 2)
	},
	"other work under a known id is a conflict": func(t *testing.T, r *rig) {
		r.submit(submission(newTask("a")))
		other := newTask("a")
		other.Payload = []byte("other")
		require.ErrorIs(t, r.submit(submission(other))[0].Err, actors.ErrConflict)
		require.False(t, r.submit(submission(part("a", "2")))[0].Known, "another unit of it is not")
		require.Len(t, r.World.Public(t), 2)
	},
	"a full backlog refuses, but knows what it has": func(t *testing.T, r *rig) {
		var tasks []actors.Submission
		for i := range 5 {
			s := submission(newTask(fmt.Sprint("t", i)))
			s.MaxLen = 3
			tasks = append(tasks, s)
		}
		got := r.submit(tasks...)
		for i, s := range got {
			if i < 3 {
				require.NoError(t, s.Err)
			} else {
				require.ErrorIs(t, s.Err, actors.ErrBacklogFull)
			}
		}
		require.True(t, r.submit(tasks[0])[0].Known)
		require.Len(t, r.World.Public(t), 3)
	},
	"a shut gate refuses, says why and until when, and knows what it has": func(t *testing.T, r *rig) {
		known := r.submit(submission(newTask("known")))[0]
		r.World.Gate(t, 12, 10, 7*time.Second)
		for _, s := range r.submit(submission(newTask("a")), submission(newTask("b"))) {
			require.ErrorIs(t, s.Err, actors.ErrGateShut)
			var shut *actors.GateError
			require.ErrorAs(t, s.Err, &shut)
			require.Equal(t, "12 entries wait for their delivery, 10 are allowed", shut.Reason)
			require.Equal(t, 7*time.Second, shut.RetryAfter)
			require.Empty(t, s.EntryID)
		}
		require.Equal(t, actors.Submitted{EntryID: known.EntryID, Known: true}, r.submit(submission(newTask("known")))[0])
		w := r.deliver(newTask("running"), here)
		b := w.run()
		r.commit(w.retry(b, 0)) // work goes on
		r.World.Gate(t, 0, 0, 0)
		require.NoError(t, r.submit(submission(newTask("a")))[0].Err)
		require.Len(t, r.World.Public(t), 3)
	},
	"a submitted task is PENDING": func(t *testing.T, r *rig) {
		got := r.submit(submission(newTask("a")))
		u := r.unit(newTask("a"))
		require.Equal(t, messages.State_STATE_PENDING, u.State)
		require.Equal(t, "noop", u.Type)
		require.WithinDuration(t, r.World.Now(t), u.Created, 5*time.Second)
		rec := r.record("a")
		require.Equal(t, got[0].EntryID, rec.EntryID)
		require.Len(t, rec.Units, 1)
		require.Equal(t, messages.State_STATE_PENDING, rec.Units[0].State)
	},
	"created is the submission, before and after the first begin": func(t *testing.T, r *rig) {
		r.submit(submission(newTask("a")))
		created := r.unit(newTask("a")).Created
		require.Eventually(t, func() bool { return r.World.Now(t).After(created.Add(2 * time.Millisecond)) }, 5*time.Second, time.Millisecond)
		w := r.deliver(newTask("a"), here)
		b := w.run()
		for range 2 {
			u := r.unit(w.task)
			require.True(t, u.Created.Equal(created), "%v, and %v before", u.Created, created)
			require.True(t, r.record("a").Units[0].Created.Equal(created))
			require.True(t, u.Began.After(created))
			require.NoError(t, r.State.Commit(t.Context(), w.completed(b, "ok")))
		}
	},
	"a submission after the begin changes nothing of created": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		created := w.run().Created
		require.Eventually(t, func() bool { return r.World.Now(t).After(created.Add(2 * time.Millisecond)) }, 5*time.Second, time.Millisecond)
		r.submit(submission(newTask("a")))
		require.True(t, r.unit(w.task).Created.Equal(created))
		require.True(t, r.record("a").Units[0].Created.Equal(created))
	},
	"a unit submitted beside a running one is PENDING": func(t *testing.T, r *rig) {
		r.submit(submission(part("a", "1")), submission(part("a", "2")))
		r.deliver(part("a", "1"), here).run()
		states := map[string]messages.State{}
		for _, u := range r.record("a").Units {
			states[u.Unit] = u.State
		}
		require.Equal(t, map[string]messages.State{"1": messages.State_STATE_RUNNING, "2": messages.State_STATE_PENDING}, states)
		r.state(part("a", "2"), messages.State_STATE_PENDING)
	},
	"nothing is known of an unknown task": func(t *testing.T, r *rig) {
		_, err := r.State.Task(t.Context(), "nobody")
		require.ErrorIs(t, err, actors.ErrNoTask)
		_, err = r.State.Unit(t.Context(), "nobody", "")
		require.ErrorIs(t, err, actors.ErrNoTask)
		r.deliver(part("a", "1"), here).run()
		_, err = r.State.Unit(t.Context(), "a", "")
		require.ErrorIs(t, err, actors.ErrNoTask)
	},
	"the record tells the whole story": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		require.NoError(t, r.step(b, w.task, done("plan", "x")))
		r.commit(w.retry(b, 0))
		r.World.Promote(t, "a", "")
		in := r.fromInbox(w.task, there)
		b = in.run()
		r.commit(in.rejected(b, messages.Reason_REASON_BUDGET_SPENT, "ten times no"))
		rec := r.record("a")
		require.Len(t, rec.Units, 1)
		u := rec.Units[0]
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, u.Reason)
		require.Equal(t, "ten times no", u.Error)
		require.Len(t, u.Steps, 1)
		var what []string
		for _, l := range rec.Log {
			what = append(what, l.What)
			require.WithinDuration(t, r.World.Now(t), l.At, 5*time.Second)
		}
		require.Equal(t, []string{"retries", "failed"}, what)
		require.Equal(t, "no luck", rec.Log[0].Detail)
	},
	"chunks reach who follows, from any offset": func(t *testing.T, r *rig) {
		ctx := t.Context()
		none, err := r.State.Follow(ctx, "a", "", 0)
		require.NoError(t, err)
		require.Empty(t, none)
		for i := range 3 {
			require.NoError(t, r.State.Publish(ctx, "a", actors.Chunk{Attempt: 1, Step: "draft", Data: []byte(fmt.Sprint("\x00chunk ", i))}))
		}
		got, err := r.State.Follow(ctx, "a", "", time.Second)
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.Equal(t, "draft", got[0].Step)
		require.Equal(t, 1, got[0].Attempt)
		require.Equal(t, "\x00chunk 0", string(got[0].Data))
		rest, err := r.State.Follow(ctx, "a", got[1].Offset, time.Second)
		require.NoError(t, err)
		require.Equal(t, got[2:], rest)
	},
	"a follower waits for the next chunk and for the end": func(t *testing.T, r *rig) {
		found := make(chan []actors.Chunk, 1)
		go func() {
			c, err := r.Other.Follow(t.Context(), "a", "", time.Minute)
			if err != nil {
				c = nil
			}
			found <- c
		}()
		require.NoError(t, r.State.Publish(t.Context(), "a", actors.Chunk{Attempt: 2, End: true}))
		got := <-found
		require.Len(t, got, 1)
		require.True(t, got[0].End)
		require.Equal(t, 2, got[0].Attempt)
		require.Empty(t, got[0].Data)
	},
	"names are bound once": func(t *testing.T, r *rig) {
		require.NoError(t, r.State.Bind(r.Names))
		other := r.Names
		other.Group = "other"
		require.ErrorContains(t, r.State.Bind(other), "other")
		require.Error(t, r.State.Bind(actors.Names{Stream: "a{b}{c}"}))
	},
}
