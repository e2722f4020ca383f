package messages

import (
	"maps"
	"slices"
	"strings"
)

// ReasonName is a dead letter's reason as one word for people, logs and JSON, such as "budget_spent"; empty for none.
func ReasonName(r Reason) string {
	if r == Reason_REASON_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(r.String(), "REASON_"))
}

// ReasonNames are the words that ReasonName knows, in the order of the enum.
func ReasonNames() []string {
	var names []string
	for _, n := range slices.Sorted(maps.Keys(Reason_name)) {
		if name := ReasonName(Reason(n)); name != "" {
			names = append(names, name)
		}
	}
	return names
}
