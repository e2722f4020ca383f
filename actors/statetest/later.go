package statetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// delayed is a submission for later.
func delayed(task *messages.Task, d time.Duration) actors.Submission {
	s := submission(task)
	s.Delay = d
	return s
}

// unique is a submission with a unique key for an hour.
func unique(task *messages.Task, key string) actors.Submission {
	s := submission(task)
	s.Unique, s.For = key, time.Hour
	return s
}

// What was submitted for later, and what a producer's entry wants to be run later.
var laterCases = map[string]func(*testing.T, *rig){
	"a delayed task is SCHEDULED and not in the stream": func(t *testing.T, r *rig) {
		before := r.World.Now(t)
		got := r.submit(delayed(newTask("a{b}:c"), time.Hour))[0]
		require.NoError(t, got.Err)
		require.False(t, got.Known)
		require.Empty(t, got.EntryID)
		require.Empty(t, r.World.Public(t))
		require.False(t, got.Due.Before(before.Add(time.Hour)), "never early")
		require.WithinDuration(t, r.World.Now(t).Add(time.Hour), got.Due, 5*time.Second)
		require.Equal(t, map[string]time.Time{member(newTask("a{b}:c")): got.Due}, r.World.Delayed(t))
		rec := r.record("a{b}:c")
		require.Empty(t, rec.EntryID)
		require.Len(t, rec.Units, 1)
		for _, u := range []*actors.UnitRecord{r.unit(newTask("a{b}:c")), &rec.Units[0]} {
			require.Equal(t, messages.State_STATE_SCHEDULED, u.State)
			require.Equal(t, "noop", u.Type)
			require.True(t, u.Due.Equal(got.Due))
			require.WithinDuration(t, r.World.Now(t), u.Created, 5*time.Second)
		}
	},
	"submitted again it is known, whatever the delay": func(t *testing.T, r *rig) {
		first := r.submit(delayed(newTask("a"), time.Hour))[0]
		for _, again := range r.submit(delayed(newTask("a"), time.Hour), delayed(newTask("a"), time.Minute), submission(newTask("a"))) {
			require.Equal(t, actors.Submitted{Due: first.Due, Known: true}, again)
		}
		require.Len(t, r.World.Delayed(t), 1)
		require.Empty(t, r.World.Public(t))
		r.submit(submission(newTask("b")))
		require.True(t, r.submit(delayed(newTask("b"), time.Hour))[0].Known, "it is in the stream already")
		require.Len(t, r.World.Delayed(t), 1)
	},
	"other work under a delayed id is a conflict": func(t *testing.T, r *rig) {
		r.submit(delayed(newTask("a"), time.Hour))
		other := newTask("a")
		other.Payload = []byte("other")
		require.ErrorIs(t, r.submit(delayed(other, time.Hour))[0].Err, actors.ErrConflict)
		require.ErrorIs(t, r.submit(submission(other))[0].Err, actors.ErrConflict)
		require.NoError(t, r.submit(delayed(part("a", "2"), time.Hour))[0].Err, "another unit of it is not")
		require.Len(t, r.World.Delayed(t), 2)
		require.Len(t, r.record("a").Units, 2)
	},
	"a time is kept to the ms, and one that is over means now": func(t *testing.T, r *rig) {
		now := r.World.Now(t)
		at := now.Add(time.Hour).Truncate(time.Millisecond)
		late, exact, past, zero := submission(newTask("late")), submission(newTask("exact")), submission(newTask("past")), submission(newTask("zero"))
		exact.At = at
		late.At = at.Add(time.Nanosecond)
		past.At = now.Add(-time.Hour)
		zero.At = time.UnixMilli(0)
		got := r.submit(exact, late, past, zero)
		require.True(t, got[0].Due.Equal(at), "%v", got[0].Due)
		require.True(t, got[1].Due.Equal(at.Add(time.Millisecond)), "%v", got[1].Due)
		for _, s := range got[2:] {
			require.NotEmpty(t, s.EntryID)
			require.True(t, s.Due.IsZero())
		}
		r.state(newTask("past"), messages.State_STATE_PENDING)
		require.Len(t, r.World.Public(t), 2)
	},
	"delayed tasks have a backlog of their own": func(t *testing.T, r *rig) {
		limited := func(id string, d time.Duration) actors.Submission {
			s := delayed(newTask(id), d)
			s.MaxLen = 2
			return s
		}
		got := r.submit(limited("a", 0), limited("b", 0), limited("c", 0), limited("d", time.Hour), limited("e", time.Hour), limited("f", time.Hour))
		for i, s := range got {
			if i == 2 || i == 5 {
				require.ErrorIs(t, s.Err, actors.ErrBacklogFull, "%d", i)
			} else {
				require.NoError(t, s.Err, "%d", i)
			}
		}
		require.True(t, r.submit(limited("d", time.Hour))[0].Known)
	},
	"a unique key is taken once": func(t *testing.T, r *rig) {
		first := r.submit(unique(part("a:1", "u/1"), "key:{1}"))[0]
		require.NoError(t, first.Err)
		require.Empty(t, first.ID)
		other := newTask("b")
		other.Payload = []byte("other")
		got := r.submit(unique(other, "key:{1}"), unique(newTask("c"), "another key"), unique(part("a:1", "u/1"), "key:{1}"))
		require.Equal(t, actors.Submitted{EntryID: first.EntryID, Known: true, ID: "a:1", Unit: "u/1"}, got[0])
		require.False(t, got[1].Known)
		require.Equal(t, actors.Submitted{EntryID: first.EntryID, Known: true}, got[2], "known by its id")
		require.Len(t, r.World.Public(t), 2)
		_, err := r.State.Task(t.Context(), "b")
		require.ErrorIs(t, err, actors.ErrNoTask)
	},
	"a unique key is freed by time alone": func(t *testing.T, r *rig) {
		short := unique(newTask("a"), "k")
		short.For = 300 * time.Millisecond
		r.submit(short)
		w := r.deliver(newTask("a"), here)
		r.commit(w.completed(w.run(), "ok"))
		again := unique(newTask("b"), "k")
		if got := r.submit(again)[0]; got.Known { // unless the machine was slow
			require.Equal(t, "a", got.ID)
		}
		require.Eventually(t, func() bool { return !r.submit(again)[0].Known }, 10*time.Second, 10*time.Millisecond)
		require.Equal(t, "b", r.submit(unique(newTask("c"), "k"))[0].ID)
	},
	"a unique key of a delayed task": func(t *testing.T, r *rig) {
		s := unique(newTask("a"), "k")
		s.Delay = time.Hour
		first := r.submit(s)[0]
		got := r.submit(unique(newTask("b"), "k"))[0]
		require.Equal(t, actors.Submitted{Due: first.Due, Known: true, ID: "a"}, got)
		require.Len(t, r.World.Delayed(t), 1)
	},
	"a refused task takes no unique key": func(t *testing.T, r *rig) {
		r.submit(submission(newTask("a")))
		full := unique(newTask("b"), "k")
		full.MaxLen = 1
		require.ErrorIs(t, r.submit(full)[0].Err, actors.ErrBacklogFull)
		conflict := unique(newTask("a"), "k")
		conflict.Work = "other"
		require.ErrorIs(t, r.submit(conflict)[0].Err, actors.ErrConflict)
		require.False(t, r.submit(unique(newTask("c"), "k"))[0].Known)
	},
	"many are submitted in one go, each with its answer": func(t *testing.T, r *rig) {
		var tasks []actors.Submission
		for i := range 300 {
			task := newTask(fmt.Sprint("t", i))
			task.Payload = []byte(allBytes(i))
			s := submission(task)
			switch i % 3 {
			case 1:
				s.Delay = time.Hour
			case 2:
				s.Unique, s.For = fmt.Sprint("k", i/6), time.Hour // two have one key
			}
			tasks = append(tasks, s)
		}
		for i, s := range r.submit(tasks...) {
			require.NoError(t, s.Err)
			require.Equal(t, i%3 == 1, !s.Due.IsZero(), "%d", i)
			require.Equal(t, i%6 == 5, s.Known, "%d", i)
			if s.Known {
				require.Equal(t, fmt.Sprint("t", i-3), s.ID)
			}
		}
		require.Len(t, r.World.Delayed(t), 100)
		require.Len(t, r.World.Public(t), 150)
	},
	"an entry for later is SCHEDULED and runs by its inbox entry only": func(t *testing.T, r *rig) {
		task := part("a{b}:c", "u/1")
		w := r.deliver(task, here)
		at := r.World.Now(t).Add(time.Hour).Truncate(time.Millisecond)
		w.due = at
		w.answers(actors.Elsewhere)
		w.answers(actors.Elsewhere) // a lost reply
		u := r.unit(task)
		require.Equal(t, messages.State_STATE_SCHEDULED, u.State)
		require.Equal(t, "noop", u.Type)
		require.True(t, u.Due.Equal(at))
		require.True(t, u.Began.IsZero())
		require.WithinDuration(t, r.World.Now(t), u.Created, 5*time.Second)
		require.True(t, r.World.Due(t)["r:"+member(task)].Equal(at))
		require.Equal(t, []string{member(task)}, r.World.Index(t, messages.State_STATE_SCHEDULED, "noop"))
		require.Empty(t, r.record("a{b}:c").Owner)
		require.Zero(t, r.record("a{b}:c").TTL)
		require.True(t, r.World.Pending(t, w.ref), "who begins acknowledges")
		r.World.Ack(t, w.ref)
		r.World.Trim(t, w.ref)
		same := r.deliver(task, there)
		same.due = at.Add(time.Minute)
		same.answers(actors.Elsewhere)

		r.World.Promote(t, "a{b}:c", "u/1")
		in := r.fromInbox(task, there)
		require.EqualValues(t, 1, in.wake)
		in.due = at // by this clock it is not over; what was promoted is due all the same
		b := in.run()
		require.Equal(t, actors.Ledger{}, b.Ledger)
		require.WithinDuration(t, r.World.Now(t), b.Created, 5*time.Second)
		require.True(t, r.unit(task).Created.Equal(b.Created), "its first begin")
		require.Empty(t, r.World.Index(t, messages.State_STATE_SCHEDULED, "noop"))
		r.commit(in.retry(b, 0))
		r.World.Promote(t, "a{b}:c", "u/1")
		in = r.fromInbox(task, here)
		r.commit(in.completed(in.run(), "ok"))
		require.Positive(t, r.record("a{b}:c").TTL)
		same.answers(actors.AlreadyDone)
	},
	"a time that is over, or no time at all, means now": func(t *testing.T, r *rig) {
		for id, due := range map[string]time.Time{
			"past": r.World.Now(t).Add(-time.Minute), "seconds": time.UnixMilli(1_800_000_000),
			"microseconds": time.UnixMilli(1_800_000_000_000_000),
		} {
			w := r.deliver(newTask(id), here)
			w.due = due
			w.run()
		}
	},
	"an entry for later waits beside a unit that runs": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		two := r.deliver(part("a", "2"), there)
		two.due = r.World.Now(t).Add(time.Hour)
		two.answers(actors.Elsewhere)
		require.Zero(t, r.record("a").Queued, "it waits for its time, not for the owner")
		r.commit(one.completed(b, "ok"))
		require.Zero(t, r.record("a").TTL, "unit 2 has not ended")
		r.World.Promote(t, "a", "2")
		in := r.fromInbox(two.task, third)
		r.commit(in.completed(in.run(), "ok"))
		require.Positive(t, r.record("a").TTL)
	},
	"a unit that runs beside one that is SCHEDULED": func(t *testing.T, r *rig) {
		two := r.deliver(part("a", "2"), there)
		two.due = r.World.Now(t).Add(time.Hour)
		two.answers(actors.Elsewhere)
		one := r.deliver(part("a", "1"), here)
		r.commit(one.completed(one.run(), "ok"))
		require.Zero(t, r.record("a").TTL, "unit 2 has not ended")
		r.World.Promote(t, "a", "2")
		in := r.fromInbox(two.task, third)
		r.commit(in.rejected(in.run(), messages.Reason_REASON_REJECTED, "no"))
		require.Positive(t, r.record("a").TTL)
	},
	"a task that had ended is kept for its unit of later": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		r.commit(one.completed(one.run(), "ok"))
		require.Positive(t, r.record("a").TTL)
		two := r.deliver(part("a", "2"), there)
		two.due = r.World.Now(t).Add(time.Hour)
		two.answers(actors.Elsewhere)
		require.Zero(t, r.record("a").TTL)
	},
	"an entry for later with other work is a conflict": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.due = r.World.Now(t).Add(time.Hour)
		w.answers(actors.Elsewhere)
		other := newTask("a")
		other.Payload = []byte("other")
		r.deliver(other, here).answers(actors.Conflict)
	},
	"a trimmed entry cannot wait for its time": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.due = r.World.Now(t).Add(time.Hour)
		r.World.Trim(t, w.ref)
		w.answers(actors.Later)
		_, err := r.State.Task(t.Context(), "a")
		require.ErrorIs(t, err, actors.ErrNoTask)
	},
	"nothing of a task has begun while one of its units waits for its time": func(t *testing.T, r *rig) {
		w := r.deliver(part("a", "1"), here)
		w.due = r.World.Now(t).Add(time.Hour)
		w.answers(actors.Elsewhere)
		never := r.deliver(part("a", "2"), here)
		never.deliveries = 9
		require.Equal(t, messages.Reason_REASON_NEVER_BEGUN, never.answers(actors.Condemned).Reason)
	},
}
