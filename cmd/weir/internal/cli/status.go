package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/streambridge"
)

func (a *app) statusCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a group: backlog, tasks by state, dead letters, consumers",
		Long: `Show a group as it stands: entries in the stream and in the group's inbox, lag (not yet delivered), pending entries
and the age of the oldest, tasks by state, dead letters, agent types that no live node runs, a gate that refuses
tasks or soon will, and the consumers.

The inbox is the group's own stream of what Weir adds for it: due retries, entries that waited for their turn or for a node
with their agent type. What was submitted for later is delayed; all groups of the stream share it, and it counts as SCHEDULED
in each. SUCCEEDED is a running total; the other states count what is in them now.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.openDesk(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			w, err := d.openWindow()
			if err != nil {
				return err
			}
			s, err := w.Status(cmd.Context())
			if err != nil {
				return err
			}
			if s.Consumers == nil {
				s.Consumers = []streambridge.Consumer{} // a list in JSON, also when it is empty
			}
			if s.Unserved == nil {
				s.Unserved = []string{}
			}
			if s.Waiting == nil {
				s.Waiting = []streambridge.TypeWaiting{}
			}
			if a.json {
				return a.printJSON(s)
			}
			return a.showStatus(s)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) showStatus(s streambridge.Status) error {
	switch {
	case !s.StreamExists:
		fmt.Fprintf(a.std.Out, "stream %s does not exist (yet)\n\n", oneLine(s.Stream, 200))
	case !s.GroupExists:
		fmt.Fprintf(a.std.Out, "group %s does not exist on stream %s (yet)\n\n", oneLine(s.Group, 200), oneLine(s.Stream, 200))
	}
	w := table(a.std.Out)
	row(w, "stream", s.Stream)
	row(w, "group", s.Group)
	row(w, "length", count(s.Length)+" in the stream, "+count(s.Inbox)+" in the inbox")
	lag := "unknown to this server"
	if s.Lag >= 0 {
		lag = count(s.Lag)
	}
	row(w, "lag", lag)
	pending := count(s.Pending)
	if s.Pending > 0 {
		pending += ", the oldest " + age(time.Duration(s.OldestMS)*time.Millisecond)
	}
	row(w, "pending", pending)
	if s.Gate.State != streambridge.GateIsOpen {
		row(w, "GATE", gateLine(s.Gate))
	}
	row(w, "due", count(s.Due))
	row(w, "delayed", count(s.Delayed)+" to join the stream")
	row(w, "dead letters", count(s.Dead))
	if text := stuck(s.Consumers); text != "" {
		row(w, "STUCK", text)
	}
	if len(s.Unserved) > 0 {
		row(w, "UNSERVED", unserved(s.Waiting))
	}
	if err := w.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(a.std.Out)
	w = table(a.std.Out)
	row(w, "STATE", "TASKS")
	for _, state := range statesInOrder(s.States) {
		row(w, state, count(s.States[state]))
	}
	if err := w.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(a.std.Out)
	if len(s.Consumers) == 0 {
		fmt.Fprintln(a.std.Out, "no consumers")
		return nil
	}
	w = table(a.std.Out)
	row(w, "CONSUMER", "LIVE", "PENDING", "IDLE", "LAST TICK", "INCARNATION")
	for _, c := range s.Consumers {
		live, tick := "no", "-"
		if c.Live {
			live = "yes"
		}
		if c.LastTickMS > 0 {
			tick = age(time.Duration(c.LastTickMS) * time.Millisecond)
		}
		row(w, c.Name, live, count(c.Pending), age(time.Duration(c.IdleMS)*time.Millisecond), tick, dash(c.Incarnation))
	}
	return w.Flush()
}

// stuck says where steps run on after their timeout: only an end of the process ends them.
func stuck(consumers []streambridge.Consumer) string {
	var at []string
	total := 0
	for _, c := range consumers {
		if c.Stuck > 0 {
			total += int(c.Stuck)
			at = append(at, fmt.Sprintf("%s (%s)", oneLine(c.Name, 60), count(c.Stuck)))
		}
	}
	switch total {
	case 0:
		return ""
	case 1:
		return "1 step runs on after its timeout: " + at[0]
	}
	return plural(total, "step") + " run on after their timeout: " + strings.Join(at, ", ")
}

// unserved says what waits for types that no live node runs.
func unserved(waiting []streambridge.TypeWaiting) string {
	var types []string
	for _, t := range waiting {
		if !t.Served {
			types = append(types, fmt.Sprintf("%s (%s, oldest %s)", t.Type, count(t.Entries), age(time.Duration(t.OldestMS)*time.Millisecond)))
		}
	}
	if len(types) == 1 {
		return types[0] + ": no live node runs this type"
	}
	return strings.Join(types, ", ") + ": no live node runs these types"
}

// stateOrder is the way of a task; what a server adds comes behind it.
var stateOrder = []string{"PENDING", "SCHEDULED", "RUNNING", "RETRYING", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED"}

func statesInOrder(states map[string]int64) []string {
	names := make([]string, 0, len(states))
	for name := range states {
		names = append(names, name)
	}
	place := func(name string) int {
		if i := slices.Index(stateOrder, name); i >= 0 {
			return i
		}
		return len(stateOrder)
	}
	slices.SortFunc(names, func(x, y string) int {
		if d := place(x) - place(y); d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	return names
}
