// Package acceptance holds Weir to its promises from outside: real `weir worker` processes on a private redis-server,
// killed, frozen, cut off and fed with rubbish, and judged by what stands in Redis afterwards. It has only tests.
//
// Each runs in two sizes: as part of `go test ./...` scaled down to seconds, and with `-full` (`make accept`) with the
// counts and times that the promises name. With -v each says what it has measured: deaths, recovery times, duplicates.
//
//	site     a private Redis, and one group on it
//	process  a worker: the weir binary, or this test binary as a node with agents that tell what they do (see probe)
//	fleet    workers under a restart loop
//	journal  what the processes have told on their stdout, which outlives both them and their Redis
package acceptance
