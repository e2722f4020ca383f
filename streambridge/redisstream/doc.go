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
//	Ack: XACK (+ XDEL inbox) ┘      └ bury.lua → dead letters, move.lua → streams by type
//
// Everything that looks before it acts is a Lua script (*.lua), because between the look and the act another node may
// take the entry. Every script may be repeated after a lost reply: each says how.
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
