package messages

import "strings"

// Names of limits in keys: the whole group's, an agent type's, and one for each key of an agent type.
const groupLimit = "g"

// GroupLimit is the name of the limit of a whole group.
func GroupLimit() string { return groupLimit }

// TypeLimit is the name of an agent type's limit.
func TypeLimit(agentType string) string { return "t:" + Escape(agentType) }

// KeyLimit is the name of the limit of one key of an agent type.
func KeyLimit(agentType, key string) string { return "k:" + Escape(agentType) + ":" + Escape(key) }

// LimitName is a limit's name for people: "group", the agent type, or the agent type and the key.
func LimitName(name string) string {
	if name == groupLimit {
		return "group"
	}
	_, rest, _ := strings.Cut(name, ":")
	agentType, key, keyed := strings.Cut(rest, ":")
	if !keyed {
		return Unescape(agentType)
	}
	return Unescape(agentType) + " " + Unescape(key)
}
