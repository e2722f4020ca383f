package actors_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

type Question struct{ Text string }

type Answer struct{ Text string }

// Chat is an agent that asks a model.
type Chat struct {
	Model func(ctx context.Context, prompt string) (string, error)
}

func (a *Chat) Handle(c *actors.Context, q Question) (Answer, error) {
	text, err := actors.Step(c, "ask", func(s actors.StepContext) (string, error) {
		return a.Model(s, q.Text)
	}, actors.Retries(5), actors.Timeout(5*time.Minute))
	if err != nil {
		return Answer{}, err
	}
	return Answer{text}, nil
}

func ExampleOf() {
	model := func(context.Context, string) (string, error) { return "42", nil }
	agents := actors.Agents{
		"chat": actors.Of(func() *Chat { return &Chat{Model: model} }, actors.On((*Chat).Handle)).
			With(actors.Retries(3), actors.MaxCrashes(2)),
	}
	fmt.Println(agents.Validate())
	show(agents, "chat", `{"Text":"what is 6 × 7?"}`)
	// Output:
	// <nil>
	// COMPLETED {"Text":"42"}
}

func ExampleFunc() {
	hello := actors.Func(func(c *actors.Context, name string) (string, error) {
		return actors.Step(c, "greet", func(actors.StepContext) (string, error) { return "hi " + name, nil })
	})
	show(actors.Agents{"hello": hello}, "hello", `"Ada"`)
	// Output:
	// COMPLETED "hi Ada"
}

func ExampleHandler_As() {
	first := func(_ *Chat, _ *actors.Context, m Question) (string, error) { return "first: " + m.Text, nil }
	second := func(_ *Chat, _ *actors.Context, m string) (string, error) { return "second: " + m, nil }
	agents := actors.Agents{"chat": actors.Of(func() *Chat { return &Chat{} }, actors.On(first), actors.On(second).As("v2"))}
	show(agents, "chat", `{"Text":"hi"}`)
	show(agents, "chat/v2", `"hi"`)
	show(agents, "chat/v3", `"hi"`)
	// Output:
	// COMPLETED "first: hi"
	// COMPLETED "second: hi"
	// REJECTED the agent of "chat/v3" has no handler "v3"
}

// A step that is done is not run again by the next activation.
func ExampleStep() {
	asked := 0
	agent := actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
		plan, err := actors.Step(c, "plan", func(actors.StepContext) (string, error) {
			asked++
			return "refund 500", nil
		})
		if err != nil {
			return "", err
		}
		return actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
			if asked++; asked == 2 {
				return "", errors.New("bank is closed")
			}
			return plan + " under " + s.Key, nil
		})
	})
	agents := actors.Agents{"refund": agent}
	show(agents, "refund", "")
	show(agents, "refund", "")
	fmt.Println("steps run:", asked)
	// Output:
	// RETRY step "pay": bank is closed
	// COMPLETED "refund 500 under order-42:pay"
	// steps run: 3
}

// A crash between an effect and its checkpoint is settled by looking the key up.
func ExampleVerify() {
	paid := map[string]string{"order-42:pay": "receipt-7"} // it happened; then the process died
	agents := actors.Agents{"refund": actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
		return actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
			paid[s.Key] = "receipt-8"
			return paid[s.Key], nil
		}, actors.Verify(func(_ context.Context, key string) (string, bool, error) {
			receipt, ok := paid[key]
			return receipt, ok, nil
		}))
	})}
	exampleStore.preset(messages.Step{Name: "pay", Status: messages.StepIntent, Attempts: 1})
	show(agents, "refund", "")
	// Output:
	// COMPLETED "receipt-7"
}

// An effect that nobody can be asked about waits for a person.
func ExampleUnrepeatable() {
	agents := actors.Agents{"mail": actors.Func(func(c *actors.Context, _ actors.None) (actors.None, error) {
		return actors.Step(c, "send", func(actors.StepContext) (actors.None, error) {
			return nil, errors.New("connection reset")
		}, actors.Unrepeatable())
	})}
	show(agents, "mail", "")
	// Output:
	// PARKED in doubt: step send: connection reset
}

