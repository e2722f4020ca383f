package actors

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
)

// Limit lets at most n units of the agent run at once, in all of the group together; with a key function, at most n for each
// key, such as a customer's, and the key "" has no limit. An agent may have one of each kind.
//
// A unit takes its slot when it begins, and keeps it while it runs, whatever becomes of its node: another takes it over with
// its slot. One that finds no slot waits in a line and holds nothing, neither a place on a node nor an entry nor slots of
// other limits; who was there first goes first. What ends the running gives the slot back: an outcome, a retry that is not
// due yet, a wait, a cancellation. The handler of a task that was cancelled while it ran may be at its last moment still
// when the next one begins.
//
// The key is asked for before each begin, so of the Info only what the entry says is there, and Raw is the payload as it
// came. It must follow from these two alone; a panic of it is a crash of the task.
func Limit(n int, key func(Info, Raw) string) AgentOption {
	return agentOption(func(s *settings) error {
		if n < 1 {
			return fmt.Errorf("Limit(%d) must be at least 1", n)
		}
		if key == nil {
			s.limit = n
		} else {
			s.keyLimit, s.key = n, key
		}
		return nil
	})
}

// maxLimitKey is the longest key that stands in the names of keys as it is.
const maxLimitKey = 128

// Limited says that a Limit is among the agent's options.
func (a Agent) Limited() bool { return a.set.limit > 0 || a.set.key != nil }

// Limits are those that a task of this agent, which is known by that name, runs under. A panic of the author's key function
// leaves it as it is.
func (a Agent) Limits(name string, t *messages.Task, fields messages.FieldNames) (limits []Limited) {
	if a.set.key != nil {
		key := a.set.key(infoOf(t, fields), Raw{ContentType: t.GetContentType(), Bytes: t.GetPayload()})
		if len(key) > maxLimitKey {
			sum := sha256.Sum256([]byte(key))
			key = hex.EncodeToString(sum[:])
		}
		if key != "" {
			limits = append(limits, Limited{Name: messages.KeyLimit(name, key), Most: a.set.keyLimit})
		}
	}
	if a.set.limit > 0 {
		limits = append(limits, Limited{Name: messages.TypeLimit(name), Most: a.set.limit})
	}
	return limits
}

// infoOf is what an entry says of its task.
func infoOf(t *messages.Task, fields messages.FieldNames) Info {
	i := Info{
		TaskID: t.GetTaskId(), Unit: t.GetUnit(), Type: t.GetType(),
		EventID: t.GetEventId(), Source: t.GetSource(), TraceParent: t.GetTraceparent(), Origin: t.GetOrigin(),
		Root: rootOf(t, fields), Due: t.Due(fields), Fields: fieldsOf(t),
	}
	if ms := t.GetCreatedAtMs(); ms != 0 {
		i.CreatedAt = time.UnixMilli(ms)
	}
	return i
}
