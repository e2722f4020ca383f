package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
)

// Agents as their authors write them, each with the test that its author would write.

// A refund: a plan by a model, an approval by a person, a payment that must not happen twice.

type (
	refundRequested struct{ Text string }
	refundPlan      struct{ Cents int }
	approval        struct {
		Granted bool
		By      string
	}
	rejection struct{ Why string }
	receipt   struct{ ID string }
)

type refundAgent struct {
	plan func(ctx context.Context, text string) (refundPlan, error)
	paid map[string]int
}

func (a *refundAgent) pay(key string) (receipt, error) { a.paid[key]++; return receipt{"r1"}, nil }

func (a *refundAgent) findByKey(_ context.Context, key string) (receipt, bool, error) {
	return receipt{"r1"}, a.paid[key] > 0, nil
}

func (a *refundAgent) Handle(c *actors.Context, m refundRequested) (string, error) {
	if _, err := actors.Step(c, "plan", func(s actors.StepContext) (refundPlan, error) { return a.plan(s, m.Text) }, actors.Retries(5)); err != nil {
		return "", err
	}
	ok, err := actors.Await[approval](c, "approve", 24*time.Hour)
	switch {
	case errors.Is(err, actors.ErrTimeout):
		return "expired", nil
	case err != nil:
		return "", err
	case !ok.Granted:
		return "declined", nil
	}
	r, err := actors.Step(c, "pay", func(s actors.StepContext) (receipt, error) { return a.pay(s.Key) }, actors.Verify(a.findByKey))
	if err != nil {
		return "", err
	}
	return "refunded " + r.ID, nil
}

// Either waits for one of two messages.
func (a *refundAgent) Either(c *actors.Context, _ refundRequested) (string, error) {
	yes, no := actors.Expect[approval]("approve"), actors.Expect[rejection]("reject")
	err := actors.First(c, "decision", 24*time.Hour, yes, no)
	if errors.Is(err, actors.ErrTimeout) {
		return "expired", nil
	}
	if err != nil {
		return "", err
	}
	if r, ok := no.Get(); ok {
		return "rejected: " + r.Why, nil
	}
	by, _ := yes.Get()
	return "approved by " + by.By, nil
}

// FourEyes waits for two.
func (a *refundAgent) FourEyes(c *actors.Context, _ refundRequested) (string, error) {
	one, two := actors.Expect[approval]("approve").Nth(1), actors.Expect[approval]("approve").Nth(2)
	if err := actors.All(c, "both", 24*time.Hour, one, two); err != nil {
		return "", err
	}
	a1, _ := one.Get()
	a2, _ := two.Get()
	return "approved by " + a1.By + " and " + a2.By, nil
}

func newRefund() *refundAgent {
	return &refundAgent{
		plan: func(context.Context, string) (refundPlan, error) { return refundPlan{500}, nil }, paid: map[string]int{},
	}
}

func TestRefundApproved(t *testing.T) {
	a := newRefund()
	x := actorstest.New(t, actorstest.Message("approve", approval{Granted: true}))
	r, err := actorstest.Call(x, a.Handle, refundRequested{"broken"})
	require.NoError(t, err)
	require.Equal(t, "refunded r1", r)
	require.Equal(t, map[string]int{"task-1:pay": 1}, a.paid)
}

func TestRefundDeclinedAndExpired(t *testing.T) {
	a := newRefund()
	r, err := actorstest.Call(actorstest.New(t, actorstest.Message("approve", approval{})), a.Handle, refundRequested{})
	require.NoError(t, err)
	require.Equal(t, "declined", r)
	r, err = actorstest.Call(actorstest.New(t), a.Handle, refundRequested{})
	require.NoError(t, err)
	require.Equal(t, "expired", r)
	require.Empty(t, a.paid)
}

// The crash between effect and checkpoint.
func TestRefundCrashAfterPay(t *testing.T) {
	a := newRefund()
	x := actorstest.New(t, actorstest.Message("approve", approval{Granted: true}))
	for range 2 {
		_, err := actorstest.Call(x, a.Handle, refundRequested{})
		require.NoError(t, err)
		x.Forget("pay")
	}
	require.Equal(t, 1, a.paid["task-1:pay"])
}

func TestRefundFirstAndAll(t *testing.T) {
	a := newRefund()
	r, err := actorstest.Call(actorstest.New(t, actorstest.Message("reject", rejection{"no"})), a.Either, refundRequested{})
	require.NoError(t, err)
	require.Equal(t, "rejected: no", r)

	x := actorstest.New(t) // both have come: the first counts
	x.Send("approve", approval{By: "a"})
	x.Send("reject", rejection{"no"})
	r, err = actorstest.Call(x, a.Either, refundRequested{})
	require.NoError(t, err)
	require.Equal(t, "approved by a", r)

	x = actorstest.New(t)
	x.Send("approve", approval{By: "a"})
	x.Send("approve", approval{By: "b"})
	r, err = actorstest.Call(x, a.FourEyes, refundRequested{})
	require.NoError(t, err)
	require.Equal(t, "approved by a and b", r)

	_, err = actorstest.Call(actorstest.New(t, actorstest.Message("approve", approval{By: "a"})), a.FourEyes, refundRequested{})
	require.ErrorIs(t, err, actors.ErrTimeout, "one is not enough")
}

