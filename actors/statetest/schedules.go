package statetest

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// desk is the part of a State that keeps schedules.
func (r *rig) desk(s actors.State) actors.ScheduleDesk {
	r.t.Helper()
	d, ok := s.(actors.ScheduleDesk)
	if !ok {
		r.t.Skip("the adapter keeps no schedules")
	}
	return d
}

// ago is a tick in the past, by the store's clock.
func (r *rig) ago(d time.Duration) time.Time {
	return r.World.Now(r.t).Add(-d).Truncate(time.Millisecond).UTC()
}

func inCode(name, hash string, next time.Time) actors.ScheduleDeclaration {
	return actors.ScheduleDeclaration{
		Name: name, Definition: []byte("{" + hash + "}"), Hash: hash, Next: next, InCode: true, Start: true, TTL: week,
	}
}

func byClient(name, hash string, next time.Time) actors.ScheduleDeclaration {
	d := inCode(name, hash, next)
	d.InCode, d.Start = false, false
	return d
}

func (r *rig) declare(d actors.ScheduleDeclaration, want actors.ScheduleDeclared) {
	r.t.Helper()
	got, err := r.desk(r.State).DeclareSchedule(r.t.Context(), d)
	require.NoError(r.t, err)
	require.Equal(r.t, want, got, "answer to the declaration of %s", d.Name)
}

func fireOf(name, hash string, tick, next time.Time, runs ...time.Time) actors.ScheduleFire {
	f := actors.ScheduleFire{Name: name, Hash: hash, Tick: tick, Next: next, Incarnation: here, TTL: week}
	for _, run := range runs {
		id := name + "@" + strconv.FormatInt(run.UnixMilli(), 10)
		f.Runs = append(f.Runs, actors.ScheduleRun{Tick: run, Task: actors.Submission{
			ID: id, Work: messages.WorkHash("noop", nil), TTL: week,
			Fields: []messages.Pair{{Name: "task_id", Value: id}, {Name: "type", Value: "noop"}, {Name: "payload"}, {Name: "due", Value: "1"}},
		}})
	}
	return f
}

func (r *rig) fire(f actors.ScheduleFire, want actors.ScheduleOutcome) actors.ScheduleFired {
	r.t.Helper()
	got, err := r.desk(r.State).FireSchedule(r.t.Context(), f)
	require.NoError(r.t, err)
	require.Equal(r.t, want, got.Outcome, "outcome of the fire: %+v", got)
	return got
}

func (r *rig) schedule(name string) actors.ScheduleRecord {
	r.t.Helper()
	list, err := r.desk(r.Other).Schedules(r.t.Context(), name)
	require.NoError(r.t, err)
	require.Len(r.t, list.Schedules, 1)
	return list.Schedules[0]
}

func (r *rig) due(hashes ...string) actors.SchedulesDue {
	r.t.Helper()
	due, err := r.desk(r.State).DueSchedules(r.t.Context(), actors.ScheduleQuery{Hashes: hashes, Limit: 10})
	require.NoError(r.t, err)
	return due
}

func names(due actors.SchedulesDue) (out []string) {
	for _, d := range due.Due {
		out = append(out, d.Name)
	}
	return out
}

