package statetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// mailing is a message with an id of its own, or without one for "".
func mailing(id, name, messageID, payload string) actors.Mailing {
	return actors.Mailing{ID: id, Name: name, MessageID: messageID, ContentType: "text/plain", Payload: []byte(payload)}
}

// send must be accepted as the n-th of its name.
func (r *rig) send(m actors.Mailing, n int) {
	r.t.Helper()
	got, err := r.State.Send(r.t.Context(), m)
	require.NoError(r.t, err)
	require.Equal(r.t, actors.Mailed{Nth: n}, got)
}

// refused must not be accepted, as it stands in want.
func (r *rig) refused(m actors.Mailing, want actors.Mailed, why error) {
	r.t.Helper()
	got, err := r.State.Send(r.t.Context(), m)
	require.ErrorIs(r.t, err, why)
	require.Equal(r.t, want, got)
}

func letter(payload string) messages.Mail {
	return messages.Mail{ContentType: "text/plain", Payload: []byte(payload)}
}

// answered is a wait that ended with messages in its slots, from 0.
func answered(m map[int]messages.Mail) messages.Waited { return messages.Waited{Messages: m} }

func (r *rig) lines(id, what string) (details []string) {
	r.t.Helper()
	for _, l := range r.record(id).Log {
		if l.What == what {
			details = append(details, l.Detail)
		}
	}
	return details
}