// A tool loop: an unknown number of model turns and tool calls, one of which asks a person.

type (
	toolCall struct{ ID, Name, Args string }
	toolMsg  struct {
		Role, Text, CallID string
		Calls              []toolCall
	}
)

type toolAgent struct {
	model func(ctx context.Context, talk []toolMsg) (toolMsg, error)
	tools map[string]func(ctx context.Context, args string) (string, error)
}

func (a *toolAgent) Handle(c *actors.Context, question string) (string, error) {
	talk := []toolMsg{{Role: "user", Text: question}}
	for turn := range 50 {
		said, err := actors.Step(c, fmt.Sprintf("model-%d", turn), func(s actors.StepContext) (toolMsg, error) {
			return a.model(s, talk)
		}, actors.Retries(5), actors.Timeout(5*time.Minute))
		if err != nil {
			return "", err
		}
		if talk = append(talk, said); len(said.Calls) == 0 {
			return said.Text, nil
		}
		got, err := actors.Parallel(c, 4, said.Calls, func(c *actors.Context, call toolCall) (toolMsg, error) {
			return a.use(c, fmt.Sprintf("tool-%d-%s", turn, call.ID), call)
		})
		if err != nil {
			return "", err
		}
		talk = append(talk, got...)
	}
	return "", actors.Reject(errors.New("no answer after 50 turns"))
}

func (a *toolAgent) use(c *actors.Context, name string, call toolCall) (toolMsg, error) {
	if call.Name == "ask_human" {
		text, err := actors.Await[string](c, name, 24*time.Hour)
		if errors.Is(err, actors.ErrTimeout) {
			return toolMsg{Role: "tool", CallID: call.ID, Text: "nobody answered"}, nil
		}
		return toolMsg{Role: "tool", CallID: call.ID, Text: text}, err
	}
	out, err := actors.Step(c, name, func(s actors.StepContext) (string, error) {
		tool, ok := a.tools[call.Name]
		if !ok {
			return "error: no tool " + call.Name, nil // for the model to read: a result, not a failure
		}
		return tool(s, call.Args)
	}, actors.Retries(2))
	if gone, ok := errors.AsType[*actors.StepError](err); ok {
		return toolMsg{Role: "tool", CallID: call.ID, Text: "error: " + gone.Err.Error()}, nil
	}
	return toolMsg{Role: "tool", CallID: call.ID, Text: out}, err
}

func TestToolLoop(t *testing.T) {
	calls, added := 0, 0
	a := &toolAgent{
		model: func(_ context.Context, talk []toolMsg) (toolMsg, error) {
			if calls++; talk[len(talk)-1].Role == "user" {
				return toolMsg{Role: "assistant", Calls: []toolCall{{ID: "a", Name: "add", Args: "1,2"}, {ID: "h", Name: "ask_human"}, {ID: "z", Name: "nope"}}}, nil
			}
			return toolMsg{Role: "assistant", Text: talk[2].Text + "/" + talk[3].Text + "/" + talk[4].Text}, nil
		},
		tools: map[string]func(context.Context, string) (string, error){
			"add": func(context.Context, string) (string, error) { added++; return "3", nil },
		},
	}
	got, err := actorstest.Call(actorstest.New(t, actorstest.Message("tool-0-h", "yes")), a.Handle, "1+2?")
	require.NoError(t, err)
	require.Equal(t, "3/yes/error: no tool nope", got)
	require.Equal(t, 2, calls)
	require.Equal(t, 1, added)

	got, err = actorstest.Call(actorstest.New(t), a.Handle, "1+2?")
	require.NoError(t, err)
	require.Equal(t, "3/nobody answered/error: no tool nope", got)
}

// Research: a question is split, children look things up, and what they found is joined.

type finding struct{ Source, Text string }

func research(c *actors.Context, question string) (string, error) {
	parts, err := actors.Step(c, "split", func(actors.StepContext) ([]string, error) { return []string{"a", "b", "c"}, nil })
	if err != nil {
		return "", err
	}
	kids := make([]*actors.Child[finding], len(parts))
	for i, p := range parts {
		kids[i] = actors.Spawn[finding](c, fmt.Sprintf("part-%d", i), actors.NewTask{Type: "search", Payload: question + p})
	}
	if _, err := actors.Join(c, "found", time.Hour, kids, actors.KeepGoing()); err != nil {
		return "", err
	}
	return actors.Step(c, "write", func(actors.StepContext) (text string, err error) {
		for _, k := range kids {
			if f, ok, err := k.Get(); ok && err == nil {
				text += f.Text
			}
		}
		return text, nil
	})
}

