package supervision_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/supervision"
)

// bank counts its payments by key.
type bank struct {
	mu   sync.Mutex
	paid map[string]int
}

func (b *bank) pay(key string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paid[key]++
	return "r-" + key
}

func (b *bank) find(_ context.Context, key string) (string, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return "r-" + key, b.paid[key] > 0, nil
}

func (b *bank) payments(key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paid[key]
}

// refunds wait for people in several ways; how long is the message.
func refunds(b *bank) actors.Agents {
	approve := func(c *actors.Context, wait time.Duration) (string, error) {
		_, err := actors.Step(c, "plan", func(actors.StepContext) (int, error) { return 500, nil })
		if err != nil {
			return "", err
		}
		ok, err := actors.Await[bool](c, "approve", wait)
		switch {
		case errors.Is(err, actors.ErrTimeout):
			return "expired", nil
		case err != nil:
			return "", err
		case !ok:
			return "declined", nil
		}
		return actors.Step(c, "pay", func(s actors.StepContext) (string, error) { return b.pay(s.Key), nil }, actors.Verify(b.find))
	}
	either := func(c *actors.Context, wait time.Duration) (string, error) {
		yes, no := actors.Expect[string]("approve"), actors.Expect[string]("reject")
		if err := actors.First(c, "decision", wait, yes, no); err != nil {
			return "", err
		}
		if why, ok := no.Get(); ok {
			return "rejected: " + why, nil
		}
		by, _ := yes.Get()
		return "approved by " + by, nil
	}
	fourEyes := func(c *actors.Context, wait time.Duration) (string, error) {
		one, two := actors.Expect[string]("approve"), actors.Expect[string]("approve").Nth(2)
		if err := actors.All(c, "both", wait, one, two); err != nil {
			return "", err
		}
		a, _ := one.Get()
		b, _ := two.Get()
		return a + " and " + b, nil
	}
	branches := func(c *actors.Context, wait time.Duration) ([]string, error) {
		return actors.Parallel(c, 2, []string{"tool", "human"}, func(c *actors.Context, k string) (string, error) {
			if k == "human" {
				return actors.Await[string](c, "ask", wait)
			}
			return actors.Step(c, "tool", func(s actors.StepContext) (string, error) { return b.pay(s.Key), nil })
		})
	}
	return actors.Agents{
		"refund": actors.Func(approve), "either": actors.Func(either), "four": actors.Func(fourEyes), "branches": actors.Func(branches),
	}
}

// waiting waits until the task holds nothing.
func waiting(t *testing.T, task *actors.Task) {
	t.Helper()
	inState(t, task, messages.State_STATE_WAITING)
}

func inState(t *testing.T, task *actors.Task, want messages.State) {
	t.Helper()
	require.Eventually(t, func() bool {
		r, err := task.Status(t.Context())
		return err == nil && len(r.Units) == 1 && r.Units[0].State == want
	}, 10*time.Second, 5*time.Millisecond, "%s is never %s", task.ID, actors.StateName(want))
}

func TestAnApproval(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		money := &bank{paid: map[string]int{}}
		rt, _ := start(t, b.config("n1", refunds(money)))
		c := rt.Client()

		yes := submit(t, c, actors.NewTask{Type: "refund", ID: "yes", Payload: time.Hour})
		no := submit(t, c, actors.NewTask{Type: "refund", ID: "no", Payload: time.Hour})
		never := submit(t, c, actors.NewTask{Type: "refund", ID: "never", Payload: 300 * time.Millisecond})
		waiting(t, yes)
		waiting(t, no)
		require.Eventually(t, func() bool {
			u, err := never.Status(t.Context())
			return err == nil && u.Units[0].State != messages.State_STATE_RUNNING && rt.Stats().Bridge.InFlight == 0
		}, 10*time.Second, 5*time.Millisecond, "what waits is in no PEL")

		require.NoError(t, yes.Send(t.Context(), "approve", true))
		require.ErrorIs(t, yes.Send(t.Context(), "approve", false), actors.ErrAnswered)
		require.NoError(t, no.Send(t.Context(), "approve", false))
		require.Equal(t, "r-yes:pay", result[string](t, yes))
		require.Equal(t, "declined", result[string](t, no))
		require.Equal(t, "expired", result[string](t, never))
		require.Equal(t, 1, money.payments("yes:pay"))

		require.ErrorIs(t, never.Send(t.Context(), "approve", true), actors.ErrEnded)
		require.Zero(t, money.payments("never:pay"))
		r, err := yes.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, actors.Ledger{}, r.Units[0].Ledger, "waiting costs no attempt")
	})
}