var mailCases = map[string]func(*testing.T, *rig){
	"a message ends the wait for it and wakes its unit": func(t *testing.T, r *rig) {
		w := r.deliver(part("a:{1}", "u/2"), here)
		w.park(await("approve: it", time.Hour))
		open := r.record("a:{1}").Units[0].Waits[0]
		require.Equal(t, messages.WaitFirst, open.Kind)
		require.Equal(t, []messages.Slot{{Message: "approve: it", Nth: 1}}, open.Slots)
		r.send(mailing("a:{1}", "other", "", "not it"), 1)
		r.state(w.task, messages.State_STATE_WAITING)
		require.EqualValues(t, 1, r.record("a:{1}").Unread)
		r.kept("a:{1}")
		r.send(mailing("a:{1}", "approve: it", "", allBytes(300)), 1)
		require.Empty(t, r.World.Due(t))
		require.Empty(t, r.World.Index(t, messages.State_STATE_WAITING, "noop"))
		in, b := r.goesOn(w.task)
		require.Equal(t, answered(map[int]messages.Mail{0: letter(allBytes(300))}), r.waited(w.task, "approve: it"))
		require.EqualValues(t, 1, r.record("a:{1}").Unread, "the other one")
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a:{1}")
		require.Equal(t, []string{"approve: it"}, r.lines("a:{1}", "answered"))
	},
	"an early message is there at once": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.send(mailing("a", "x", "1", "early"), 1)
		c := w.parked(b, await("x", time.Hour))
		r.resume(c)
		r.resume(c) // a lost reply
		r.state(w.task, messages.State_STATE_RUNNING)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("early")}), r.waited(w.task, "x"))
		require.Empty(t, r.World.Due(t))
		require.Zero(t, r.record("a").Unread)
		r.commit(w.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"mail for a task that nobody knows waits for it, for a time": func(t *testing.T, r *rig) {
		m := mailing("a", "x", "1", "early")
		m.TTL = time.Hour
		r.send(m, 1)
		ttl := r.World.Standing(t, "a")[":mail"]
		require.WithinRange(t, time.Time{}.Add(ttl), time.Time{}.Add(59*time.Minute), time.Time{}.Add(time.Hour))
		_, err := r.State.Task(t.Context(), "a")
		require.ErrorIs(t, err, actors.ErrNoTask)
		r.send(mailing("a", "y", "1", "later"), 1)
		require.Greater(t, r.World.Standing(t, "a")[":mail"], 6*24*time.Hour)
		m.MessageID = "2"
		r.send(m, 2)
		require.Greater(t, r.World.Standing(t, "a")[":mail"], 6*24*time.Hour, "a shorter one does not cut it short")

		w := r.deliver(newTask("a"), here)
		b := w.run()
		require.Positive(t, r.World.Standing(t, "a")[":mail"], "nothing waits for it yet")
		require.EqualValues(t, 3, r.record("a").Unread)
		r.resume(w.parked(b, await("x", time.Hour)))
		r.kept("a")
		r.commit(w.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"mail that a task never waited for keeps its own time": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		b := w.run()
		r.send(mailing("a", "x", "1", "unwanted"), 1)
		r.commit(w.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a message without an id counts once, the first of its name": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour))
		r.send(mailing("a", "x", "", "yes"), 1)
		r.refused(mailing("a", "x", "", "yes"), actors.Mailed{Nth: 1, Known: true}, actors.ErrAnswered)
		r.refused(mailing("a", "x", "", "no"), actors.Mailed{Nth: 1}, actors.ErrAnswered)
		r.send(mailing("a", "x", "7", "another"), 2)
		_, _ = r.goesOn(w.task)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("yes")}), r.waited(w.task, "x"))
	},
	"a message with an id counts once, also after it was read": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.send(mailing("a", "x", "i:1", "one"), 1)
		r.send(mailing("a", "x", "i", "two"), 2)
		r.send(mailing("a", "x:i", "1", "another name"), 1)
		r.refused(mailing("a", "x", "i:1", "one"), actors.Mailed{Nth: 1, Known: true}, actors.ErrAnswered)
		r.refused(mailing("a", "x", "", "one"), actors.Mailed{Nth: 1, Known: true}, actors.ErrAnswered)
		b := w.run()
		c := w.parked(b, firstOf("w", -1, nth("x", 2)))
		r.resume(c)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("two")}), r.waited(w.task, "w"))
		r.refused(mailing("a", "x", "i", "else"), actors.Mailed{Nth: 2, Known: true}, actors.ErrAnswered)
		require.EqualValues(t, 2, r.record("a").Unread)
	},
	"answer and timeout are one fact: what Await no longer waits for is refused": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour))
		r.World.Pass(t, time.Hour)
		r.World.Turn(t)
		r.refused(mailing("a", "x", "", "late"), actors.Mailed{Nth: 1}, actors.ErrAnswered)
		r.refused(mailing("a", "x", "1", "late"), actors.Mailed{Nth: 1}, actors.ErrAnswered)
		require.Zero(t, r.record("a").Unread)
		in, b := r.goesOn(w.task)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "x"))
		require.Equal(t, []string{"x"}, r.lines("a", "timed_out"))
		r.resume(in.parked(b, await("x", time.Hour)))
		r.commit(in.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a time that is over counts before anybody has looked at the clock": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour))
		r.World.Pass(t, time.Hour)
		r.refused(mailing("a", "x", "", "late"), actors.Mailed{Nth: 1}, actors.ErrAnswered)
		_, _ = r.goesOn(w.task)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "x"))
		require.Empty(t, r.World.Due(t))
	},
	"what First and All no longer wait for is kept for a later wait": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(firstOf("f", time.Hour, nth("x", 1), nth("y", 1)), allOf("g", time.Hour, nth("z", 1), nth("y", 1)))
		r.send(mailing("a", "z", "1", "in time"), 1)
		r.state(w.task, messages.State_STATE_WAITING)
		r.World.Pass(t, time.Hour)
		r.World.Turn(t)
		in, b := r.goesOn(w.task)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "f"))
		require.Equal(t, messages.Waited{Timeout: true, Messages: map[int]messages.Mail{0: letter("in time")}}, r.waited(w.task, "g"))
		r.send(mailing("a", "y", "1", "late"), 1)
		require.EqualValues(t, 1, r.record("a").Unread)
		r.resume(in.parked(b, firstOf("h", time.Hour, nth("y", 1))))
		require.Equal(t, answered(map[int]messages.Mail{0: letter("late")}), r.waited(w.task, "h"))
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(w.task, "f"), "what it came to stays")
	},
	"First keeps its choice, whatever comes before the replay": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(firstOf("f", time.Hour, nth("x", 1), nth("y", 1)))
		r.send(mailing("a", "y", "1", "first"), 1)
		r.send(mailing("a", "x", "1", "second"), 1)
		_, _ = r.goesOn(w.task)
		require.Equal(t, answered(map[int]messages.Mail{1: letter("first")}), r.waited(w.task, "f"))
		require.EqualValues(t, 1, r.record("a").Unread)
	},
	"First takes the oldest of those that are there": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		for i, name := range []string{"q", "y", "x"} {
			r.send(mailing("a", name, "1", fmt.Sprint(i)), 1)
		}
		r.resume(w.parked(w.run(), firstOf("f", time.Hour, nth("x", 1), nth("y", 1))))
		require.Equal(t, answered(map[int]messages.Mail{1: letter("1")}), r.waited(w.task, "f"))
	},
	"All ends when every slot has its message": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		var slots []actors.Slot
		want := map[int]messages.Mail{}
		for i := range 12 {
			slots = append(slots, nth("x", i+1))
			want[i] = letter(fmt.Sprint("message ", i))
		}
		w.park(allOf("all", time.Hour, slots...))
		for i := range 12 {
			r.state(w.task, messages.State_STATE_WAITING)
			r.send(mailing("a", "x", fmt.Sprint(i), fmt.Sprint("message ", i)), i+1)
		}
		_, _ = r.goesOn(w.task)
		require.Equal(t, answered(want), r.waited(w.task, "all"))
		require.Zero(t, r.record("a").Unread)
	},
	"two waits of one unit end each by itself": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour), await("y", time.Hour))
		r.send(mailing("a", "x", "", "one"), 1)
		require.Equal(t, []string{"y"}, r.waits(w.task))
		in, b := r.goesOn(w.task)
		r.send(mailing("a", "y", "", "two"), 1)
		require.Empty(t, r.World.TakeInbox(t, consumerOf(there)), "who runs is not woken")
		r.resume(in.parked(b, await("y", time.Hour)))
		require.Equal(t, answered(map[int]messages.Mail{0: letter("two")}), r.waited(w.task, "y"))
	},
	"two messages for a unit that was woken wake it once": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour), await("y", time.Hour))
		r.send(mailing("a", "x", "", "one"), 1)
		r.send(mailing("a", "y", "", "two"), 1)
		_, _ = r.goesOn(w.task)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("one")}), r.waited(w.task, "x"))
		require.Equal(t, answered(map[int]messages.Mail{0: letter("two")}), r.waited(w.task, "y"))
	},
	"one message wakes every unit that waits for its name": func(t *testing.T, r *rig) {
		one, two, three := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here), r.deliver(part("a", "3"), here)
		one.park(await("x", time.Hour))
		two.park(firstOf("w", time.Hour, nth("y", 1), nth("x", 1)))
		three.park(await("z", time.Hour))
		r.send(mailing("a", "x", "", "for both"), 1)
		require.Zero(t, r.record("a").Unread)
		r.state(one.task, messages.State_STATE_PENDING)
		r.state(two.task, messages.State_STATE_PENDING)
		r.state(three.task, messages.State_STATE_WAITING)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("for both")}), r.waited(one.task, "x"))
		require.Equal(t, answered(map[int]messages.Mail{1: letter("for both")}), r.waited(two.task, "w"))
		require.Len(t, r.World.TakeInbox(t, consumerOf(here)), 2)
	},
	"a time that is over closes no slot for which another unit hopes": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here)
		one.park(await("x", time.Minute))
		two.park(await("x", time.Hour))
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(one.task, "x"))
		r.send(mailing("a", "x", "", "for the second"), 1)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("for the second")}), r.waited(two.task, "x"))
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(one.task, "x"))
	},
	"who comes to a slot that is closed waits for nothing": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here)
		one.park(await("x", time.Minute))
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		b := two.run()
		r.resume(two.parked(b, await("x", time.Hour)))
		require.Equal(t, messages.Waited{Timeout: true}, r.waited(two.task, "x"))
		r.send(mailing("a", "y", "", "there"), 1)
		r.resume(two.parked(b, allOf("all", time.Hour, nth("y", 1), nth("x", 1))))
		require.Equal(t, messages.Waited{Timeout: true, Messages: map[int]messages.Mail{0: letter("there")}}, r.waited(two.task, "all"))
		r.commit(two.parked(b, firstOf("first", time.Hour, nth("x", 1), nth("z", 1))))
		r.send(mailing("a", "z", "", "at last"), 1)
		require.Equal(t, answered(map[int]messages.Mail{1: letter("at last")}), r.waited(two.task, "first"))
	},
	"a message between the handler's end and its commit is not missed": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Minute), await("y", time.Hour))
		r.World.Pass(t, time.Minute)
		r.World.Turn(t)
		in, b := r.goesOn(w.task)
		r.send(mailing("a", "y", "", "just now"), 1)
		r.state(w.task, messages.State_STATE_RUNNING)
		c := in.parked(b, await("y", time.Hour))
		r.resume(c)
		r.resume(c)
		require.Equal(t, answered(map[int]messages.Mail{0: letter("just now")}), r.waited(w.task, "y"))
		require.NoError(t, r.step(b, w.task, done("s", "x")), "it is still the same run")
	},
	"a message to a task that has ended is refused, and noted once": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		r.commit(w.completed(w.run(), "ok"))
		for range 3 {
			r.refused(mailing("a", "x", "1", "too late"), actors.Mailed{}, actors.ErrEnded)
		}
		require.Equal(t, []string{"message x: the task has ended"}, r.lines("a", "refused"))
		require.NotContains(t, r.World.Standing(t, "a"), ":mail")
		r.nothingLeft("a")
		for id, outcome := range map[string]messages.Outcome{"f": messages.Outcome_OUTCOME_REJECTED, "c": messages.Outcome_OUTCOME_CANCELLED} {
			w := r.deliver(newTask(id), here)
			r.commit(w.outcome(w.run(), outcome))
			r.refused(mailing(id, "x", "1", "too late"), actors.Mailed{}, actors.ErrEnded)
			r.nothingLeft(id)
		}
	},
	"one that is kept for ever has ended too": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		c := w.completed(w.run(), "ok")
		c.TTL = 0
		r.commit(c)
		r.refused(mailing("a", "x", "1", "too late"), actors.Mailed{}, actors.ErrEnded)
	},
	"a task of which one unit is open takes messages": func(t *testing.T, r *rig) {
		one, two := r.deliver(part("a", "1"), here), r.deliver(part("a", "2"), here)
		b1, b2 := one.run(), two.run()
		r.commit(one.completed(b1, "ok"))
		r.send(mailing("a", "x", "", "y"), 1)
		r.commit(two.completed(b2, "ok"))
		r.refused(mailing("a", "x", "", "y"), actors.Mailed{}, actors.ErrEnded)
		r.nothingLeft("a")
	},
	"one that begins anew after its end has its mail, and gives it back": func(t *testing.T, r *rig) {
		one := r.deliver(part("a", "1"), here)
		b := one.run()
		r.send(mailing("a", "x", "1", "kept"), 1)
		r.commit(one.completed(b, "ok"))
		two := r.deliver(part("a", "2"), here)
		b = two.run()
		r.kept("a")
		r.refused(mailing("a", "x", "1", "kept"), actors.Mailed{Nth: 1, Known: true}, actors.ErrAnswered)
		r.commit(two.completed(b, "ok"))
		r.nothingLeft("a")
	},
	"a unit whose copy is gone when its message comes is FAILED": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour))
		r.World.Uncopy(t, "a", "")
		r.send(mailing("a", "x", "1", "in vain"), 1)
		u := r.unit(w.task)
		require.Equal(t, messages.State_STATE_FAILED, u.State)
		require.Equal(t, messages.Reason_REASON_BODY_GONE, u.Reason)
		require.Len(t, r.World.Dead(t), 1)
		r.nothingLeft("a")
		r.refused(mailing("a", "x", "2", "again"), actors.Mailed{}, actors.ErrEnded)
	},
	"a message that finds a time over, and with it the unit's copy gone, finds the task ended": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour))
		r.World.Uncopy(t, "a", "")
		r.World.Pass(t, time.Hour)
		r.refused(mailing("a", "x", "1", "in vain"), actors.Mailed{}, actors.ErrEnded)
		r.nothingLeft("a")
	},
	"a mailbox that nobody reads is full at some time": func(t *testing.T, r *rig) {
		for i := range messages.MaxUnread {
			r.send(mailing("a", "x", fmt.Sprint(i), ""), i+1)
		}
		r.refused(mailing("a", "y", "", "more"), actors.Mailed{}, actors.ErrMailboxFull)
		r.refused(mailing("a", "x", "17", ""), actors.Mailed{Nth: 18, Known: true}, actors.ErrAnswered)
		w := r.deliver(newTask("a"), here)
		r.resume(w.parked(w.run(), await("x", -1)))
		r.send(mailing("a", "y", "", "more"), 1)
	},
	"what cannot be a message is refused": func(t *testing.T, r *rig) {
		for _, m := range []actors.Mailing{
			mailing("", "x", "", ""), mailing("a", "", "", ""), mailing("a", "\xff", "", ""), mailing("a", strings.Repeat("x", 1025), "", ""),
			mailing("a", "x", strings.Repeat("x", 1025), ""), mailing("a", "x", "\xff", ""),
			{ID: "a", Name: "x", ContentType: "a\nb"},
		} {
			r.refused(m, actors.Mailed{}, actors.ErrInvalid)
		}
		require.Empty(t, r.World.Standing(t, "a"))
	},
	"many agree on who was first": func(t *testing.T, r *rig) {
		w := r.deliver(newTask("a"), here)
		w.park(await("x", time.Hour))
		answers := make(chan error, 20)
		for i := range cap(answers) {
			state := []actors.State{r.State, r.Other}[i%2]
			go func() {
				_, err := state.Send(t.Context(), mailing("a", "x", "", fmt.Sprint(i)))
				answers <- err
			}()
		}
		var taken []error
		for range cap(answers) {
			taken = append(taken, <-answers)
		}
		require.Len(t, slices.DeleteFunc(taken, func(err error) bool { return err != nil }), 1)
		_, _ = r.goesOn(w.task)
	},
}
