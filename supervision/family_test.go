package supervision_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/supervision"
)

// family is an agent whose task spawns n children and joins them, and the agent of the children.
func family(born *atomic.Int64) actors.Agents {
	parent := func(c *actors.Context, n int) (int, error) {
		var kids []*actors.Child[int]
		for i := range n {
			kids = append(kids, actors.Spawn[int](c, fmt.Sprint("k", i), actors.NewTask{Type: "child", Payload: i}))
		}
		got, err := actors.Join(c, "all", time.Minute, kids)
		sum := 0
		for _, r := range got {
			sum += r
		}
		return sum, err
	}
	child := func(c *actors.Context, i int) (int, error) {
		return actors.Step(c, "born", func(actors.StepContext) (int, error) {
			born.Add(1)
			if c.ID() == "unlucky/k13" {
				return 0, actors.Reject(fmt.Errorf("unlucky %d", i))
			}
			return i, nil
		})
	}
	return actors.Agents{"parent": actors.Func(parent), "child": actors.Func(child)}
}

func TestAFamily(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		var born atomic.Int64
		rt, _ := start(t, b.config("n1", family(&born)))
		c := rt.Client()
		require.Equal(t, 45, result[int](t, submit(t, c, actors.NewTask{Type: "parent", ID: "p", Payload: 10})))
		require.EqualValues(t, 10, born.Load())
		kid, err := c.Task("p/k3").Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, &actors.ParentRecord{ID: "p", Name: "k3"}, kid.Units[0].Parent)
		require.Equal(t, 3, result[int](t, c.Task("p/k3")))

		unlucky := submit(t, c, actors.NewTask{Type: "parent", ID: "unlucky", Payload: 14})
		_, err = actors.Result[int](t.Context(), unlucky)
		require.ErrorContains(t, err, `join "all": 1 of 14 children failed: child "k13": task "unlucky/k13" ended FAILED (rejected)`)
		require.ErrorContains(t, err, "unlucky 13")
	})
}

// What is cancelled takes its children along, and theirs, also those that run.
func TestAFamilyIsCancelled(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		began := make(chan string, 10)
		told := make(chan error, 10)
		agents := actors.Agents{}
		agents["tree"] = actors.Func(func(c *actors.Context, depth int) (int, error) {
			if depth == 0 {
				return actors.Step(c, "work", func(s actors.StepContext) (int, error) {
					began <- c.ID()
					<-s.Done()
					told <- context.Cause(s)
					return 0, s.Err()
				})
			}
			kids := []*actors.Child[int]{
				actors.Spawn[int](c, "l", actors.NewTask{Type: "tree", Payload: depth - 1}),
				actors.Spawn[int](c, "r", actors.NewTask{Type: "tree", Payload: depth - 1}),
			}
			_, err := actors.Join(c, "both", actors.NoTimeout, kids)
			return depth, err
		})
		rt, _ := start(t, b.config("n1", agents))
		top := submit(t, rt.Client(), actors.NewTask{Type: "tree", ID: "t", Payload: 2})
		for range 4 {
			<-began
		}
		require.NoError(t, top.Cancel(t.Context(), "enough"))
		for range 4 {
			require.ErrorIs(t, <-told, actors.ErrCancelled)
		}
		for _, id := range []string{"t/l", "t/r", "t/l/l", "t/r/r"} {
			inState(t, rt.Client().Task(id), messages.State_STATE_CANCELLED)
		}
	})
}

