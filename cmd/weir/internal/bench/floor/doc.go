// Package floor is what Redis itself costs: the least that a durable task queue of Weir's kind could do,
// written with go-redis alone, without actors, without a runtime. `weir bench` measures it beside Weir in
// the same run, so that a figure means something on any machine.
//
// A task goes through
//
//	XREADGROUP COUNT 128 → begin.lua × 128 → commit.lua × 128 → XACK of 128
//
// with two readers, each sending a whole batch as one pipeline. Begin copies the payload (200 bytes in the
// benchmark) into the task's hash; commit is fenced; an entry is acknowledged only when its commit was
// accepted.
//
// # Frozen
//
// This is version V0 of the floor and it is never tuned: not the scripts, not the batch, not the number
// of readers. Weir is measured against it from release to release, and a floor that moves measures nothing.
// A better floor gets a package of its own beside this one. A test holds the hashes of both scripts.
//
// On a quiet machine with 2 cores (redis-server 7.0.15 and the program on the same cores) the floor did
// 30–37k tasks/s, at about 1,079 bytes a task with a payload of 200 bytes.
//
// [Wake] is the second floor: how long after an XADD a bare blocked XREADGROUP returns.
package floor