// A message before the task, before the wait, twice, and after the time was over.
func TestMessagesAtAnyTime(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rt, _ := start(t, b.config("n1", refunds(&bank{paid: map[string]int{}})))
		c := rt.Client()
		require.NoError(t, c.Task("early").Send(t.Context(), "approve", true), "kept for a task that is not known yet")
		early := submit(t, c, actors.NewTask{Type: "refund", ID: "early", Payload: time.Hour})
		require.Equal(t, "r-early:pay", result[string](t, early))

		four := submit(t, c, actors.NewTask{Type: "four", ID: "four", Payload: time.Hour})
		waiting(t, four)
		require.NoError(t, four.Send(t.Context(), "approve", "ada", actors.MessageID("m1")))
		require.ErrorIs(t, four.Send(t.Context(), "approve", "ada", actors.MessageID("m1")), actors.ErrAnswered)
		require.Never(t, func() bool {
			r, err := four.Status(t.Context())
			return err != nil || r.Units[0].State != messages.State_STATE_WAITING
		}, 300*time.Millisecond, 10*time.Millisecond, "one message twice is one")
		require.NoError(t, four.Send(t.Context(), "approve", "grace", actors.MessageID("m2")))
		require.Equal(t, "ada and grace", result[string](t, four))

		either := submit(t, c, actors.NewTask{Type: "either", ID: "either", Payload: time.Hour})
		waiting(t, either)
		require.NoError(t, either.Send(t.Context(), "reject", "no receipt"))
		require.Equal(t, "rejected: no receipt", result[string](t, either))
	})
}

// One branch waits for a person: the other has run, and runs no second time.
func TestABranchThatWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		money := &bank{paid: map[string]int{}}
		rt, _ := start(t, b.config("n1", refunds(money)))
		task := submit(t, rt.Client(), actors.NewTask{Type: "branches", ID: "t", Payload: time.Hour})
		waiting(t, task)
		require.NoError(t, task.Send(t.Context(), "ask", "yes"))
		require.Equal(t, []string{"r-t:tool", "yes"}, result[[]string](t, task))
		require.Equal(t, 1, money.payments("t:tool"))
	})
}

// Nodes come and go while a task waits, and one dies with the answer in hand.
func TestAnApprovalOutlivesItsNodes(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		money := &bank{paid: map[string]int{}}
		first, stop := start(t, b.config("n1", refunds(money)))
		task := submit(t, first.Client(), actors.NewTask{Type: "refund", ID: "t", Payload: time.Hour})
		waiting(t, task)
		stop()
		_, state := b.node()
		outside, err := actors.NewClient(state, b.names)
		require.NoError(t, err)
		task = outside.Task("t")
		require.NoError(t, task.Send(t.Context(), "approve", true), "nobody runs")

		// The node that takes the answer is cut off before it has paid.
		began := make(chan struct{}, 1)
		agents := refunds(money)
		agents["refund"] = actors.Func(func(c *actors.Context, wait time.Duration) (string, error) {
			if _, err := actors.Await[bool](c, "approve", wait); err != nil {
				return "", err
			}
			return actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
				began <- struct{}{}
				<-s.Done()
				return "", s.Err()
			}, actors.Verify(money.find))
		})
		killed, err := supervision.New(b.config("n2", agents))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- killed.Run(context.Background()) }()
		select {
		case <-began:
		case <-time.After(10 * time.Second):
			t.Fatal("the answer wakes nobody")
		}
		now, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, killed.Drain(now))
		<-ended

		start(t, b.config("n3", refunds(money)))
		require.Equal(t, "r-t:pay", result[string](t, task))
		require.Equal(t, 1, money.payments("t:pay"))
	})
}

