package actors_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// family is a handler that spawns three children and joins them.
func family(timeout time.Duration, opts ...actors.JoinOption) func(*actors.Context, in) (string, error) {
	return func(c *actors.Context, _ in) (string, error) {
		var kids []*actors.Child[int]
		for i := range 3 {
			kids = append(kids, actors.Spawn[int](c, fmt.Sprint("k", i), actors.NewTask{Type: "count", Payload: i}))
		}
		got, err := actors.Join(c, "all", timeout, kids, opts...)
		text := fmt.Sprint(got)
		for _, k := range kids {
			n, ended, err := k.Get()
			text += fmt.Sprintf(" %s:%d,%t,%t", k.Name(), n, ended, err != nil)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", text, err)
		}
		return text, nil
	}
}

func (w *world) endChild(t testing.TB, name, result, failure string) {
	t.Helper()
	contentType := ""
	if result != "" {
		contentType = "application/json"
	}
	require.NoError(t, w.store.book.End(name, contentType, []byte(result), failure))
}

func TestSpawnAndJoin(t *testing.T) {
	w := newWorld(family(time.Hour))
	v := w.life(t)
	require.Equal(t, parked, v.Outcome)
	require.Equal(t, `waits in "all" for 3 children`, v.Error)
	require.Equal(t, []actors.Wait{{Name: "all", Kind: actors.WaitJoin, For: time.Hour, Children: []string{"k0", "k1", "k2"}}}, v.Waits)
	require.Len(t, v.Spawns, 3)
	require.Equal(t, "k1", v.Spawns[1].Name)
	s := v.Spawns[1].Task
	require.Equal(t, "t-1/k1", s.ID)
	require.Equal(t, messages.WorkHash("count", []byte("1")), s.Work)
	task, _, err := messages.Decode(s.Fields, messages.Ref{}, messages.DecodeOptions{})
	require.NoError(t, err)
	require.Equal(t, "count", task.GetType())
	require.Equal(t, "1", string(task.GetPayload()))
	require.Equal(t, "root", string(task.GetFields()[0].GetName()))
	require.Equal(t, "t-1", string(task.GetFields()[0].GetValue()))

	v = w.life(t)
	require.Equal(t, parked, v.Outcome)
	require.Empty(t, v.Spawns, "they were spawned before")
	w.endChild(t, "k2", "2", "")
	w.endChild(t, "k0", "0", "")
	require.Equal(t, parked, w.life(t).Outcome)
	w.endChild(t, "k1", "1", "")
	for range 2 {
		v = w.life(t)
		require.Equal(t, completed, v.Outcome, v.Error)
		require.JSONEq(t, `"[0 1 2] k0:0,true,false k1:1,true,false k2:2,true,false"`, string(v.Result))
	}
}

func TestJoinPolicies(t *testing.T) {
	const down = "FAILED budget_spent: 11 failures where 10 are allowed"
	for name, c := range map[string]struct {
		opts    []actors.JoinOption
		ends    []string // of k0, k1, k2: a result, a failure, or nothing
		late    bool
		outcome messages.Outcome
		says    string
	}{
		"the first failure ends it":    {ends: []string{"", down}, outcome: refused, says: "[] k0:0,false,false k1:0,true,true k2:0,false,false: join \"all\": 1 of 3 children failed: child \"k1\": task \"t-1/k1\" ended FAILED (budget_spent): 11 failures where 10 are allowed"},
		"keeps going":                  {opts: []actors.JoinOption{actors.KeepGoing()}, ends: []string{"0", down, "2"}, outcome: completed, says: "[0 2] k0:0,true,false k1:0,true,true k2:2,true,false"},
		"keeps going to the end":       {opts: []actors.JoinOption{actors.KeepGoing()}, ends: []string{"0", down}, outcome: parked},
		"all fail":                     {opts: []actors.JoinOption{actors.KeepGoing()}, ends: []string{down, down, "CANCELLED by ops"}, outcome: completed, says: "[]"},
		"the first result is enough":   {opts: []actors.JoinOption{actors.Need(1)}, ends: []string{"", "1"}, outcome: completed, says: "[1] k0:0,false,false k1:1,true,false k2:0,false,false"},
		"two are needed":               {opts: []actors.JoinOption{actors.Need(2), actors.KeepGoing()}, ends: []string{down, "1", "2"}, outcome: completed, says: "[1 2]"},
		"two are needed, one is there": {opts: []actors.JoinOption{actors.Need(2), actors.KeepGoing()}, ends: []string{down, "1", down}, outcome: refused, says: "1 of 3 children gave a result where 2 are needed"},
		"a failure before enough":      {opts: []actors.JoinOption{actors.Need(2)}, ends: []string{"0", down}, outcome: refused, says: "where 2 are needed: child \"k1\""},
		"late":                         {ends: []string{"0"}, late: true, outcome: refused, says: "[0] k0:0,true,false k1:0,false,false k2:0,false,false: join \"all\": not within 1h0m0s"},
		"late, nothing is there":       {late: true, outcome: refused, says: "[] k0:0,false,false"},
		"cancelled":                    {ends: []string{"CANCELLED by ops"}, outcome: refused, says: "ended CANCELLED (cancelled): by ops"},
		"another type":                 {ends: []string{`"one"`}, outcome: parked},
		"another type at the end":      {ends: []string{`"one"`, "1", "2"}, outcome: refused, says: "result of child \"k0\": decode JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(family(time.Hour, c.opts...))
			w.life(t)
			for i, end := range c.ends {
				switch {
				case end == "":
				case strings.HasPrefix(end, "FAILED"), strings.HasPrefix(end, "CANCELLED"):
					w.endChild(t, fmt.Sprint("k", i), "", end)
				default:
					w.endChild(t, fmt.Sprint("k", i), end, "")
				}
			}
			if c.late {
				w.pass(t, time.Hour)
			}
			v := w.life(t)
			require.Equal(t, c.outcome, v.Outcome, v.Error)
			require.Contains(t, string(v.Result)+v.Error, strings.ReplaceAll(c.says, "\n", ""))
			if c.outcome == parked {
				return
			}
			// What has become of the others since changes nothing.
			for _, k := range []string{"k0", "k1", "k2"} {
				if w.store.step(k).Status == messages.StepSpawned {
					w.endChild(t, k, "99", "")
				}
			}
			again := w.life(t)
			require.Equal(t, string(v.Result)+v.Error, string(again.Result)+again.Error)
		})
	}
}

