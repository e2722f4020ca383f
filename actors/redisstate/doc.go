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
//	send.lua        gives a task a message
//	publish.lua     appends a chunk for those who follow
//	batch.lua       runs any of them for many calls
//	schedule_*.lua  declare, look for what is due, fire, pause and remove, list: see actors.ScheduleDesk
//
// # Group commit
//
// The calls of all running agents share pipelines. A call that finds no pipeline in flight goes out at once: an idle
// runtime adds no delay. Those that come while one is in flight wait for its end, or for 128 of their kind, and go out
// together; at most [MaxLanes] pipelines are in flight. There is no goroutine while nothing is in flight. A caller whose
// context ends is told within 50 ms.
//
// Within a pipeline, up to 64 calls of one script are one EVALSHA: batch.lua holds the script as a function and calls it
// once a call, each with its own KEYS and ARGV, and catches each one's errors. So the server takes up a script and reads the
// clock once and not for each task. What a call does, answers and meets is what it would alone; its error is a redis.Error
// with the server's code in front.
//
// # Lost replies
//
// Each script finds its own earlier run and answers the same, so a call whose reply was lost is simply made again.
// Scripts that the server forgot (restart, SCRIPT FLUSH, failover) are sent again with their text, and only those.
//
// # A full server
//
// On Redis 7.0 and newer, checkpoints and commits are allowed over maxmemory: paid work is not thrown away because the
// backlog filled the server. Begin and Submit are refused there, but for a few that share a run with one that has given
// something up before them.
package redisstate