// Many wait at once, all nodes are replaced, answers come in any order, some twice, some never.
func TestManyApprovals(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		const all = 200
		money := &bank{paid: map[string]int{}}
		first, stop := start(t, b.config("n1", refunds(money)))
		var tasks []*actors.Task
		for i := range all {
			wait := time.Hour
			if i%20 == 0 {
				wait = 2 * time.Second
			}
			tasks = append(tasks, submit(t, first.Client(), actors.NewTask{Type: "refund", ID: fmt.Sprint("t", i), Payload: wait}))
		}
		for _, task := range tasks {
			waiting(t, task)
		}
		stop()
		second, _ := start(t, b.config("n2", refunds(money)))
		for i := range all {
			i = i * 7 % all
			task := second.Client().Task(tasks[i].ID)
			if i%20 == 0 {
				continue
			}
			require.NoError(t, task.Send(t.Context(), "approve", i%2 == 0))
			if i%10 == 1 {
				require.Error(t, task.Send(t.Context(), "approve", i%2 != 0))
			}
		}
		for i, task := range tasks {
			want := map[bool]string{true: "r-" + task.ID + ":pay", false: "declined"}[i%2 == 0]
			if i%20 == 0 {
				want = "expired"
			}
			require.Equal(t, want, result[string](t, task))
			require.Equal(t, map[bool]int{true: 1}[i%2 == 0 && i%20 != 0], money.payments(task.ID+":pay"))
		}
	})
}

// A step's next attempt and a wait side by side: an answer that comes meanwhile is seen by the attempt, and wakes nobody.
func TestARetryBesideAWait(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := actors.Agents{"both": actors.Func(func(c *actors.Context, _ actors.None) ([]string, error) {
			return actors.Parallel(c, 2, []string{"step", "ask"}, func(c *actors.Context, k string) (string, error) {
				if k == "ask" {
					return actors.Await[string](c, k, time.Hour)
				}
				return actors.Step(c, k, func(s actors.StepContext) (string, error) {
					if s.Attempt == 1 {
						return "", actors.Retry(1200*time.Millisecond, errors.New("not yet"))
					}
					return "second", nil
				}, actors.Retries(1))
			})
		})}
		rt, _ := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "both", ID: "t"})
		inState(t, task, messages.State_STATE_RETRYING)
		require.NoError(t, task.Send(t.Context(), "ask", "yes"))
		require.Equal(t, []string{"second", "yes"}, result[[]string](t, task))
		require.EqualValues(t, 2, rt.Stats().Began)

		late := submit(t, rt.Client(), actors.NewTask{Type: "both", ID: "late"})
		waiting(t, late)
		require.NoError(t, late.Send(t.Context(), "ask", "at last"))
		require.Equal(t, []string{"second", "at last"}, result[[]string](t, late))
	})
}

