package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/supervision"
)

// gateFlag are limits such as "age=12h,pending=50000,memory=80%", or off.
type gateFlag supervision.Gate

func (g *gateFlag) Set(s string) error {
	const off = streambridge.Off
	if s == "off" {
		*g = gateFlag{Age: off, Pending: off, Lag: off, Length: off, Memory: off}
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q must be a limit, such as lag=10000", part)
		}
		if err := g.limit(name, value); err != nil {
			return fmt.Errorf("%s (%q): %w", name, value, err)
		}
	}
	return supervision.Gate(*g).WithDefaults().Validate()
}

func (g *gateFlag) limit(name, value string) (err error) {
	count := func() int64 {
		if value == "off" {
			return streambridge.Off
		}
		var n int64
		if n, err = strconv.ParseInt(value, 10, 64); err == nil && n < 1 {
			err = fmt.Errorf("must be at least 1, or off")
		}
		return n
	}
	switch name {
	case "age":
		if g.Age = streambridge.Off; value != "off" {
			g.Age, err = time.ParseDuration(value)
		}
	case "pending":
		g.Pending = count()
	case "lag":
		g.Lag = count()
	case "length":
		g.Length = count()
	case "memory":
		if g.Memory = streambridge.Off; value != "off" {
			g.Memory, err = strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
			g.Memory /= 100
		}
	default:
		err = fmt.Errorf("there is no such limit, only age, pending, lag, length and memory")
	}
	return err
}

func (g *gateFlag) String() string {
	if *g == (gateFlag{}) {
		return ""
	}
	return fmt.Sprintf("age=%v,pending=%d,lag=%d,length=%d,memory=%g%%", g.Age, g.Pending, g.Lag, g.Length, 100*g.Memory)
}

func (g *gateFlag) Type() string { return "limits" }

// gateLine says in the status how intake stands, and why.
func gateLine(g streambridge.Gate) string {
	since := " for " + age(time.Duration(g.SinceMS)*time.Millisecond)
	if g.State == streambridge.GateIsShut {
		return "shut" + since + ": " + g.Reason + "; tasks that are submitted are refused"
	}
	return "open, warned" + since + ": " + g.Reason + " before it shuts"
}
