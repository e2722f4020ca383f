package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// listedTask is a unit as `weir tasks` prints it.
type listedTask struct {
	TaskID     string        `json:"task_id"`
	Unit       string        `json:"unit,omitempty"`
	State      string        `json:"state"`
	Type       string        `json:"type,omitempty"`
	Attempt    int64         `json:"attempt"`
	Attempts   actors.Ledger `json:"attempts"`
	CreatedAt  *time.Time    `json:"created_at,omitempty"`
	BeganAt    *time.Time    `json:"began_at,omitempty"`
	UpdatedAt  *time.Time    `json:"updated_at,omitempty"`
	DueAt      *time.Time    `json:"due_at,omitempty"`
	Error      string        `json:"error,omitempty"`
	Reason     string        `json:"reason,omitempty"`
	Doubt      string        `json:"doubt,omitempty"`
	EntryID    string        `json:"entry_id,omitempty"`
	Consumer   string        `json:"consumer,omitempty"`
	Deliveries int64         `json:"deliveries,omitempty"`
}

func newListedTask(t actors.TaskItem) listedTask {
	u := t.Unit
	return listedTask{
		TaskID: t.ID, Unit: u.Unit, State: actors.StateName(u.State), Type: u.Type, Attempt: attempt(u), Attempts: u.Ledger,
		CreatedAt: moment(u.Created), BeganAt: moment(u.Began), UpdatedAt: moment(u.Updated), DueAt: moment(u.Due),
		Error: u.Error, Reason: actors.ReasonName(u.Reason), Doubt: u.Doubt,
		EntryID: t.Entry.ID, Consumer: t.Consumer, Deliveries: t.Deliveries,
	}
}

func (a *app) tasksCmd() *cobra.Command {
	var (
		q     actors.TaskQuery
		state string
		since time.Duration
	)
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List tasks by state, type and time, in pages",
		Long: `List tasks by state, type and time, in pages.

FAILED, CANCELLED, WAITING, RETRYING, SCHEDULED (all of them without --state), and SUCCEEDED where the workers index it:
the newest change first, and behind them what was submitted for later. RUNNING: from the entries that the consumers have in hand, the oldest first. PENDING: the entries that
nobody has begun, those in hand first, then the inbox, those that wait for an agent type, and the stream; what waits with a
task for its owner is not among them.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.State, err = parseState(state); err != nil {
				return err
			}
			return a.listTasks(cmd.Context(), q, since)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	cmd.Flags().StringVar(&state, "state", "", "only this state: "+strings.Join(stateNames(), ", "))
	pageFlags(cmd, &q, &since)
	return cmd
}

// pageFlags are those of all lists of tasks.
func pageFlags(cmd *cobra.Command, q *actors.TaskQuery, since *time.Duration) {
	fs := cmd.Flags()
	fs.StringVar(&q.Type, "type", "", "only this agent type, with all of its handlers, or agent/handler")
	fs.DurationVar(since, "since", 0, "only what came into its state within this time, such as 1h")
	fs.IntVar(&q.Limit, "limit", 100, "show at most so many")
	fs.StringVar(&q.After, "after", "", "begin where a page before ended: its last line, or next in JSON")
}

// listTasks shows one page, read in as many as it takes: those of the store may be short.
func (a *app) listTasks(ctx context.Context, q actors.TaskQuery, since time.Duration) error {
	switch {
	case q.Limit < 1:
		return usagef("--limit (%d) must be at least 1", q.Limit)
	case since < 0:
		return usagef("--since (%v) must not be negative", since)
	case since > 0:
		q.Since = time.Now().Add(-since)
	}
	d, err := a.openDesk(ctx)
	if err != nil {
		return err
	}
	defer d.close()
	found, wanted := []listedTask{}, q.Limit
	for more := true; more; more = q.After != "" && len(found) < wanted {
		q.Limit = wanted - len(found)
		page, err := d.client.Tasks(ctx, q)
		if err != nil {
			return err
		}
		for _, t := range page.Tasks {
			found = append(found, newListedTask(t))
		}
		q.After = page.Next
	}
	if a.json {
		return a.printJSON(struct {
			Tasks []listedTask `json:"tasks"`
			Next  string       `json:"next,omitempty"`
		}{found, q.After})
	}
	return showTasks(a.std.Out, found, q.After)
}

// stateNames are the states that a task can be in, in their order.
func stateNames() (names []string) {
	for _, n := range slices.Sorted(maps.Keys(messages.State_name)) {
		if n != 0 {
			names = append(names, actors.StateName(messages.State(n)))
		}
	}
	return names
}

// parseState reads a state's name; empty is any.
func parseState(name string) (messages.State, error) {
	if name == "" {
		return messages.State_STATE_UNSPECIFIED, nil
	}
	n, ok := messages.State_value["STATE_"+strings.ToUpper(name)]
	if !ok || n == 0 {
		return 0, usagef("--state: there is no state %q, only %s", name, strings.Join(stateNames(), ", "))
	}
	return messages.State(n), nil
}

func showTasks(out io.Writer, found []listedTask, next string) error {
	if len(found) == 0 {
		fmt.Fprintln(out, "no tasks")
		return nil
	}
	w := table(out)
	row(w, "TASK", "STEP", "STATE", "TYPE", "SINCE", "ATTEMPT", "DETAIL")
	for _, t := range found {
		since := "-"
		if t.UpdatedAt != nil {
			since = clock(*t.UpdatedAt)
		}
		row(w, oneLine(t.TaskID, 60), dash(oneLine(t.Unit, 24)), t.State, dash(oneLine(t.Type, 24)), since, t.Attempt, oneLine(t.detail(), 80))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if next != "" {
		fmt.Fprintf(out, "more: --after %s\n", next)
	}
	return nil
}

// detail is what a person wants to know next.
func (t listedTask) detail() string {
	switch {
	case t.Doubt != "":
		return "in doubt on step " + t.Doubt + ": " + firstLine(t.Error)
	case t.Consumer != "":
		return "in hand of " + t.Consumer
	case t.DueAt != nil && t.Error == "":
		return "due " + clock(*t.DueAt)
	case t.DueAt != nil:
		return "due " + clock(*t.DueAt) + ": " + firstLine(t.Error)
	case t.Reason != "":
		return t.Reason + ": " + firstLine(t.Error)
	default:
		return dash(firstLine(t.Error))
	}
}
