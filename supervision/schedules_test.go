package supervision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/schedule"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// clockwork is schedulers on one server in virtual time, which begins at midnight UTC.
type clockwork struct {
	t      *testing.T
	server *memstream.Server
	born   int

	mu     sync.Mutex
	events []Event
}

func virtual(t *testing.T, test func(*testing.T, *clockwork)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, &clockwork{t: t, server: memstream.NewServer()}) })
}

// ticking is one node's scheduler.
type ticking struct {
	*scheduler
	stream *memstream.Stream
}

// node starts one more scheduler.
func (w *clockwork) node(declared ...schedule.Schedule) *ticking {
	w.t.Helper()
	w.born++
	stream := w.server.Stream()
	state := memstate.New(stream)
	tasks, err := actors.NewClient(state, actors.Names{})
	require.NoError(w.t, err)
	s := newScheduler(declared, state, tasks)
	s.incarnation, s.log = fmt.Sprint("node-", w.born), hclog.NewNullLogger()
	s.fault = func(err error) { w.t.Error(err) }
	s.events = func(e Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
	}
	s.start(context.Background())
	w.t.Cleanup(s.stop)
	return &ticking{s, stream}
}

// kill cuts a node off from one moment to the other, as kill -9 does.
func (n *ticking) kill() {
	n.stream.SetDown(errors.New("killed"))
	n.stop()
}

// due lists the ticks whose tasks were submitted, in order of their entries.
func (w *clockwork) ticks(layout string) (out []string) {
	w.t.Helper()
	names := messages.Names{}.WithDefaults()
	keys, err := messages.NewKeys(names)
	require.NoError(w.t, err)
	require.NoError(w.t, w.server.Stream().Script(w.t.Context(), "look", keys, names.Group, func(tx *memstream.Tx) error {
		for _, e := range tx.Entries(false) {
			task, _, err := messages.Decode(e.Fields, e.Ref, messages.DecodeOptions{})
			require.NoError(w.t, err)
			_, tick, _ := strings.Cut(task.GetTaskId(), "@")
			at, err := time.Parse(time.RFC3339, tick)
			require.NoError(w.t, err)
			out = append(out, at.Format(layout))
		}
		return nil
	}))
	return out
}

func eventsOf[E Event](w *clockwork) (found []E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if one, ok := e.(E); ok {
			found = append(found, one)
		}
	}
	return found
}

func (w *clockwork) client() *schedule.Client {
	w.t.Helper()
	c, err := schedule.NewClient(memstate.New(w.server.Stream()), actors.Names{})
	require.NoError(w.t, err)
	return c
}

func cronOf(name, pattern string) schedule.Schedule {
	return schedule.Schedule{Name: name, Cron: pattern, Task: actors.NewTask{Type: "noop"}}
}

func always(ok bool) func(context.Context, time.Time) (bool, error) {
	return func(context.Context, time.Time) (bool, error) { return ok, nil }
}

// Three nodes, a tick each second, a node killed each 5 s, the server away for 7 s: each tick once, in order.
func TestOneRunATickWhateverDies(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "* * * * * *")
		s.Missed = schedule.RunAll
		nodes := []*ticking{w.node(s), w.node(s), w.node(s)}
		for i := range 12 {
			time.Sleep(4900 * time.Millisecond)
			if i == 5 {
				w.server.SetDown(errors.New("restarting"))
				time.Sleep(7 * time.Second)
				w.server.SetDown(nil)
			}
			nodes[i%3].kill()
			nodes[i%3] = w.node(s)
		}
		time.Sleep(5 * time.Second)
		for _, n := range nodes {
			n.stop()
		}
		got := w.ticks(time.TimeOnly)
		require.Greater(t, len(got), 65)
		tick := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)
		for _, one := range got {
			require.Equal(t, tick.Format(time.TimeOnly), one)
			tick = tick.Add(time.Second)
		}
		require.Len(t, eventsOf[ScheduleFired](w), len(got), "each was told once")
	})
}

// A tick comes at its time by the server's clock, not by the node's.
func TestTicksComeByTheServersClock(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		w.server.Advance(17 * time.Minute)
		n := w.node(cronOf("s", "*/10 * * * *"))
		defer n.stop()
		time.Sleep(2*time.Minute + 59*time.Second)
		require.Empty(t, w.ticks("15:04"))
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, []string{"00:20"}, w.ticks("15:04"))
		require.Less(t, eventsOf[ScheduleFired](w)[0].Late, 50*time.Millisecond)
	})
}