// A step in doubt beside a wait: the answer is kept, and only a person brings the task back.
func TestDoubtBesideAWait(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := actors.Agents{"both": actors.Func(func(c *actors.Context, _ actors.None) ([]string, error) {
			return actors.Parallel(c, 2, []string{"mail", "ask"}, func(c *actors.Context, k string) (string, error) {
				if k == "ask" {
					return actors.Await[string](c, k, time.Hour)
				}
				return actors.Step(c, k, func(actors.StepContext) (string, error) { return "", errors.New("reset") }, actors.Unrepeatable())
			})
		})}
		rt, _ := start(t, b.config("n1", agents))
		task := submit(t, rt.Client(), actors.NewTask{Type: "both", ID: "t"})
		waiting(t, task)
		require.NoError(t, task.Send(t.Context(), "ask", "yes"))
		require.Never(t, func() bool {
			r, err := task.Status(t.Context())
			return err != nil || r.Units[0].State != messages.State_STATE_WAITING
		}, 400*time.Millisecond, 10*time.Millisecond)
		r, err := task.Status(t.Context())
		require.NoError(t, err)
		require.Empty(t, r.Units[0].Waits, "the wait is over")
		require.Contains(t, r.Units[0].Error, "in doubt: step mail")
	})
}

// A reminder in a moment: asleep, the task is nowhere.
func TestASleep(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		agents := actors.Agents{"nap": actors.Func(func(c *actors.Context, d time.Duration) (int, error) {
			for i := range 3 {
				if err := actors.Sleep(c, fmt.Sprint("nap-", i), d); err != nil {
					return i, err
				}
			}
			return 3, nil
		})}
		rt, _ := start(t, b.config("n1", agents))
		began := time.Now()
		task := submit(t, rt.Client(), actors.NewTask{Type: "nap", ID: "t", Payload: 200 * time.Millisecond})
		require.Equal(t, 3, result[int](t, task))
		require.GreaterOrEqual(t, time.Since(began), 600*time.Millisecond)
	})
}

// A producer in any language answers with a plain XADD.
func TestAMessageFromTheStream(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		rt, _ := start(t, b.config("n1", refunds(&bank{paid: map[string]int{}})))
		refused := make(chan supervision.MessageRefused, 9)
		defer rt.Subscribe(func(e supervision.Event) {
			if r, ok := e.(supervision.MessageRefused); ok {
				refused <- r
			}
		})()
		_, producer := b.node()
		require.NoError(t, producer.Bind(b.names.WithDefaults()))
		n := 0
		xadd := func(kv ...string) {
			t.Helper()
			var fields []messages.Pair
			for i := 0; i < len(kv); i += 2 {
				fields = append(fields, messages.Pair{Name: kv[i], Value: kv[i+1]})
			}
			n++
			_, err := producer.Submit(t.Context(), []actors.Submission{{ID: fmt.Sprint("xadd ", n), Fields: fields}})
			require.NoError(t, err)
		}

		xadd("task_id", "four", "message", "approve", "event_id", "m1", "payload", `"ada"`) // it is early
		task := submit(t, rt.Client(), actors.NewTask{Type: "four", ID: "four", Payload: time.Hour})
		waiting(t, task)
		xadd("task_id", "four", "message", "approve", "event_id", "m1", "payload", `"ada"`)
		r := <-refused
		require.Equal(t, messages.TakenBefore, r.Why)
		require.Equal(t, "m1", r.MessageID)
		xadd("task_id", "four", "message", "approve", "event_id", "m2", "payload", `"grace"`)
		got, err := actors.Result[string](t.Context(), task)
		require.NoError(t, err)
		require.Equal(t, "ada and grace", got)

		xadd("task_id", "four", "message", "approve", "event_id", "m3", "payload", `"eve"`)
		r = <-refused
		require.Equal(t, messages.TaskEnded, r.Why)
		require.Equal(t, "four", r.TaskID)
		require.Equal(t, "approve", r.Message)
		record, err := task.Status(t.Context())
		require.NoError(t, err)
		last := record.Log[len(record.Log)-1]
		require.Equal(t, "refused", last.What)
		require.Equal(t, "message approve: the task has ended", last.Detail)
		require.Eventually(t, func() bool { return rt.Stats().Bridge.InFlight == 0 }, 10*time.Second, 5*time.Millisecond)
		require.EqualValues(t, 4, rt.Stats().Bridge.Messages)
	})
}
