// Package streambridge takes entries from a stream to the agents of this node and brings their acknowledgements back.
// Nothing is acknowledged before its agent has said that what it did is persisted; nothing that this node holds is
// forgotten while it is pending.
//
// # The life of an entry
//
//	new (Read)    of a dead node (Tick)    stray (Tick)
//	     └──────────────────┬───────────────────┘
//	                     decode ───── no task ───────► burying ── dead letter ──┐
//	                        │  ├───── not our agent ─► moving ─── type stream ──┤
//	                        │  └───── a message ─────► mailing ── its task ─────┤
//	                     waiting    one task, one actor, in the order of ids    │
//	                        │ Assign                                            │
//	                     assigned ─── Done BURY ─────► burying ── dead letter ──┤
//	                        │  │ └─── Done ACK ──────► acking ─── XACK ─────────┤
//	                        │  └───── Done MOVED, Done DROP ────────────────────┤
//	  Beat.Lost, Beat.Gone, │                                                   ▼
//	  a lease of silence    └───────► ghost, until its agent answers ──────► forgotten
//
// A message begins nothing: one script records it with the task that its entry names, lets go on what waits for it, and
// acknowledges the entry. A task that does not take it is told of by [MessageRefused].
//
// An entry spends credits, by count and by bytes, until it is forgotten; what is claimed from dead nodes spends them too.
// Without credits nothing is read. What was forgotten and is pending with us all the same (a reply got lost, an agent said
// DROP, a lease that was given up) is a stray: the sweep finds it when it has been idle for longer than a beat.
//
// # Terms
//
// An entry is named by its [messages.Ref]. It is held from the moment it was handed out until it is forgotten. The lease is
// how long a silent node keeps what it holds; a beat renews it, and a beat alone: authors never do. A burial makes a dead
// letter. A tick is one turn of upkeep. To be usurped is to lose one's consumer name to another incarnation.
//
// # Threads
//
//	reader      goroutine  Read, decode, post each batch            window says how far it may read
//	bridge      actor      owns the window; performs its effects    never blocks, never calls the stream
//	acker       goroutine  batched Ack, failed batches stay queued
//	burier      goroutine  Bury and Move, until they are done
//	postman     goroutine  Deliver messages in the order of their reading, until they are done
//	heartbeat   goroutine  Beat in chunks; judges a silence of a whole lease
//	reaper      actor      a clock of its own; each Tick in a goroutine that posts its result back
//
// The window (window.go) is pure: an event in, effects out. All decisions about entries are made there; everything else
// only carries. Agents and bridge speak by messages: [messages.Assign] and [messages.Cancel] go to the PID that Start was
// given, with the bridge as their sender, and exactly one [messages.Done] comes back for each Assign, also after a
// Cancel and after a crash. Until it comes, the task's next entry waits.
//
// # What happens when
//
//   - The server is away: loops try on with backoff and jitter, at most a second apart; acknowledgements and burials stay
//     queued; after a lease without a beat everything held is given up (the agents get Cancel), because another node may
//     have it. What is still ours when the server is back comes in again by the sweep.
//   - This process stands still: its first beat tells which entries others have taken meanwhile.
//   - The process dies: nothing here is kept anywhere but in the stream's pending list. Other nodes take it a lease later.
//   - The bridge itself panics: it ends as by a crash, without the host's process; see [Bridge.Failed].
package streambridge
