package messages

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Names says which world a client or a runtime lives in: one group on one stream.
// Several groups on one stream each handle every entry, with their own state, dead letters and timers.
type Names struct {
	// Stream is the key of the public stream. Default "agent:tasks".
	Stream string
	// Group is the consumer group. Default "agent-workers".
	Group string
	// Consumer is this process's name in the group; a client that only submits needs none.
	// Default: host name and process id, set by the runtime.
	Consumer string
	// Fields renames the entry's fields for producers written for another consumer.
	Fields FieldNames
}

// WithDefaults returns a copy in which every empty name has its default. Consumer stays as it is.
func (n Names) WithDefaults() Names {
	n.Stream = cmp.Or(n.Stream, "agent:tasks")
	n.Group = cmp.Or(n.Group, "agent-workers")
	n.Fields = n.Fields.WithDefaults()
	return n
}

// Validate names the field that cannot be used, and why. It changes nothing.
func (n Names) Validate() error {
	for _, f := range []struct{ field, value string }{{"Names.Stream", n.Stream}, {"Names.Group", n.Group}} {
		switch {
		case f.value == "":
			return fmt.Errorf("%s must not be empty", f.field)
		case len(f.value) > maxNameLen:
			return fmt.Errorf("%s (%d bytes) must have at most %d bytes", f.field, len(f.value), maxNameLen)
		case !utf8.ValidString(f.value):
			return fmt.Errorf("%s (%q) must be UTF-8", f.field, f.value)
		}
	}
	if slices.Contains(reserved, n.Group) {
		return fmt.Errorf("Names.Group (%q) is a name that Weir uses itself", n.Group) // see Keys: root and Prefix would meet
	}
	if _, err := slotTag(n.Stream); err != nil {
		return fmt.Errorf("Names.Stream (%q): %w", n.Stream, err)
	}
	return n.Fields.Validate()
}

const maxNameLen = 512

// Ref names one entry: the key of the stream that handed it out, and its id.
type Ref struct {
	Stream string
	ID     string
}

// Ref returns the entry's place without its counters.
func (x *Entry) Ref() Ref { return Ref{Stream: x.GetStream(), ID: x.GetId()} }

// Node is one incarnation of a process in a group: a restart is another node.
type Node struct {
	// Incarnation is unique to this start of the process (16 hex digits).
	Incarnation string
	// Consumer is the name in the Redis group.
	Consumer string
	// Types are the agent types this node runs.
	Types []string
	// Lease is how long a silent owner keeps an entry. Default 15 s.
	Lease time.Duration
	// Beat is how often the node renews. Default 5 s; at most a third of Lease.
	Beat time.Duration
	// Host and PID are for people who look at the status.
	Host string
	PID  int
}

// Keys names every key of one group's world. All of them hash to the stream's slot, so each script touches one slot.
// The layout behind each key is in layout.go.
type Keys struct {
	// Stream is the public stream, as named.
	Stream string
	// Prefix stands before every key of the group: "{agent:tasks}:agent-workers:".
	Prefix string
	// root stands before the keys that all groups of the stream share.
	root string
}

// NewKeys derives the keys of the group that names names.
func NewKeys(n Names) (Keys, error) {
	tag, err := slotTag(n.Stream)
	if err != nil {
		return Keys{}, fmt.Errorf("stream %q: %w", n.Stream, err)
	}
	return Keys{Stream: n.Stream, root: tag + ":", Prefix: tag + ":" + Escape(n.Group) + ":"}, nil
}

// Inbox is the group's own stream: what Weir adds for itself, never seen by other groups.
func (k Keys) Inbox() string { return k.Prefix + "inbox" }

// Due is the sorted set of what happens at a time (score: Unix ms by Redis's clock).
func (k Keys) Due() string { return k.Prefix + "due" }

// Dead is the stream of dead letters.
func (k Keys) Dead() string { return k.Prefix + "dead" }

// Meta is the hash of the group's own facts: pulse, low-water mark, calm.
func (k Keys) Meta() string { return k.Prefix + "meta" }

// Counts is the hash of running totals.
func (k Keys) Counts() string { return k.Prefix + "counts" }

