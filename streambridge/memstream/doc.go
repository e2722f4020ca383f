// Package memstream is a Redis stream with consumer groups in memory: a streambridge.Stream and streambridge.Upkeep with
// the same answers as redisstream, for tests, for simulation and for a demo on a machine without Redis.
//
// A Server stands for the Redis server and a Stream for one node's connection to it. Every call of a Stream is one script:
// it takes the server's lock, reads the clock once, does all or nothing, and never blocks inside. Only Read and Open
// wait, on channels and timers, so that a testing/synctest bubble can run whole nodes in virtual time. There are no
// goroutines. Whatever has an order that shows is in a sorted one, so that one seed gives one run.
//
// memstate keeps its records here too, in scripts of its own (Stream.Script): what a beat, a release or a tick does to a task
// and what a commit does to an entry share the lock, as they share a slot in Redis.
//
// Nothing outlives the process.
package memstream
