package messages

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// What of a backlog has a limit, as the gate's hash names it.
const (
	GateAge     = "age"     // ms since the oldest entry that is not acknowledged came
	GatePending = "pending" // entries delivered and not acknowledged
	GateLag     = "lag"     // entries not delivered
	GateLength  = "length"  // entries in the public stream
	GateMemory  = "memory"  // used share of the server's maxmemory
)

// GateReason says to a person what broke, or nearly breaks, its limit.
func GateReason(what string, value, limit float64) string {
	switch what {
	case GateAge:
		return fmt.Sprintf("the oldest unacknowledged entry is %v old, %v are allowed", ms(value), ms(limit))
	case GatePending:
		return fmt.Sprintf("%.0f entries are delivered and not acknowledged, %.0f are allowed", value, limit)
	case GateLag:
		return fmt.Sprintf("%.0f entries wait for their delivery, %.0f are allowed", value, limit)
	case GateLength:
		return fmt.Sprintf("the stream holds %.0f entries, %.0f are allowed", value, limit)
	case GateMemory:
		return fmt.Sprintf("Redis uses %.1f%% of its memory, %.1f%% are allowed", 100*value, 100*limit)
	}
	return fmt.Sprintf("%s is %g, %g is allowed", what, value, limit)
}

func ms(f float64) time.Duration {
	d := time.Duration(f) * time.Millisecond
	if d < 10*time.Second {
		return d
	}
	return d.Round(time.Second)
}

// ParseGate reads what a script says of a gate: "<what> <value> <limit> <hint in ms>".
func ParseGate(s string) (reason string, retryAfter time.Duration, err error) {
	f := strings.Fields(s)
	if len(f) != 4 {
		return "", 0, fmt.Errorf("gate %.40q has %d parts, not 4", s, len(f))
	}
	var n [3]float64
	for i := range n {
		if n[i], err = strconv.ParseFloat(f[i+1], 64); err != nil {
			return "", 0, fmt.Errorf("gate %.40q: %w", s, err)
		}
	}
	return GateReason(f[0], n[0], n[1]), time.Duration(n[2]) * time.Millisecond, nil
}
