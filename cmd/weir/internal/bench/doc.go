// Package bench measures Weir on a Redis, beside the floor (package floor) measured in the same run.
//
//	bench.go    rounds: floor, no-op tasks and three-step tasks in turn, medians and ratios
//	drain.go    one drained stream of Weir
//	latency.go  XADD → handler start, beside a bare blocked XREADGROUP
//	parked.go   memory of tasks that sleep in their handlers
//	idle.go     commands a second that an idle node sends
//
// Rounds are interleaved because a machine's speed drifts: neighbours wake up, clocks throttle. A ratio compares what ran
// seconds apart.
package bench