// The node of a parent dies again and again: no child is born twice, and all are joined once.
func TestAFamilyOutlivesItsNodes(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const n = 100
		var born atomic.Int64
		agents := family(&born)
		start(t, b.config("children", actors.Agents{"child": agents["child"]}))
		_, state := b.node()
		outside, err := actors.NewClient(state, b.names)
		require.NoError(t, err)
		task := submit(t, outside, actors.NewTask{Type: "parent", ID: "p", Payload: n})
		for i := range 3 {
			rt, err := supervision.New(b.config(fmt.Sprint("n", i), actors.Agents{"parent": agents["parent"]}))
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- rt.Run(context.Background()) }()
			require.Eventually(t, func() bool {
				u, err := task.Status(t.Context())
				return rt.Stats().Began > 0 || err == nil && u.Units[0].State == messages.State_STATE_SUCCEEDED
			}, 20*time.Second, time.Millisecond)
			now, cancel := context.WithCancel(t.Context())
			cancel()
			_ = rt.Drain(now)
			<-ended
		}
		start(t, b.config("last", actors.Agents{"parent": agents["parent"]}))
		require.Equal(t, n*(n-1)/2, result[int](t, task))
		require.EqualValues(t, n, born.Load())
	})
}

// on is another stream of the same server, and a group of its own.
func (b backend) on(stream, group string) backend {
	b.names.Stream, b.names.Group = stream, group
	return b
}

// Stage after stage, on streams that share a hash tag.
func TestAPipeline(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		tasks := b.names
		tools, replies := "{"+tasks.Stream+"}:tools", "{"+tasks.Stream+"}:replies"
		var ran [3]atomic.Int64
		fails := atomic.Bool{}
		fails.Store(true)
		stage := func(i int, next string) actors.Agents {
			return actors.Agents{"stage": actors.Func(func(c *actors.Context, text string) (string, error) {
				out, err := actors.Step(c, "work", func(actors.StepContext) (string, error) {
					ran[i].Add(1)
					if i == 2 && fails.Load() {
						return "", actors.Reject(fmt.Errorf("the line is down"))
					}
					return text + fmt.Sprint(i), nil
				})
				if err != nil || next == "" {
					return out, err
				}
				return out, actors.Emit(c, next, actors.NewTask{Type: "stage", Payload: out})
			})}
		}
		first, _ := start(t, b.config("n1", stage(0, tools)))
		start(t, b.on(tools, "tools").config("n2", stage(1, replies)))
		cfg := b.on(replies, "replies").config("n3", stage(2, ""))
		last, _ := start(t, cfg)

		submit(t, first.Client(), actors.NewTask{Type: "stage", ID: "a", Payload: "-"})
		end := last.Client().Task("a/tools/replies")
		inState(t, end, messages.State_STATE_FAILED)
		for i := range ran {
			require.EqualValues(t, 1, ran[i].Load())
		}
		r, err := end.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a/tools/replies", r.ID)

		fails.Store(false)
		letters, err := cfg.Stream.Letters(t.Context(), "", 10)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.NoError(t, cfg.Stream.Settle(t.Context(), letters[0].GetId(), streambridge.Retry))
		require.Equal(t, "-012", result[string](t, end))
		require.EqualValues(t, 1, ran[0].Load())
		require.EqualValues(t, 1, ran[1].Load())
		require.EqualValues(t, 2, ran[2].Load(), "only the reply is replayed")
	})
}

// An emitted id that is taken by other work sets the stage aside, and nothing wedges.
func TestAnEmittedIDThatIsTaken(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		next := "{" + b.names.Stream + "}:next"
		agents := actors.Agents{"stage": actors.Func(func(c *actors.Context, text string) (string, error) {
			return text, actors.Emit(c, next, actors.NewTask{Type: "next", ID: "one", Payload: text})
		})}
		rt, _ := start(t, b.config("n1", agents))
		require.Equal(t, "x", result[string](t, submit(t, rt.Client(), actors.NewTask{Type: "stage", Payload: "x"})))
		require.Equal(t, "x", result[string](t, submit(t, rt.Client(), actors.NewTask{Type: "stage", Payload: "x"})))
		other := submit(t, rt.Client(), actors.NewTask{Type: "stage", Payload: "other"})
		_, err := actors.Result[string](t.Context(), other)
		require.ErrorContains(t, err, "misuse")
		require.ErrorContains(t, err, "id taken by other work")
		require.ErrorContains(t, err, next)
	})
}