// Twenty deployments, each with another pattern, leave one next tick: that of the last.
func TestRedeploysLeaveOneNextTick(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		old := w.node(cronOf("s", "0 12 * * *"))
		for i := range 20 {
			n := w.node(cronOf("s", fmt.Sprintf("%d 3 * * *", i)))
			time.Sleep(time.Second)
			old.stop()
			old = n
		}
		late := w.node(cronOf("other", "0 5 * * *")) // does not know it at all
		list, err := w.client().List(t.Context(), "s")
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "19 3 * * *", list[0].Schedule.Cron)
		require.Equal(t, "03:19", list[0].Next.Format("15:04"))
		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{"03:19", "05:00"}, w.ticks("15:04"))
		old.stop()
		time.Sleep(24 * time.Hour)
		require.Equal(t, []string{"03:19", "05:00", "05:00"}, w.ticks("15:04"), "nobody declares it any more")
		late.stop()
	})
}

// Of two nodes with two definitions, the one that started last fires.
func TestTheLastStartWins(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		a := w.node(cronOf("s", "10 * * * *"))
		time.Sleep(time.Minute)
		b := w.node(cronOf("s", "20 * * * *"))
		time.Sleep(150 * time.Minute) // the first one goes on saying what it has
		require.Equal(t, []string{"00:20", "01:20", "02:20"}, w.ticks("15:04"))
		a.kill()
		a = w.node(cronOf("s", "10 * * * *"))
		time.Sleep(time.Hour)
		require.Equal(t, []string{"00:20", "01:20", "02:20", "03:10"}, w.ticks("15:04"))
		a.stop()
		b.stop()
	})
}

// A weekly schedule fires though its nodes restart each day.
func TestAWeeklyScheduleSurvivesRestarts(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		weekly := cronOf("s", "0 9 * * MON") // the clock begins on a Saturday
		for range 22 {
			n := w.node(weekly)
			time.Sleep(20 * time.Hour)
			n.stop()
			time.Sleep(4 * time.Hour)
		}
		require.Equal(t, []string{"Mon 3", "Mon 10", "Mon 17"}, w.ticks("Mon 2"))
	})
}

// What was missed while everything was down is made up for as the schedule says.
func TestMissedTicks(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		all := func() (out []schedule.Schedule) {
			for _, m := range []schedule.Missed{schedule.RunOne, schedule.RunAll, schedule.Skip} {
				s := cronOf(string(m), "0 * * * *")
				s.Missed = m
				out = append(out, s)
			}
			return out
		}
		n := w.node(all()...)
		time.Sleep(90 * time.Minute)
		n.stop()
		time.Sleep(3 * time.Hour)
		n = w.node(all()...)
		time.Sleep(time.Minute)
		n.stop()
		fired := map[string][]string{}
		for _, e := range eventsOf[ScheduleFired](w) {
			fired[e.Schedule] = append(fired[e.Schedule], e.Tick.Format("15:04"))
		}
		require.Equal(t, map[string][]string{
			"one":  {"01:00", "04:00"},
			"all":  {"01:00", "02:00", "03:00", "04:00"},
			"skip": {"01:00"},
		}, fired)
		for _, e := range eventsOf[ScheduleMissed](w) {
			require.Equal(t, map[string]int{"one": 2, "skip": 3}[e.Schedule], e.Count)
		}
		require.Len(t, eventsOf[ScheduleMissed](w), 2)
	})
}

// A thousand missed ticks come in batches, without a pause between them.
func TestManyMissedTicksRunAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "* * * * * *")
		s.Missed = schedule.RunAll
		n := w.node(s)
		time.Sleep(100 * time.Millisecond)
		n.stop()
		time.Sleep(1000 * time.Second)
		n = w.node(s)
		time.Sleep(100 * time.Millisecond)
		n.stop()
		require.Len(t, w.ticks(time.TimeOnly), 1000)
	})
}

// Tasks of many fields are no more than a script takes.
func TestMissedTicksOfLargeTasks(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "0 * * * *")
		s.Missed = schedule.RunAll
		for i := range 400 {
			s.Task.Fields = append(s.Task.Fields, actors.Field{Name: fmt.Sprint("f", i), Value: "v"})
		}
		n := w.node(s)
		time.Sleep(100 * time.Millisecond)
		n.stop()
		time.Sleep(30*time.Hour + time.Second)
		n = w.node(s)
		time.Sleep(100 * time.Millisecond)
		n.stop()
		require.Len(t, w.ticks(""), 30)
	})
}

