// Package agentactor is the protoactor side of agents: the actor that serves one assignment of a task, and the low road for
// agents that are plain protoactor actors ([FromProps]).
//
// An assignment's life in the agent actor:
//
//	Assign ─► Begin ─► run: the handler, in a goroutine of its own ─► Commit ─► Done to the supervisor
//	             │                     │
//	             │                     └ panics: the actor panics with it, the supervisor stops it and gives the same
//	             │                       assignment to a fresh one
//	             └ done, elsewhere, queued, lost …: nothing runs, Done says what the bridge does with the entry
//
// A commit that parks the unit may be answered with resume: what it waits for is there. Then the handler is called again in
// the same activation, under the same fence.
//
// Receive never blocks: Begin, handler and Commit run in the goroutine, which posts one private message when it is done.
// Done follows persistence and never precedes it. A program that only submits tasks does not link this package.
package agentactor