func TestChildErrors(t *testing.T) {
	w := newWorld(family(time.Hour))
	w.life(t)
	w.endChild(t, "k1", "", "CANCELLED by ops")
	err := w.life(t).Err
	var child *actors.ChildError
	require.ErrorAs(t, err, &child)
	require.Equal(t, "k1", child.Name)
	var task *actors.TaskError
	require.ErrorAs(t, err, &task)
	require.Equal(t, "t-1/k1", task.ID)
	require.NotErrorIs(t, err, actors.ErrCancelled, "that would say that this task is cancelled")
	require.ErrorIs(t, task, actors.ErrCancelled)
	require.NotErrorIs(t, err, actors.ErrTimeout)
}

func TestJoinNothing(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (int, error) {
		got, err := actors.Join[string](c, "none", time.Hour, nil)
		return len(got), err
	})
	v := w.life(t)
	require.Equal(t, completed, v.Outcome, v.Error)
}

// Ids are the author's, or follow from task, unit and name.
func TestSpawnIDs(t *testing.T) {
	var ids []string
	w := newWorld(func(c *actors.Context, _ in) (int, error) {
		ids = []string{
			actors.Spawn[int](c, "a", actors.NewTask{Type: "x"}).ID(),
			actors.Spawn[int](c, "b", actors.NewTask{Type: "x", ID: "mine"}).ID(),
			actors.Spawn[int](c, "c", actors.NewTask{Type: "x", ID: "mine", Step: "part"}).ID(),
		}
		return 0, nil
	})
	w.job.Task = &messages.Task{TaskId: "t", Unit: "u", Type: "a", Payload: []byte("{}"), Fields: []*messages.Field{{Name: []byte("root"), Value: []byte("first")}}}
	v := w.life(t)
	require.Equal(t, completed, v.Outcome, v.Error)
	require.Equal(t, []string{"t/u/a", "mine", "mine"}, ids)
	require.Len(t, v.Spawns, 3, "they go with the commit that completes the unit")
	require.Equal(t, "part", v.Spawns[2].Task.Unit)
	require.Contains(t, v.Spawns[0].Task.Fields, actors.Field{Name: "root", Value: "first"})
	require.Empty(t, w.life(t).Spawns)
	require.Equal(t, []string{"t/u/a", "mine", "mine"}, ids)
}

// What fails has started nothing.
func TestWhatFailsStartsNothing(t *testing.T) {
	for _, err := range []error{errBank, actors.Reject(errBank), actors.RateLimited(time.Hour, errBank)} {
		v := newWorld(func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: "x"})
			return 0, errors.Join(actors.Emit(c, "next", actors.NewTask{Type: "y"}), err)
		}).life(t)
		require.Empty(t, v.Spawns)
		require.Empty(t, v.Emits)
	}
	// One that parks has emitted nothing yet, and has spawned.
	v := newWorld(func(c *actors.Context, _ in) (int, error) {
		actors.Spawn[int](c, "k", actors.NewTask{Type: "x"})
		if err := actors.Emit(c, "next", actors.NewTask{Type: "y"}); err != nil {
			return 0, err
		}
		return 0, actors.Sleep(c, "s", time.Hour)
	}).life(t)
	require.Len(t, v.Spawns, 1)
	require.Empty(t, v.Emits)
}

