// Package redisstream is a streambridge.Stream on Redis Streams (Redis 6.2 or newer, Valkey; single server, Sentinel
// or Cluster).
//
//	  XADD by anyone                 what Weir adds for one group
//	       │                                    │
//	public stream ──────┐          ┌────── inbox stream
//	                    ▼          ▼
//	              one XREADGROUP, on a connection of its own
//	                         │
//	              pending list of the group ◄── beat.lua renews what is ours
//	                         │      │      └── tick.lua takes over what dead nodes left, and hands out strays
//	Ack: XACK (+ XDEL inbox) ┘      └ bury.lua → dead letters, move.lua → streams by type, deliver.lua → mail of tasks
//
// Everything that looks before it acts is a Lua script (*.lua), because between the look and the act another node may
// take the entry. Every script may be repeated after a lost reply: each says how.
//
// # Keys
//
// Those of package messages, and for the scripts alone, with the group's prefix:
//
//	saved          hash: stream NUL entry id → "<escaped task id>:<escaped unit>", of entries that a beat has copied into
//	               the task's `…:body`; a week after the last copy it goes
//	settled:<id>   how a dead letter was settled, for a minute, so that a lost reply can be repeated
//	meta           pulse, calm_until (ms); low, the id below which the group has acknowledged everything; epoch, another one
//	               after each loss of the group; missed, how many entries were trimmed undelivered; cursor, of the look
//	               through saved; hole and pass, of the deletion behind slow entries; share, how many orphans each node
//	               takes in the turn that began at share_at
//	consumer:<n>   inc, client (CLIENT ID of its reader), beat; left instead of inc after a release
//	life:<inc>     tick, consumer, types (netstrings), host, pid; stuck, how many abandoned steps run on there; took, the last turn it took orphans in; trial and trial_until are the state store's
//	node:<inc>     the consumer's name
//
// # Connections
//
// The client given to New is the user's and is never closed. A read that blocks holds a connection and does not heed
// its context, so reads have connections of their own, made from that client's options; a read whose context ends is
// unblocked by CLIENT UNBLOCK over the user's client, and its connection is closed where that does not help. For a
// UniversalClient that is neither *redis.Client nor *redis.ClusterClient (redis.Ring, a wrapper) there are no options to
// copy: reads share it and block for at most a quarter of a second at a time.
//
// # What the server must be
//
// At least 6.2, with maxmemory-policy noeviction: an evicted task hash is a task that runs again. Newer abilities are
// used where the server has them: scripts go on when memory is full (allow-oom, 7.0).
package redisstream