func ExampleParallel() {
	agents := actors.Agents{"tools": actors.Func(func(c *actors.Context, calls []string) ([]string, error) {
		return actors.Parallel(c, 4, calls, func(c *actors.Context, call string) (string, error) {
			return actors.Step(c, "tool-"+call, func(actors.StepContext) (string, error) { return call + " done", nil })
		})
	})}
	show(agents, "tools", `["search","read"]`)
	// Output:
	// COMPLETED ["search done","read done"]
}

// An approval: the handler waits without holding anything, and is called again when there is an answer.
func ExampleAwait() {
	agents := actors.Agents{"refund": actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
		ok, err := actors.Await[bool](c, "approve", 24*time.Hour)
		switch {
		case errors.Is(err, actors.ErrTimeout):
			return "expired", nil
		case err != nil:
			return "", err // parked
		case !ok:
			return "declined", nil
		}
		return "refunded", nil
	})}
	show(agents, "refund", "")
	answer("approve", true) // weir send order-42 --name approve --payload true
	show(agents, "refund", "")

	show(agents, "refund", "")
	pass(24 * time.Hour)
	show(agents, "refund", "")
	// Output:
	// PARKED waits for message "approve"
	// COMPLETED "refunded"
	// PARKED waits for message "approve"
	// COMPLETED "expired"
}

func ExampleFirst() {
	agents := actors.Agents{"refund": actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
		yes, no := actors.Expect[string]("approve"), actors.Expect[string]("reject")
		if err := actors.First(c, "decision", actors.NoTimeout, yes, no); err != nil {
			return "", err
		}
		if why, ok := no.Get(); ok {
			return "rejected: " + why, nil
		}
		by, _ := yes.Get()
		return "approved by " + by, nil
	})}
	show(agents, "refund", "")
	answer("reject", "no receipt")
	answer("approve", "Ada") // too late: the choice is made
	show(agents, "refund", "")
	// Output:
	// PARKED waits in "decision" for first of "approve" "reject"
	// COMPLETED "rejected: no receipt"
}

// Four eyes: two messages of one name.
func ExampleAll() {
	agents := actors.Agents{"refund": actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
		one, two := actors.Expect[string]("approve"), actors.Expect[string]("approve").Nth(2)
		if err := actors.All(c, "both", 24*time.Hour, one, two); err != nil {
			return "", err
		}
		a, _ := one.Get()
		b, _ := two.Get()
		return "approved by " + a + " and " + b, nil
	})}
	answer("approve", "Ada")
	show(agents, "refund", "")
	answer("approve", "Grace")
	show(agents, "refund", "")
	// Output:
	// PARKED waits in "both" for all of "approve" "approve" (2)
	// COMPLETED "approved by Ada and Grace"
}

func ExampleSleep() {
	agents := actors.Agents{"reminder": actors.Func(func(c *actors.Context, _ actors.None) (string, error) {
		if err := actors.Sleep(c, "a-week", 7*24*time.Hour); err != nil {
			return "", err
		}
		return "reminded", nil
	})}
	show(agents, "reminder", "")
	pass(7 * 24 * time.Hour)
	show(agents, "reminder", "")
	// Output:
	// PARKED sleeps for 168h0m0s in "a-week"
	// COMPLETED "reminded"
}

// Children look things up side by side, on any node.
func ExampleJoin() {
	agents := actors.Agents{"research": actors.Func(func(c *actors.Context, topics []string) ([]string, error) {
		kids := make([]*actors.Child[string], len(topics))
		for i, t := range topics {
			kids[i] = actors.Spawn[string](c, "part-"+t, actors.NewTask{Type: "search", Payload: t})
		}
		return actors.Join(c, "found", time.Hour, kids, actors.KeepGoing())
	})}
	show(agents, "research", `["go","redis"]`)
	childEnds("part-go", "a language")
	childEnds("part-redis", "a server")
	show(agents, "research", `["go","redis"]`)
	// Output:
	// PARKED waits in "found" for 2 children
	// spawned order-42/part-go
	// spawned order-42/part-redis
	// COMPLETED ["a language","a server"]
}