func TestEmit(t *testing.T) {
	h := func(c *actors.Context, _ in) (string, error) {
		for _, stream := range []string{"{agent}:tools", "replies", "{agent:audit}"} {
			if err := actors.Emit(c, stream, actors.NewTask{Type: "x", Payload: 7}); err != nil {
				return "", err
			}
		}
		return "", actors.Emit(c, "replies", actors.NewTask{Type: "x", ID: "mine", Fields: []actors.Field{{Name: "root", Value: "other"}}})
	}
	w := newWorld(h)
	w.job.Remember = time.Hour
	for range 2 { // each activation again
		v := w.life(t)
		require.Equal(t, completed, v.Outcome, v.Error)
		require.Len(t, v.Emits, 4)
		for i, want := range [][2]string{{"{agent}:tools", "t-1/tools"}, {"replies", "t-1/replies"}, {"{agent:audit}", "t-1/audit"}, {"replies", "mine"}} {
			require.Equal(t, want, [2]string{v.Emits[i].Stream, v.Emits[i].Task.ID})
			require.Equal(t, time.Hour, v.Emits[i].Task.TTL)
			require.Zero(t, v.Emits[i].Task.MaxLen)
		}
		require.Contains(t, v.Emits[0].Task.Fields, actors.Field{Name: "root", Value: "t-1"})
		require.Contains(t, v.Emits[3].Task.Fields, actors.Field{Name: "root", Value: "other"})
		require.NotContains(t, v.Emits[3].Task.Fields, actors.Field{Name: "root", Value: "t-1"})
	}

	// An entry's own id may be that of an entry of another stream, and both may emit to a third.
	w = newWorld(h)
	w.job.Names = &actors.Names{Stream: "agent:tasks"}
	w.job.Task = &messages.Task{TaskId: "1700-0", Origin: "1700-0", Unit: "u", Type: "a", Payload: []byte("{}")}
	require.Equal(t, "agent:tasks/1700-0/u/tools", w.life(t).Emits[0].Task.ID)
}

// pickyStore cannot write to every stream.
type pickyStore struct{ *memory }

func (*pickyStore) CanEmit(stream string) error {
	if strings.HasPrefix(stream, "{agent}") {
		return nil
	}
	return fmt.Errorf("stream %q has another hash tag than ours: {agent}", stream)
}

func TestEmitAcrossSlots(t *testing.T) {
	agent := actors.Func(func(c *actors.Context, stream string) (actors.None, error) {
		return nil, actors.Emit(c, stream, actors.NewTask{Type: "x"})
	})
	run := func(payload string) actors.Verdict {
		return actors.Activate(t.Context(), &actors.Job{
			Agent: agent, Store: &pickyStore{&memory{}}, Task: &messages.Task{TaskId: "t", Type: "a", Payload: []byte(payload)},
		})
	}
	require.Equal(t, completed, run(`"{agent}:tools"`).Outcome)
	v := run(`"other"`)
	require.Equal(t, messages.Reason_REASON_MISUSE, v.Reason)
	require.Contains(t, v.Error, `emit to "other": stream "other" has another hash tag`)
}

// Too large is not misuse, and a dropped error does not complete the unit without it.
func TestStartsTooMuch(t *testing.T) {
	big := strings.Repeat("x", 100)
	for name, h := range map[string]func(*actors.Context, in) (int, error){
		"spawn": func(c *actors.Context, _ in) (int, error) {
			actors.Spawn[int](c, "k", actors.NewTask{Type: "x", Payload: big})
			return 0, nil
		},
		"emit": func(c *actors.Context, _ in) (int, error) {
			_ = actors.Emit(c, "next", actors.NewTask{Type: "x", Payload: big})
			return 0, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(h)
			w.job.MaxPayload = 50
			v := w.life(t)
			require.Equal(t, refused, v.Outcome)
			require.Equal(t, messages.Reason_REASON_TOO_LARGE, v.Reason)
			require.Contains(t, v.Error, "the payload has 102 bytes where 50 are allowed")
		})
	}
	v := newWorld(func(c *actors.Context, _ in) (int, error) {
		for i := range 65 {
			actors.Spawn[int](c, fmt.Sprint("k", i), actors.NewTask{Type: "x", Payload: strings.Repeat("x", 1<<20-2)})
		}
		return 0, nil
	}).life(t)
	require.Equal(t, messages.Reason_REASON_TOO_LARGE, v.Reason)
	require.Contains(t, v.Error, "what one activation starts has")
}

func TestSpawnALot(t *testing.T) {
	w := newWorld(func(c *actors.Context, m in) (int, error) {
		kids := make([]*actors.Child[int], m.N)
		for i := range kids {
			kids[i] = actors.Spawn[int](c, fmt.Sprint("k", i), actors.NewTask{Type: "x", Payload: i})
		}
		_, err := actors.Join(c, "all", time.Hour, kids)
		return 0, err
	})
	v := w.activate(t.Context(), `{"N":10000}`)
	require.Equal(t, parked, v.Outcome)
	require.Len(t, v.Spawns, 10_000)
	v = w.activate(t.Context(), `{"N":10001}`)
	require.Equal(t, messages.Reason_REASON_MISUSE, v.Reason)
	require.Contains(t, v.Error, "more than 10000 tasks of one activation")
}