var scheduleCases = map[string]func(*testing.T, *rig){
	"fire submits the task and goes on": func(t *testing.T, r *rig) {
		tick := r.ago(time.Second)
		next := tick.Add(time.Hour)
		r.declare(inCode("a: {%}\x7f", "h1", tick), actors.ScheduleNew)
		got := r.fire(fireOf("a: {%}\x7f", "h1", tick, next, tick), actors.ScheduleMoved)
		require.Equal(t, next, got.Next)
		public := r.World.Public(t)
		require.Len(t, public, 1)
		require.Equal(t, "noop", public[0].Field("type"))
		id := public[0].Field("task_id")
		require.Equal(t, messages.State_STATE_PENDING, r.record(id).Units[0].State, "submitted as by a client")
		again, err := r.State.Submit(t.Context(), []actors.Submission{fireOf("a: {%}\x7f", "", tick, next, tick).Runs[0].Task})
		require.NoError(t, err)
		require.True(t, again[0].Known)
		rec := r.schedule("a: {%}\x7f")
		require.Equal(t, next, rec.Next)
		require.Equal(t, tick, rec.Last)
		require.Equal(t, id, rec.LastTask)
		require.EqualValues(t, 1, rec.Fired)
		require.Equal(t, "{h1}", string(rec.Definition))
		require.True(t, rec.InCode)
	},
	"of many firers one fires": func(t *testing.T, r *rig) {
		tick := r.ago(time.Second)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		desks := []actors.ScheduleDesk{r.desk(r.State), r.desk(r.Other)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[actors.ScheduleOutcome]int{}
		for i := range 20 {
			wg.Go(func() {
				f := fireOf("a", "h1", tick, tick.Add(time.Hour), tick)
				f.Incarnation = strconv.Itoa(i)
				out, err := desks[i%2].FireSchedule(t.Context(), f)
				assert.NoError(t, err)
				mu.Lock()
				got[out.Outcome]++
				mu.Unlock()
			})
		}
		wg.Wait()
		require.Equal(t, map[actors.ScheduleOutcome]int{actors.ScheduleMoved: 1, actors.ScheduleStale: 19}, got)
		require.Len(t, r.World.Public(t), 1)
	},
	"a fire that is repeated after a lost reply answers the same": func(t *testing.T, r *rig) {
		tick := r.ago(time.Second)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		f := fireOf("a", "h1", tick, tick.Add(time.Hour), tick)
		first := r.fire(f, actors.ScheduleMoved)
		require.Equal(t, first, r.fire(f, actors.ScheduleMoved))
		f.Incarnation = there
		r.fire(f, actors.ScheduleStale)
		require.Len(t, r.World.Public(t), 1)
		require.EqualValues(t, 1, r.schedule("a").Fired)
	},
	"a stale fire is told what is next": func(t *testing.T, r *rig) {
		tick := r.ago(time.Minute)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		r.fire(fireOf("a", "h1", tick, tick.Add(time.Hour), tick), actors.ScheduleMoved)
		got := r.fire(fireOf("a", "h1", tick.Add(-time.Hour), tick, tick.Add(-time.Hour)), actors.ScheduleStale)
		require.Equal(t, tick.Add(time.Hour), got.Next)
		r.fire(fireOf("none", "h1", tick, tick.Add(time.Hour), tick), actors.ScheduleStale)
		require.Len(t, r.World.Public(t), 1)
	},
	"nothing fires early by the store's clock": func(t *testing.T, r *rig) {
		tick := r.ago(-time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		require.Empty(t, r.due("h1").Due)
		require.Equal(t, tick, r.due("h1").Soonest)
		r.fire(fireOf("a", "h1", tick, tick.Add(time.Hour), tick), actors.ScheduleEarly)
		require.Empty(t, r.World.Public(t))
		require.Equal(t, tick, r.schedule("a").Next)
	},
	"several ticks in one fire": func(t *testing.T, r *rig) {
		tick := r.ago(time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		next := tick.Add(3 * time.Minute)
		r.fire(fireOf("a", "h1", tick, next, tick, tick.Add(time.Minute), tick.Add(2*time.Minute)), actors.ScheduleMoved)
		require.Len(t, r.World.Public(t), 3)
		require.EqualValues(t, 3, r.schedule("a").Fired)
		require.Equal(t, tick.Add(2*time.Minute), r.schedule("a").Last)
		require.Equal(t, next, r.schedule("a").Next)
	},
	"ticks are passed over": func(t *testing.T, r *rig) {
		tick := r.ago(time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		f := fireOf("a", "h1", tick, tick.Add(time.Minute))
		f.Vetoed, f.Missed, f.Why = 1, 2, "so it was decided"
		r.fire(f, actors.ScheduleMoved)
		require.Empty(t, r.World.Public(t))
		rec := r.schedule("a")
		require.Equal(t, []int64{0, 1, 2, 0}, []int64{rec.Fired, rec.Vetoed, rec.Missed, rec.Overlapped})
		require.Equal(t, tick, rec.Passed)
		require.Equal(t, "so it was decided", rec.Why)
		require.Zero(t, rec.Last)
	},
	"nothing next any more": func(t *testing.T, r *rig) {
		tick := r.ago(time.Second)
		r.declare(byClient("a", "h1", tick), actors.ScheduleNew)
		r.fire(fireOf("a", "h1", tick, time.Time{}, tick), actors.ScheduleMoved)
		require.Zero(t, r.schedule("a").Next)
		require.Zero(t, r.due().Soonest)
		require.Equal(t, 1, r.due().Known)
		r.declare(byClient("a", "h1", tick), actors.ScheduleKnown)
		require.Zero(t, r.schedule("a").Next, "it is over")
		r.fire(fireOf("a", "h1", tick, time.Time{}, tick), actors.ScheduleMoved) // repeated
		require.Len(t, r.World.Public(t), 1)
	},
	"a full stream takes all of them or none": func(t *testing.T, r *rig) {
		tick := r.ago(time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		f := fireOf("a", "h1", tick, tick.Add(time.Hour), tick, tick.Add(time.Minute))
		f.Runs[0].Task.MaxLen = 1
		got := r.fire(f, actors.ScheduleFull)
		require.Equal(t, tick, got.Next)
		require.Empty(t, r.World.Public(t))
		require.Equal(t, tick, r.schedule("a").Next)
		f.Runs[0].Task.MaxLen = 2
		r.fire(f, actors.ScheduleMoved)
	},
	"overlap: the task before has not begun": func(t *testing.T, r *rig) {
		tick := r.ago(time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		r.fire(fireOf("a", "h1", tick, tick.Add(time.Minute), tick), actors.ScheduleMoved)
		f := fireOf("a", "h1", tick.Add(time.Minute), tick.Add(2*time.Minute), tick.Add(time.Minute))
		f.Overlap = actors.OverlapSkipped
		got := r.fire(f, actors.ScheduleOverlapped)
		require.Equal(t, r.schedule("a").LastTask, got.Task)
		require.Equal(t, got, r.fire(f, actors.ScheduleOverlapped), "repeated")
		require.Equal(t, tick.Add(2*time.Minute), got.Next)
		f = fireOf("a", "h1", got.Next, got.Next.Add(time.Minute), got.Next)
		f.Overlap = actors.OverlapRefused
		refused := r.fire(f, actors.ScheduleBusy)
		require.Equal(t, got.Task, refused.Task)
		require.Equal(t, got.Next, refused.Next)
		require.EqualValues(t, 1, r.schedule("a").Overlapped)
		require.Equal(t, tick, r.schedule("a").Last)
		require.Len(t, r.World.Public(t), 1)
	},
	"overlap: the task before runs, retries, ends": func(t *testing.T, r *rig) {
		tick := r.ago(time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		first := fireOf("a", "h1", tick, tick.Add(time.Minute), tick)
		r.fire(first, actors.ScheduleMoved)
		id := first.Runs[0].Task.ID
		tick = tick.Add(time.Minute)
		step := func(want actors.ScheduleOutcome) {
			t.Helper()
			f := fireOf("a", "h1", tick, tick.Add(time.Minute), tick)
			f.Overlap = actors.OverlapSkipped
			r.fire(f, want)
			tick = tick.Add(time.Minute)
		}
		// Another entry of the same task: what counts is the record.
		task := &messages.Task{TaskId: id, Type: "noop"}
		w := r.deliver(task, here)
		b := w.run()
		step(actors.ScheduleOverlapped)
		r.commit(w.retry(b, time.Hour))
		step(actors.ScheduleOverlapped)
		r.World.Promote(t, id, "")
		w = r.fromInbox(task, here)
		r.commit(w.completed(w.run(), "done"))
		step(actors.ScheduleMoved)
	},
	"the last start wins": func(t *testing.T, r *rig) {
		tick := r.ago(time.Second)
		later := tick.Add(time.Hour)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		r.declare(inCode("a", "h2", later), actors.ScheduleChanged)
		require.Equal(t, later, r.schedule("a").Next, "one next tick, of the new pattern")
		require.Empty(t, r.due("h1", "h2").Due)
		r.fire(fireOf("a", "h1", tick, later, tick), actors.ScheduleStale)
		r.declare(inCode("a", "h2", tick), actors.ScheduleKnown)
		require.Equal(t, later, r.schedule("a").Next, "what is known keeps its tick")

		old := inCode("a", "h1", tick)
		old.Start = false
		r.declare(old, actors.ScheduleOther)
		r.declare(inCode("a", "h1", tick), actors.ScheduleChanged)
		require.Equal(t, []string{"a"}, names(r.due("h1")))
		require.Empty(t, r.due("h2").Due, "a node with another definition")
		r.fire(fireOf("a", "h2", tick, later, tick), actors.ScheduleForeign)
		require.Empty(t, r.World.Public(t))
	},
	"a restart changes nothing": func(t *testing.T, r *rig) {
		tick := r.ago(30 * 24 * time.Hour)
		r.declare(inCode("weekly", "h1", tick), actors.ScheduleNew)
		for range 3 {
			r.declare(inCode("weekly", "h1", r.ago(-time.Hour)), actors.ScheduleKnown)
		}
		require.Equal(t, tick, r.schedule("weekly").Next)
		require.Equal(t, []string{"weekly"}, names(r.due("h1")))
	},
	"a node that still runs brings back what the store lost": func(t *testing.T, r *rig) {
		tick := r.ago(time.Second)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		r.World.Wipe(t)
		require.Zero(t, r.due("h1").Known)
		d := inCode("a", "h1", tick)
		d.Start = false
		r.declare(d, actors.ScheduleNew)
		require.Equal(t, []string{"a"}, names(r.due("h1")))
	},
	"pause and resume": func(t *testing.T, r *rig) {
		tick := r.ago(time.Minute)
		later := r.ago(-time.Hour)
		desk := r.desk(r.State)
		r.declare(byClient("a", "h1", tick), actors.ScheduleNew)
		for range 2 {
			require.NoError(t, desk.PauseSchedule(t.Context(), "a"))
		}
		require.True(t, r.schedule("a").Paused)
		require.Zero(t, r.schedule("a").Next)
		require.Empty(t, r.due().Due)
		r.fire(fireOf("a", "h1", tick, later, tick), actors.ScheduleStale)
		r.declare(byClient("a", "h2", tick), actors.ScheduleChanged)
		require.Empty(t, r.due().Due, "paused through a change")
		require.ErrorIs(t, desk.ResumeSchedule(t.Context(), "a", "h1", later), actors.ErrConflict)
		for range 2 {
			require.NoError(t, desk.ResumeSchedule(t.Context(), "a", "h2", later))
		}
		require.False(t, r.schedule("a").Paused)
		require.Equal(t, later, r.schedule("a").Next)
		require.NoError(t, desk.ResumeSchedule(t.Context(), "a", "h1", tick), "not paused")
		require.Equal(t, later, r.schedule("a").Next)
		require.ErrorIs(t, desk.PauseSchedule(t.Context(), "none"), actors.ErrNoSchedule)
		require.ErrorIs(t, desk.ResumeSchedule(t.Context(), "none", "", later), actors.ErrNoSchedule)
	},
	"remove one that a client added": func(t *testing.T, r *rig) {
		tick := r.ago(time.Minute)
		desk := r.desk(r.State)
		r.declare(byClient("a", "h1", tick), actors.ScheduleNew)
		code, err := desk.RemoveSchedule(t.Context(), "a")
		require.NoError(t, err)
		require.False(t, code)
		_, err = desk.RemoveSchedule(t.Context(), "a")
		require.ErrorIs(t, err, actors.ErrNoSchedule)
		require.Zero(t, r.due().Known)
		r.fire(fireOf("a", "h1", tick, tick.Add(time.Hour), tick), actors.ScheduleStale)
		r.declare(byClient("a", "h1", tick), actors.ScheduleNew)
	},
	"remove one that nodes declare": func(t *testing.T, r *rig) {
		tick := r.ago(time.Minute)
		desk := r.desk(r.State)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		code, err := desk.RemoveSchedule(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, code)
		_, err = desk.RemoveSchedule(t.Context(), "a")
		require.ErrorIs(t, err, actors.ErrNoSchedule)
		require.ErrorIs(t, desk.PauseSchedule(t.Context(), "a"), actors.ErrNoSchedule)
		list, err := desk.Schedules(t.Context())
		require.NoError(t, err)
		require.Empty(t, list.Schedules)
		d := inCode("a", "h1", tick)
		d.Start = false
		r.declare(d, actors.ScheduleRemoved)
		require.Empty(t, r.due("h1").Due)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		require.Equal(t, []string{"a"}, names(r.due("h1")))

		_, err = desk.RemoveSchedule(t.Context(), "a")
		require.NoError(t, err)
		r.declare(byClient("a", "h1", tick), actors.ScheduleNew)
		require.False(t, r.schedule("a").InCode)
	},
	"a client's and the code's": func(t *testing.T, r *rig) {
		tick := r.ago(time.Minute)
		r.declare(byClient("client", "h1", tick), actors.ScheduleNew)
		r.declare(byClient("client", "h1", tick.Add(time.Second)), actors.ScheduleKnown)
		r.declare(byClient("client", "h2", tick.Add(time.Second)), actors.ScheduleChanged)
		r.declare(inCode("code", "h3", tick), actors.ScheduleNew)
		r.declare(byClient("code", "h4", tick), actors.ScheduleTaken)
		r.declare(byClient("code", "h3", tick), actors.ScheduleTaken)

		due := r.due() // a node that declares nothing
		require.Equal(t, []string{"client"}, names(due))
		require.Equal(t, "{h2}", string(due.Due[0].Definition))
		require.Equal(t, "h2", due.Due[0].Hash)
		require.Equal(t, tick.Add(time.Second), due.Due[0].Tick)
		require.Equal(t, 2, due.Known)
		due = r.due("h3")
		require.Equal(t, []string{"code", "client"}, names(due), "the one that has waited longest first")
		require.Nil(t, due.Due[0].Definition)

		d := inCode("client", "h2", tick)
		d.Start = false
		r.declare(d, actors.ScheduleOther)
		r.declare(inCode("client", "h2", tick), actors.ScheduleKnown)
		require.Equal(t, tick.Add(time.Second), r.schedule("client").Next)
		require.Empty(t, r.due().Due, "it is the code's now")
		r.declare(byClient("client", "h5", tick), actors.ScheduleTaken)
	},
	"a broken definition shows and stops nothing": func(t *testing.T, r *rig) {
		tick := r.ago(time.Minute)
		broken := actors.ScheduleDeclaration{Name: "a", InCode: true, Start: true, Broken: "no such zone", TTL: week}
		r.declare(broken, actors.ScheduleNew)
		require.Equal(t, "no such zone", r.schedule("a").Broken)
		require.Zero(t, r.schedule("a").Next)
		require.Empty(t, r.due().Due)
		r.declare(inCode("a", "h1", tick), actors.ScheduleNew)
		require.Empty(t, r.schedule("a").Broken)
		r.declare(broken, actors.ScheduleKnown)
		require.Equal(t, "no such zone", r.schedule("a").Broken)
		require.Equal(t, []string{"a"}, names(r.due("h1")), "nodes that can use theirs go on")
		d := inCode("a", "h1", tick)
		d.Start = false
		r.declare(d, actors.ScheduleKnown)
		require.Equal(t, "no such zone", r.schedule("a").Broken)
		r.declare(inCode("a", "h1", tick), actors.ScheduleKnown)
		require.Empty(t, r.schedule("a").Broken)

		r.declare(byClient("b", "h2", tick), actors.ScheduleNew)
		broken.Name = "b"
		r.declare(broken, actors.ScheduleOther)
		require.False(t, r.schedule("b").InCode)
	},
	"due: a limit": func(t *testing.T, r *rig) {
		tick := r.ago(time.Hour)
		for i := range 5 {
			name := string(rune('e' - i))
			r.declare(byClient(name, "h"+name, tick.Add(-time.Duration(i)*time.Second)), actors.ScheduleNew)
		}
		r.declare(byClient("later", "h", r.ago(-time.Hour)), actors.ScheduleNew)
		r.declare(byClient("soon", "h", r.ago(-time.Minute)), actors.ScheduleNew)
		due, err := r.desk(r.State).DueSchedules(t.Context(), actors.ScheduleQuery{Limit: 3})
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, names(due))
		require.True(t, due.More)
		require.Equal(t, 7, due.Known)
		require.Equal(t, r.schedule("soon").Next, due.Soonest)
		require.WithinDuration(t, r.World.Now(t), due.Now, time.Minute)
		due, err = r.desk(r.State).DueSchedules(t.Context(), actors.ScheduleQuery{Limit: 5})
		require.NoError(t, err)
		require.False(t, due.More)
		require.Len(t, due.Due, 5)

		list, err := r.desk(r.State).Schedules(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Schedules, 7)
		require.Equal(t, "a", list.Schedules[0].Name)
		require.Equal(t, "soon", list.Schedules[6].Name)
		list, err = r.desk(r.State).Schedules(t.Context(), "soon", "none")
		require.NoError(t, err)
		require.Len(t, list.Schedules, 1)
	},
}
