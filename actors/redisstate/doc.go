// Package redisstate keeps what tasks have done in Redis (6.2 or newer, single, Sentinel or Cluster).
//
//	state := redisstate.New(rdb) // rdb is the caller's and is never closed here
//
// A task is one hash that HGETALL shows to a person; the layout is in messages/layout.go. Each write is one Lua script,
// in a file of its own that says what it reads, what it returns and why it must be atomic:
//
//	begin.lua       takes the fence of a unit, or says why not
//	checkpoint.lua  stores a step under the fence
//	commit.lua      ends an activation: result, retry or dead letter, in one go
//	submit.lua      adds a task to the public stream, once
//	steps.lua       reads a unit's checkpoints
//	publish.lua     appends a chunk for those who follow
//
// # Group commit
//
// The calls of all running agents share pipelines. A call that finds no pipeline in flight goes out at once: an idle
// runtime adds no delay. Those that come while one is in flight wait for its end, or for 128 of their kind, and go out
// together; at most [MaxLanes] pipelines are in flight. There is no goroutine while nothing is in flight.
//
// # Lost replies
//
// Each script finds its own earlier run and answers the same, so a call whose reply was lost is simply made again.
// Scripts that the server forgot (restart, SCRIPT FLUSH, failover) are sent again with their text, and only those.
//
// # A full server
//
// On Redis 7.0 and newer, checkpoints and commits are allowed over maxmemory: paid work is not thrown away because the
// backlog filled the server. Begin and Submit are refused there.
package redisstate
