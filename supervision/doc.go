// Package supervision runs agents on what a stream brings: the composition root, where streambridge and actors meet.
//
// The main flow, one file each:
//
//	Runtime.Run      runtime.go                start, wait, drain
//	   │
//	streambridge     Bridge                    entries in, acknowledgements out; heartbeat, reaper, dead letters
//	   │ Assign ▲ Done
//	agents           agents.go                 the supervisor: one agent actor an assignment; stop, back off, fresh actor
//	   │ Assign ▲ Done
//	agentactor       actors/agentactor         Begin, the handler in its goroutine, Commit
//	   │
//	State            actors.StateStore         fenced, atomic writes; only after a commit an entry is acknowledged
//
// A Runtime is one node of a consumer group. Any number of nodes, in any number of processes, share the work of a group;
// what a dead node held is taken over after a lease, what a draining one held at once.
//
// Beside it runs the scheduler (schedules.go, fire.go): it looks at the store for schedules that are due, and fires them. The
// store decides which node was first.
//
// # Who acts when something fails
//
// A handler's error is committed as a retry or a failure by its agent. A panic stops the agent actor: the supervisor gives
// the same assignment to a fresh one after a back-off, a few times; then the task's budget decides. A process that dies is
// noticed by the others' reapers. A fault in one of the runtime's own actors ends Run with an error: restarting an actor
// in place would forget what it held, while entries come back through their lease.
//
// # Events, readiness, liveness
//
// Subscribe hands out typed lifecycle events without ever holding up the work. Ready is false while reading, heartbeat
// or upkeep fail, and while the node starts or drains. Live is false only when a restart of the process would help.
package supervision