// Nodes is the sorted set of incarnations by last tick.
func (k Keys) Nodes() string { return k.Prefix + "nodes" }

// Types is the set of agent types that have entries waiting for a node that runs them.
func (k Keys) Types() string { return k.Prefix + "types" }

// Type is the stream of entries whose agent type their reader lacked.
func (k Keys) Type(name string) string { return k.Prefix + "type:" + Escape(name) }

// Index is the sorted set of units in a state, by time of change (member: escaped id ":" escaped unit).
func (k Keys) Index(state, agentType string) string {
	return k.Prefix + "index:" + state + ":" + Escape(agentType)
}

// Node is the liveness key of an incarnation; it expires a lease after the last beat.
func (k Keys) Node(incarnation string) string { return k.Prefix + "node:" + incarnation }

// Life is the hash that outlives its node by a day: its last tick, its trial.
func (k Keys) Life(incarnation string) string { return k.Prefix + "life:" + incarnation }

// Consumer is the hash that says which incarnation a consumer name belongs to.
func (k Keys) Consumer(name string) string { return k.Prefix + "consumer:" + Escape(name) }

// Task is the hash of a task.
func (k Keys) Task(id string) string { return k.Prefix + "task:" + Escape(id) }

// Gate is the hash of what stands between Submit and the stream; there is none while the gate is open.
func (k Keys) Gate() string { return k.Prefix + "gate" }

// Quota is the hash of a token bucket; `…:due` and `…:taken` stand beside it.
func (k Keys) Quota(bucket string) string { return k.Prefix + "quota:" + Escape(bucket) }

// reserved are the names behind which the keys stand that all groups of a stream share: in a group's place.
var reserved = []string{"submitted", "delayed", "unique", "schedule"}

// Submitted is the marker that a task id was submitted to the stream, shared by all its groups.
func (k Keys) Submitted(id string) string { return k.root + "submitted:" + Escape(id) }

// Schedules is the sorted set of the stream's schedules by next tick, shared by all its groups (member: escaped name).
func (k Keys) Schedules() string { return k.root + "schedules" }

// Schedule is the hash of a schedule.
func (k Keys) Schedule(name string) string { return k.root + "schedule:" + Escape(name) }

// Delayed is the sorted set of what was submitted for later and is not in the stream yet (score: Unix ms by Redis's clock),
// shared by all groups of the stream. Member: escaped id ":" escaped unit.
func (k Keys) Delayed() string { return k.root + "delayed" }

// DelayedEntries is the hash of the entries behind Delayed.
func (k Keys) DelayedEntries() string { return k.root + "delayed:entries" }

// Unique says which unit a unique key is taken by; it expires with the key's period. All groups of the stream share it.
func (k Keys) Unique(key string) string { return k.root + "unique:" + Escape(key) }

var escaper = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

// Escape makes a name safe as a part of a key: `:` `{` `}` `%` are percent-encoded, everything else stays.
func Escape(s string) string {
	if !strings.ContainsAny(s, ":{}%") {
		return s
	}
	return escaper.Replace(s)
}

var unescaper = strings.NewReplacer("%25", "%", "%3A", ":", "%7B", "{", "%7D", "}")

// Unescape undoes Escape.
func Unescape(s string) string { return unescaper.Replace(s) }

// EffectKey names one effect for the world outside: escaped task id, unit and step, so that no two effects share one.
func EffectKey(taskID, unit, step string) string {
	if unit == "" {
		return Escape(taskID) + ":" + Escape(step)
	}
	return Escape(taskID) + ":" + Escape(unit) + ":" + Escape(step)
}

var errBraces = errors.New("braces in a stream name must be one non-empty {tag}, so that its keys share its slot")

// slotTag returns what the stream's keys start with: the name itself when it holds a hash tag, else the name in braces.
func slotTag(stream string) (string, error) {
	open, shut := strings.Count(stream, "{"), strings.Count(stream, "}")
	if open == 0 && shut == 0 {
		return "{" + stream + "}", nil
	}
	i, j := strings.Index(stream, "{"), strings.Index(stream, "}")
	if open != 1 || shut != 1 || j < i+2 {
		return "", errBraces
	}
	return stream, nil
}
