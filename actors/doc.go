// Package actors is what an author of agents imports: handlers and their steps, and a client that submits tasks and
// reads their results. Package supervision runs the agents. A program that only submits links neither an actor library
// nor telemetry.
//
// # An agent
//
// A task is a piece of work with an id. An agent is the behaviour behind its type: a Go value with a handler for each
// message. A handler is called once for an activation, and its effects are steps.
//
//	type Refund struct{ LLM LLM; Bank Bank }
//
//	func (a *Refund) Handle(c *actors.Context, m *pb.RefundRequested) (*pb.Reply, error) {
//		plan, err := actors.Step(c, "plan", func(s actors.StepContext) (*pb.Plan, error) {
//			return a.LLM.Plan(s, m.Text)
//		}, actors.Retries(5))
//		if err != nil {
//			return nil, err
//		}
//		receipt, err := actors.Step(c, "pay", func(s actors.StepContext) (*pb.Receipt, error) {
//			return a.Bank.Pay(s, s.Key, plan.Cents)
//		}, actors.Verify(a.Bank.FindByKey))
//		if err != nil {
//			return nil, err
//		}
//		return &pb.Reply{Text: "refunded " + receipt.Id}, nil
//	}
//
// It is registered under the name that entries carry as their type:
//
//	actors.Agents{"refund": actors.Of(newRefund, actors.On((*Refund).Handle))}
//
// # Code outside steps runs again
//
// When a process dies, a step waits for its next attempt, or a task is retried, the handler is called again from the top,
// on whichever node: a new activation. Steps that are done answer from their checkpoints without running; everything
// else runs again. So:
//
//   - Effects, clocks, random numbers and reads that may change belong into steps. Context is not a context.Context, so
//     that most calls do not compile outside of one.
//   - What a step finds out leaves it as its result, never by a captured variable.
//   - The way through the handler follows from its message and its steps' results alone.
//   - A step's name is its identity within the unit, not its position: unique in an activation, and the same in the next
//     one. Loops number their steps. A renamed step is a new one.
//   - [Context.Log] is silent below WARN while finished steps are replayed.
//
// [github.com/weir-run/weir/actors/actorstest] calls a handler in an ordinary test and runs it a second time from its
// checkpoints, which must agree.
//
// # Messages
//
// A message or a result is a pointer to a protobuf message (binary or protojson), any Go value that JSON keeps, [Raw]
// bytes, or [None]. Names route, types never do: an entry's type is "agent" or "agent/handler", a new version of a message is
// a new handler ([Handler.As]). What a type would lose is refused before anything runs ([Agents.Validate]); what only a
// value tells shows at once, since Step returns what was kept. Payloads that do not decode, or that name another protobuf
// message, become dead letters.
//
// # What an error means
//
//	any error           another attempt with the agent's delays, while its budget lasts (10 retries, 1 s to 10 min)
//	Retry(after, err)   the same, not before the given time
//	RateLimited(…)      another attempt, free of charge: the provider asked to wait
//	Reject(err)         never again: FAILED, and a dead letter
//	*StepError          a step is out of attempts: FAILED, unless the handler can do without
//	a panic             a crash: a fresh activation after a pause, from the last checkpoint
//
// [FromHTTP] makes them of a provider's answer, [Classify] of a client library's errors. [RetryPolicy], [Retries],
// [MaxCrashes], [MaxDeaths] and [MaxTimeouts] set the budget. A drain of the node costs nothing.
//
// ErrParked, ErrCancelled, ErrLeaseLost, ErrDraining and ErrMisuse from a durable call mean that this activation is over.
// Return them. From then on every durable call answers the same without acting, and what the handler returns is ignored:
// an author who drops the error loses nothing but is told, by a WARN in production and a failure in actorstest.
//
// # Effects
//
// Three kinds, by what happens when a process dies after the effect and before its result is kept:
//
//   - A plain step is repeatable: it runs again.
//   - A step with [Verify] is keyed: its function hands [StepContext.Key] over as an idempotency key, and the key is
//     looked up before anything runs again. Done once, or found.
//   - A step that is [Unrepeatable] is in doubt: the task waits (WAITING) for a person, and never re-runs it blindly.
//
// The last two write an intent before the effect, one write more. An error that such a step returns says as little about the
// effect as a crash does, unless it is Retry, RateLimited or Reject.
//
// A step's attempt that overruns its [Timeout] is abandoned and what it says later is dropped. [Parallel] runs steps side by
// side, each branch with a Context of its own; a goroutine that a handler starts itself takes the process down when it panics.
//
// # When something dies
//
//	the handler panics          crashes + 1; a fresh activation on the same node
//	the process dies            deaths + 1; another node takes over within a lease, from the last checkpoint
//	the node drains             nothing; others take over at once. Results that are ready are kept
//	the lease is lost           the Context ends with ErrLeaseLost; nothing this activation writes is accepted any more
//	Redis is away               checkpoints and commits are repeated until it is back: a result is not thrown away
//
// Delivery is at least once, a step's function may run more than once, and one result is committed. Every write carries a
// fence, so that of two activations only the newer one is heard.
//
// # Misuse
//
//	ErrParked dropped, or given to a model as a tool's error     the latch: nothing acts, the result is ignored, the author is told
//	a name used twice, a durable call in a Step, one Context     ErrMisuse: FAILED without retry, the message names the step
//	on two goroutines, a Context kept past its handler
//	a value that leaves a step by a captured variable            actorstest's second run fails
//	types that cannot be stored, a shared agent value,           refused by Agents.Validate
//	two handlers of one name, impossible options
//	a value that cannot be stored                                ErrMisuse at that step
//	a result over the cap                                        ErrTooLarge, once; never run again for it
//	Reject(nil), Retry(d, nil)                                   ErrMisuse, never a silent success
//	a handler that ends by runtime.Goexit                        a crash
//
// # Runtimes
//
// [Activate], [Job], [Verdict], [Decide], [Spent], [StateStore] and [StateDesk] are for runtimes and stores, not for authors.
package actors
