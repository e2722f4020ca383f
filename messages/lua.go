package messages

import _ "embed"

// TaskLua is the Lua text that stands before each script of the Redis adapters: the task hash's layout in code, what a unit
// waits for and how many may run at once, so that the stream's scripts and the state's scripts cannot disagree about them.
var TaskLua = taskLua + "\n" + limitLua + "\n" + waitLua

//go:embed task.lua
var taskLua string

//go:embed limit.lua
var limitLua string

//go:embed wait.lua
var waitLua string
