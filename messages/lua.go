package messages

import _ "embed"

// TaskLua is the Lua text that stands before each script of the Redis adapters: the task hash's layout in code, so
// that the stream's scripts and the state's scripts cannot disagree about it.
//
//go:embed task.lua
var TaskLua string