// One of ten schedules is broken: it is reported and shown, the other nine fire.
func TestABrokenScheduleStopsNoOther(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		var ten []schedule.Schedule
		for i := range 9 {
			ten = append(ten, cronOf(fmt.Sprint("good-", i), "30 * * * *"))
		}
		broken := cronOf("broken", "30 * * * *")
		broken.Zone = "Europe/Atlantis"
		n := w.node(append(ten, broken)...)
		time.Sleep(time.Hour)
		require.Len(t, w.ticks(""), 9)
		reports := eventsOf[ScheduleBroken](w)
		require.Len(t, reports, 1)
		require.Equal(t, "broken", reports[0].Schedule)
		require.ErrorContains(t, reports[0].Err, "Europe/Atlantis")
		list, err := w.client().List(t.Context(), "broken")
		require.NoError(t, err)
		require.ErrorContains(t, list[0].Err, "Europe/Atlantis")
		n.stop()
	})
}

func TestOneNameTwiceIsBroken(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		n := w.node(cronOf("s", "30 * * * *"), cronOf("s", "31 * * * *"), cronOf("", "@daily"), cronOf("t", "32 * * * *"))
		time.Sleep(time.Hour)
		n.stop()
		require.Equal(t, []string{"00:32"}, w.ticks("15:04"))
		require.Len(t, eventsOf[ScheduleBroken](w), 2)
	})
}

// A condition passes over ticks: by saying no, by an error, by a panic, by taking too long. It is asked before the fire, on
// nodes that have its code alone.
func TestConditions(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "*/10 * * * *")
		s.When = func(ctx context.Context, tick time.Time) (bool, error) {
			switch tick.Minute() {
			case 10:
				return false, nil
			case 20:
				return true, errors.New("no idea")
			case 30:
				panic("at the disco")
			case 40:
				<-ctx.Done()
				return true, nil
			}
			return true, nil
		}
		n := w.node(s)
		bystander := w.node()
		time.Sleep(61 * time.Minute)
		require.Equal(t, []string{"50", "00"}, w.ticks("04"))
		var told []string
		for _, e := range eventsOf[ScheduleVetoed](w) {
			told = append(told, fmt.Sprint(e.Tick.Minute(), " ", e.Err))
		}
		require.Equal(t, []string{"10 <nil>", "20 no idea", "30 it panicked: at the disco", "40 the condition did not answer within 10s"}, told)
		list, err := w.client().List(t.Context(), "s")
		require.NoError(t, err)
		require.EqualValues(t, 4, list[0].Vetoed)
		require.EqualValues(t, 2, list[0].Fired)
		require.Contains(t, list[0].Why, "did not answer")

		n.kill()
		time.Sleep(time.Hour)
		require.Len(t, w.ticks(""), 2, "nobody who could ask")
		bystander.stop()
	})
}

// A condition that hangs holds up neither other schedules nor the end of the node, and another node asks it again.
func TestAConditionThatHangs(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		slow := cronOf("slow", "*/10 * * * *")
		release := make(chan struct{})
		slow.When = func(context.Context, time.Time) (bool, error) { <-release; return true, nil }
		n := w.node(slow, cronOf("quick", "*/10 * * * *"))
		time.Sleep(10*time.Minute + time.Second)
		require.Len(t, eventsOf[ScheduleFired](w), 1)
		began := time.Now()
		n.stop()
		require.Zero(t, time.Since(began))
		close(release)
		slow.When = always(true)
		n = w.node(slow)
		time.Sleep(time.Second)
		n.stop()
		require.Len(t, eventsOf[ScheduleFired](w), 2)
		require.Empty(t, eventsOf[ScheduleVetoed](w))
	})
}

// Overlap: the task before has not begun.
func TestOverlap(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "*/10 * * * *")
		s.Overlap = schedule.Skip
		n := w.node(s)
		time.Sleep(35 * time.Minute)
		n.stop()
		require.Equal(t, []string{"00:10"}, w.ticks("15:04"))
		passed := eventsOf[ScheduleOverlapped](w)
		require.Len(t, passed, 2)
		require.Equal(t, "s@2000-01-01T00:10:00Z", passed[0].TaskID)
	})
}

// Overlap: the task before is cancelled.
func TestOverlapCancelsTheOld(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "*/10 * * * *")
		s.Overlap = schedule.CancelOld
		nodes := []*ticking{w.node(s), w.node(s)}
		time.Sleep(35 * time.Minute)
		require.Equal(t, []string{"00:10", "00:20", "00:30"}, w.ticks("15:04"))
		states := map[string]string{}
		for _, tick := range []string{"10", "20", "30"} {
			r, err := nodes[0].tasks.Task("s@2000-01-01T00:" + tick + ":00Z").Status(t.Context())
			require.NoError(t, err)
			states[tick] = actors.StateName(r.Units[0].State)
		}
		require.Equal(t, map[string]string{"10": "CANCELLED", "20": "CANCELLED", "30": "PENDING"}, states)
		require.Len(t, eventsOf[ScheduleCancelled](w), 2)
	})
}

