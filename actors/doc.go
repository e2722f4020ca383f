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
// When a process dies, a step waits for its next attempt, what a handler waits for is there, or a task is retried, the
// handler is called again from the top, on whichever node: a new activation. Steps that are done answer from their checkpoints without running; everything
// else runs again. So:
//
//   - Effects, clocks, random numbers and reads that may change belong into steps. Context is not a context.Context, so
//     that most calls do not compile outside of one.
//   - What a step finds out leaves it as its result, never by a captured variable.
//   - The way through the handler follows from its message, its steps' results and what it waited for alone.
//   - A step's name is its identity within the unit, not its position: unique in an activation, and the same in the next
//     one. Loops number their steps. A renamed step is a new one. Steps, waits and children share one set of names.
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
// # Waiting
//
// A handler waits for a message to its task ([Await]), for one of several ([First]), for all of them ([All]), for a time
// ([Sleep]), or for children ([Join]):
//
//	ok, err := actors.Await[*pb.Approval](c, "approve", 24*time.Hour)
//	switch {
//	case errors.Is(err, actors.ErrTimeout):
//		return &pb.Reply{Text: "expired"}, nil
//	case err != nil:
//		return nil, err // parked, among others
//	}
//
// It does not block. The first time the wait answers ErrParked, the handler returns that, and the task is WAITING: it has no
// goroutine, no place, no lease and no entry in hand, on any node, for as long as it takes. When the message is there, or
// the time is over, the handler is called again from the top, its finished steps answer from their checkpoints, and the
// wait answers, too. Nodes may come and go meanwhile.
//
//   - A wait's time counts from when it was first written, by the server's clock. No replay moves it.
//   - How a wait ended is written once, by whatever ended it: every later activation sees the same, though more has come.
//     Answer and timeout exclude each other; who answers an Await too late is told so.
//   - A message has a name and, where its sender gives it one, an id. Without an id the first of a name counts and later ones
//     are refused as known; with ids each is another one, in the order in which they came, and [Message.Nth] picks. What
//     comes before anyone waits is kept. Names belong to the task.
//   - A message is not used up: two waits may see one message.
//   - Waits in branches of [Parallel] are all open at once; the first that ends brings the handler back, and the others are
//     still open.
//   - What cannot be changed by another attempt is final when the handler returns it: a time that was over, a message that
//     does not decode ([MessageError]), a child that failed ([ChildError]).
//
// # Children, and other streams
//
// [Spawn] starts a child, a task of its own in the same group; [Join] waits for children and gives their results. [Emit] puts a
// task on another stream, the next stage of a pipeline. Both are only noted when they are called, and written with the
// commit that parks or completes the unit (Emit: completes), in the same script. So a handler that dies or fails has
// started nothing, and one that is called again does not start it twice. Cancelling a task cancels its open children; what
// they have done is not undone.
//
// # What an error means
//
//	any error           another attempt with the agent's delays, while its budget lasts (10 retries, 1 s to 10 min)
//	Retry(after, err)   the same, not before the given time
//	RateLimited(…)      another attempt, free of charge: the provider asked to wait
//	Reject(err)         never again: FAILED, and a dead letter
//	*StepError          a step is out of attempts: FAILED, unless the handler can do without
//	ErrTimeout of a wait, *MessageError, *ChildError    the same: the next attempt would get the same answer
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
//   - A step that is [Unrepeatable] is in doubt: the task waits (WAITING) for a person, and never re-runs it blindly; see
//     [Task.ResolveDone].
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
//	a timeout of 0, one message where two are meant, a Child     ErrMisuse: there is NoTimeout, and Nth
//	of another activation
//	a child of an unknown handler, an emit to another slot       ErrMisuse in the call, where the node can know; ErrTooLarge
//	waits whose names do not follow from message and steps       actorstest's second run fails; a crash where they would spin
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