// The next stage of a pipeline gets its task with the commit that completes this one.
func ExampleEmit() {
	agents := actors.Agents{"ask": actors.Func(func(c *actors.Context, question string) (actors.None, error) {
		plan, err := actors.Step(c, "plan", func(actors.StepContext) (string, error) { return "search " + question, nil })
		if err != nil {
			return nil, err
		}
		return nil, actors.Emit(c, "{agent}:tools", actors.NewTask{Type: "use", Payload: plan})
	})}
	show(agents, "ask", `"weir"`)
	// Output:
	// COMPLETED
	// emitted order-42/tools to {agent}:tools
}

// What a handler returns decides what becomes of the task.
func ExampleReject() {
	for _, err := range []error{
		errors.New("no route to host"),
		actors.Retry(time.Minute, errors.New("warming up")),
		actors.RateLimited(20*time.Second, errors.New("slow down")),
		actors.Reject(errors.New("no such order")),
	} {
		exampleStore = &memory{}
		show(actors.Agents{"a": actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, err })}, "a", "")
	}
	// Output:
	// RETRY no route to host
	// RETRY retry after 1m0s: warming up
	// RETRY rate limited for 20s: slow down
	// REJECTED rejected: no such order
}

func ExampleFromHTTP() {
	limited := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"20"}}}
	fmt.Println(actors.FromHTTP(limited, nil))
	fmt.Println(actors.FromHTTP(&http.Response{StatusCode: http.StatusBadGateway}, nil))
	fmt.Println(actors.FromHTTP(&http.Response{StatusCode: http.StatusBadRequest}, errors.New("unknown model")))
	// Output:
	// rate limited for 20s: HTTP 429 Too Many Requests
	// retry: HTTP 502 Bad Gateway
	// rejected: unknown model
}

// The options of official clients carry the response in their errors.
func ExampleClassify() {
	closed := errors.New("account closed")
	agent := actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, closed }).
		With(actors.Classify(func(err error) error {
			if errors.Is(err, closed) {
				return actors.Reject(err)
			}
			return err
		}))
	show(actors.Agents{"a": agent}, "a", "")
	// Output:
	// REJECTED rejected: account closed
}

func ExampleKey() {
	fmt.Println(actors.Key("order-42", "", "pay"))
	fmt.Println(actors.Key("order:42", "line 1", "pay"))
	// Output:
	// order-42:pay
	// order%3A42:line 1:pay
}

func ExampleRetryPolicy_Delay() {
	p := actors.RetryPolicy{Max: 5, Base: time.Second, Cap: 5 * time.Second}
	for n := 1; n <= 4; n++ {
		fmt.Println(p.Delay(n, 1))
	}
	// Output:
	// 1s
	// 2s
	// 4s
	// 5s
}

func ExampleEncode() {
	contentType, payload, _ := actors.Encode(Question{"why?"})
	fmt.Println(contentType, string(payload))
	contentType, _, _ = actors.Encode(&messages.Entry{Id: "1-1"})
	fmt.Println(contentType)
	_, _, err := actors.Encode(make(chan int))
	fmt.Println(err)
	// Output:
	// application/json {"Text":"why?"}
	// application/protobuf; proto=weir.v1.Entry
	// misuse: chan int is a chan, which cannot be stored
}

func ExampleClient_Submit() {
	client, err := actors.NewClient(exampleDesk, actors.Names{Stream: "agent:tasks"}) // redisstate.New(rdb)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	task, err := client.Submit(ctx, actors.NewTask{Type: "chat", ID: "q-1", Payload: Question{"why?"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := actors.Result[Answer](ctx, task)
	fmt.Println(task.ID, answer.Text, err)
	_, err = client.Submit(ctx, actors.NewTask{Type: "nothing/at/all"})
	fmt.Println(errors.Is(err, actors.ErrInvalid))
	// Output:
	// q-1 because <nil>
	// true
}
