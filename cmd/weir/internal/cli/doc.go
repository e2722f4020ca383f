// Package cli is the command line of weir, one file a command.
//
//	root.go     the root command, exit codes, errors        flags.go    flags and their environment variables
//	signals.go  the first signal drains, the second ends    connect.go  Redis, state and stream behind a command
//	output.go   JSON, tables, durations                     views.go    what tasks and dead letters look like
//
// Exit codes: 0 done, 1 failed, 2 usage. Data goes to stdout, everything else to stderr; an error is one sentence.
package cli
