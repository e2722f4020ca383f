package redisstate

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/weir-run/weir/messages"
)

//go:embed begin.lua
var beginLua string

//go:embed checkpoint.lua
var checkpointLua string

//go:embed commit.lua
var commitLua string

//go:embed cancel.lua
var cancelLua string

//go:embed entries.lua
var entriesLua string

//go:embed resolve.lua
var resolveLua string

//go:embed steps.lua
var stepsLua string

//go:embed submit.lua
var submitLua string

//go:embed send.lua
var sendLua string

//go:embed publish.lua
var publishLua string

//go:embed batch.lua
var batchLua string

//go:embed schedule_declare.lua
var scheduleDeclareLua string

//go:embed schedule_due.lua
var scheduleDueLua string

//go:embed schedule_fire.lua
var scheduleFireLua string

//go:embed schedule_set.lua
var scheduleSetLua string

//go:embed schedule_list.lua
var scheduleListLua string

//go:embed quota_take.lua
var takeLua string

//go:embed quota_quiet.lua
var quietLua string

var (
	beginScript      = newScript(beginLua, "")
	checkpointScript = newScript(checkpointLua, "allow-oom")
	commitScript     = newScript(commitLua, "allow-oom")
	cancelScript     = newScript(cancelLua, "allow-oom")
	entriesScript    = newScript(entriesLua, "")
	resolveScript    = newScript(resolveLua, "allow-oom")
	stepsScript      = newScript(stepsLua, "")
	submitScript     = newScript(submitLua, "")
	sendScript       = newScript(sendLua, "")
	publishScript    = newScript(publishLua, "")

	scheduleDeclareScript = newScript(scheduleDeclareLua, "")
	scheduleDueScript     = newScript(scheduleDueLua, "")
	scheduleFireScript    = newScript(scheduleFireLua, "")
	scheduleSetScript     = newScript(scheduleSetLua, "")
	scheduleListScript    = newScript(scheduleListLua, "")
	takeScript            = newScript(takeLua, "allow-oom")
	quietScript           = newScript(quietLua, "allow-oom")
)

const (
	// includeTask is where a script wants the functions of task.lua. One that has a hot path puts it after that: they are
	// made, as closures, at every call.
	includeTask = "-- include task.lua\n"
	// includeScript is where batch.lua has the script.
	includeScript = "-- include the script\n"
)

// text is one form of a script, and the name Redis gives it.
type text struct{ source, sha string }

func newText(source string) text {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return text{source: source, sha: hex.EncodeToString(sum[:])}
}

// script is a script within batch.lua, in the form for servers before 7.0, which know no flags, and for those since.
type script struct{ plain, flagged text }

func newScript(body, flags string) *script {
	body = strings.Replace(body, includeTask, messages.TaskLua, 1)
	body = strings.Replace(batchLua, includeScript, body, 1)
	s := &script{plain: newText(body)}
	s.flagged = s.plain
	if flags != "" {
		s.flagged = newText("#!lua flags=" + flags + "\n" + body)
	}
	return s
}

// form picks the text for a server that knows script flags or does not.
func (s *script) form(flags bool) text {
	if flags {
		return s.flagged
	}
	return s.plain
}