// What a client adds, changes, pauses and removes works on nodes that declare nothing, without a restart.
func TestClientsSchedulesRunOnAnyNode(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		n, c, ctx := w.node(), w.client(), t.Context()
		time.Sleep(time.Minute)
		add := func(pattern string) {
			t.Helper()
			s := cronOf("s", pattern)
			s.Task.Payload = map[string]string{"team": "x"}
			_, err := c.Add(ctx, s)
			require.NoError(t, err)
		}
		add("* * * * * *")
		time.Sleep(10*time.Second + 100*time.Millisecond)
		require.Len(t, w.ticks(""), 10, "also those of before it was noticed")
		require.NoError(t, c.Pause(ctx, "s"))
		time.Sleep(time.Minute)
		require.Len(t, w.ticks(""), 10)
		require.NoError(t, c.Resume(ctx, "s"))
		time.Sleep(4 * time.Second)
		require.Len(t, w.ticks(""), 14)
		add("0 1 * * *")
		time.Sleep(time.Hour)
		require.Len(t, w.ticks(""), 15)
		_, err := c.Remove(ctx, "s")
		require.NoError(t, err)
		time.Sleep(25 * time.Hour)
		require.Len(t, w.ticks(""), 15)
		n.stop()
	})
}

// A definition of a newer version is reported once and stops nothing.
func TestADefinitionThatCannotBeRead(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		n := w.node(cronOf("good", "@hourly"))
		_, err := memstate.New(w.server.Stream()).DeclareSchedule(t.Context(), actors.ScheduleDeclaration{})
		require.Error(t, err, "not bound")
		_, err = n.desk.DeclareSchedule(t.Context(), actors.ScheduleDeclaration{
			Name: "new", Definition: []byte(`{"name":"new","moon":"full","task":{"type":"a"}}`), Hash: "h", Next: w.server.Clock().Add(time.Minute),
		})
		require.NoError(t, err)
		time.Sleep(61 * time.Minute)
		n.stop()
		require.Len(t, w.ticks(""), 1)
		require.Len(t, eventsOf[ScheduleBroken](w), 1)
	})
}

// A server that lost everything gets its schedules again from the nodes that declare them.
func TestALostServerGetsItsSchedulesBack(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		n := w.node(cronOf("s", "*/10 * * * *"), cronOf("t", "*/10 * * * *"))
		time.Sleep(15 * time.Minute)
		w.server.FlushAll()
		time.Sleep(16 * time.Minute)
		n.stop()
		require.Equal(t, []string{"00:20", "00:20", "00:30", "00:30"}, w.ticks("15:04"))
	})
}

// A removed schedule stays away from the nodes that declare it, until one starts anew.
func TestARemovedScheduleComesBackWithAStart(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		s := cronOf("s", "*/10 * * * *")
		n := w.node(s)
		time.Sleep(time.Second)
		inCode, err := w.client().Remove(t.Context(), "s")
		require.NoError(t, err)
		require.True(t, inCode)
		time.Sleep(3 * time.Hour)
		require.Empty(t, w.ticks(""))
		n.stop()
		n = w.node(s)
		time.Sleep(10 * time.Minute)
		n.stop()
		require.Len(t, w.ticks(""), 1)
	})
}

// At fires once, also when its node starts again; one whose time had passed never does.
func TestAt(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		future := schedule.Schedule{Name: "future", At: time.Now().Add(time.Hour), Task: actors.NewTask{Type: "noop"}}
		past := schedule.Schedule{Name: "past", At: time.Now().Add(-time.Hour), Task: actors.NewTask{Type: "noop"}}
		for range 4 {
			n := w.node(future, past)
			time.Sleep(25 * time.Minute)
			n.stop()
		}
		require.Equal(t, []string{"01:00"}, w.ticks("15:04"))
	})
}

// Many schedules at the same moment.
func TestManySchedulesAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T, w *clockwork) {
		var all []schedule.Schedule
		for i := range 500 {
			all = append(all, cronOf(fmt.Sprint("s", i), "0 * * * *"))
		}
		nodes := []*ticking{w.node(all...), w.node(all...)}
		time.Sleep(time.Hour + 5*time.Second)
		for _, n := range nodes {
			n.stop()
		}
		fired := eventsOf[ScheduleFired](w)
		require.Len(t, fired, 500)
		slices.SortFunc(fired, func(a, b ScheduleFired) int { return strings.Compare(a.Schedule, b.Schedule) })
		require.Len(t, slices.CompactFunc(fired, func(a, b ScheduleFired) bool { return a.Schedule == b.Schedule }), 500)
	})
}
