package messages

import _ "embed"

// TaskLua is the Lua text that stands before each script of the Redis adapters: the task hash's layout in code, and what a
// unit waits for, so that the stream's scripts and the state's scripts cannot disagree about them.
var TaskLua = taskLua + "\n" + childLua + "\n" + waitLua

//go:embed task.lua
var taskLua string

//go:embed child.lua
var childLua string

//go:embed wait.lua
var waitLua string