func TestResearch(t *testing.T) {
	x := actorstest.New(t, actorstest.Result("part-0", finding{Text: "0"}), actorstest.Result("part-1", finding{Text: "1"}),
		actorstest.Failure("part-2", "no network"))
	r, err := actorstest.Call(x, research, "why ")
	require.NoError(t, err)
	require.Equal(t, "01", r)
	require.Len(t, x.Spawned, 3)
	require.Equal(t, "task-1/part-2", x.Spawned[2].ID)
	q, err := actors.Decode[string](x.Spawned[2].Payload.ContentType, x.Spawned[2].Payload.Bytes)
	require.NoError(t, err)
	require.Equal(t, "why c", q)
}

// A chat: one task, many messages, an end after a day of silence.

type chatTurn struct{ Who, Text string }

func chat(model func(talk []chatTurn) chatTurn) func(*actors.Context, chatTurn) (int, error) {
	return func(c *actors.Context, first chatTurn) (int, error) {
		talk := []chatTurn{first}
		for n := 1; ; n++ {
			reply, err := actors.Step(c, fmt.Sprintf("reply-%d", n), func(s actors.StepContext) (chatTurn, error) {
				t := model(talk)
				s.Publish([]byte(t.Text))
				return t, nil
			})
			if err != nil {
				return 0, err
			}
			user := actors.Expect[chatTurn]("user").Nth(n)
			err = actors.First(c, fmt.Sprintf("user-%d", n), 24*time.Hour, user)
			if errors.Is(err, actors.ErrTimeout) {
				return n, nil
			}
			if err != nil {
				return 0, err
			}
			said, _ := user.Get()
			talk = append(talk, reply, said)
		}
	}
}

func TestChat(t *testing.T) {
	var heard []string
	h := chat(func(talk []chatTurn) chatTurn {
		heard = append(heard, talk[len(talk)-1].Text)
		return chatTurn{"model", fmt.Sprint(len(talk))}
	})
	x := actorstest.New(t, actorstest.Message("user", chatTurn{"u", "two"}), actorstest.Message("user", chatTurn{"u", "three"}))
	n, err := actorstest.Call(x, h, chatTurn{"u", "one"})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []string{"one", "two", "three"}, heard)
	require.Len(t, x.Published(), 3)
}

// A report each morning: of the day it is for, however late it runs.
func TestReport(t *testing.T) {
	monday := time.Date(2025, 6, 2, 7, 0, 0, 0, time.UTC)
	var from, to time.Time
	report := func(c *actors.Context, team string) (string, error) {
		day := c.Info().Due
		return actors.Step(c, "collect", func(actors.StepContext) (string, error) {
			from, to = day.AddDate(0, 0, -1), day
			return team, nil
		})
	}
	_, err := actorstest.Call(actorstest.New(t, actorstest.Due(monday)), report, "platform")
	require.NoError(t, err)
	require.True(t, monday.Equal(to))
	require.Equal(t, 24*time.Hour, to.Sub(from))
}

// A pipeline: each stage emits the next one's task.

type use struct{ Tool, Args string }

func planStage(c *actors.Context, text string) (actors.None, error) {
	u, err := actors.Step(c, "plan", func(actors.StepContext) (use, error) { return use{"search", text}, nil })
	if err != nil {
		return nil, err
	}
	return nil, actors.Emit(c, "{agent}:tools", actors.NewTask{Type: "use", Payload: u})
}

func TestPipeline(t *testing.T) {
	x := actorstest.New(t, actorstest.ID("order-1"))
	_, err := actorstest.Call(x, planStage, "why?")
	require.NoError(t, err)
	require.Len(t, x.Emitted, 1)
	e := x.Emitted[0]
	require.Equal(t, "{agent}:tools", e.Stream)
	require.Equal(t, "order-1/tools", e.ID)
	require.Equal(t, "use", e.Type)
	require.Equal(t, []actors.Field{{Name: "root", Value: "order-1"}}, e.Fields)

	// The next stage names the same root.
	x = actorstest.New(t, actorstest.ID(e.ID), actorstest.Fields(e.Fields...))
	_, err = actorstest.Call(x, func(c *actors.Context, _ use) (actors.None, error) {
		return nil, actors.Emit(c, "{agent}:replies", actors.NewTask{Type: "say", Payload: c.Info().Root})
	}, use{})
	require.NoError(t, err)
	require.Equal(t, "order-1/tools/replies", x.Emitted[0].ID)
	require.Equal(t, []actors.Field{{Name: "root", Value: "order-1"}}, x.Emitted[0].Fields)
}
