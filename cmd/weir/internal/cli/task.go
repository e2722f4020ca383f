package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func (a *app) taskCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task ID",
		Short: "Show all that is known of a task: state, attempts, steps, result, timeline",
		Long: `Show all that is known of a task: state, attempts by class, steps, result and timeline. A task that nothing has begun
is looked for among the entries that wait for an agent type, and among the newest dead letters.`,
		Args: oneArg("task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			d, err := a.openDesk(ctx)
			if err != nil {
				return err
			}
			defer d.close()
			r, waits, letter, err := d.find(ctx, args[0])
			if err != nil {
				return err
			}
			v := newTaskView(r)
			v.Waits, v.DeadLetter = waits, letter
			if v.Deliveries, err = d.deliveries(ctx, r.EntryID); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(v)
			}
			return showTask(a.std.Out, r, v)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// find reads a task's record, and looks elsewhere for what it does not tell: the entries that wait for an agent type, and
// the dead letter of a task that was never begun.
func (d *desk) find(ctx context.Context, id string) (*actors.TaskRecord, []standing, *letterView, error) {
	r, err := d.client.Task(id).Status(ctx)
	if err != nil && !errors.Is(err, actors.ErrNoTask) {
		return nil, nil, nil, err
	}
	if !unbegun(r) {
		return r, nil, nil, nil
	}
	waits, err := d.standings(ctx, id)
	if err != nil {
		return nil, nil, nil, err
	}
	if waits[id] != nil {
		if r == nil {
			r = &actors.TaskRecord{ID: id, Units: pendingUnits(waits[id])}
		}
		return r, waits[id], nil, nil
	}
	letter, err := d.letterOf(ctx, id)
	if err != nil {
		return nil, nil, nil, err
	}
	if r == nil && letter == nil {
		return nil, nil, nil, fmt.Errorf("no task %q is known to group %q of stream %q", id, d.names.Group, d.names.Stream)
	}
	if r == nil {
		r = &actors.TaskRecord{ID: id}
	}
	return r, nil, letter, nil
}

// deliveries is how often the entry was handed out; 0 when it is not pending.
func (d *desk) deliveries(ctx context.Context, entryID string) (int64, error) {
	if entryID == "" {
		return 0, nil
	}
	found, err := d.rdb.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: d.names.Stream, Group: d.names.Group, Start: entryID, End: entryID, Count: 1,
	}).Result()
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "NOGROUP"):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look for entry %s among the pending ones: %w", entryID, err)
	case len(found) == 0:
		return 0, nil
	}
	return found[0].RetryCount, nil
}

func showTask(out io.Writer, r *actors.TaskRecord, v taskView) error {
	if l := v.DeadLetter; l != nil && len(v.Units) == 0 {
		_, err := fmt.Fprintf(out, "task %s: no record; %s\n", oneLine(v.TaskID, 1024), showDeadLetter(l))
		return err
	}
	w := table(out)
	row(w, "task", v.TaskID)
	if v.EntryID != "" {
		row(w, "entry", v.EntryID)
	}
	if v.Deliveries > 0 {
		row(w, "deliveries", v.Deliveries)
	}
	if v.Owner != "" {
		row(w, "owner", v.Owner)
	}
	if v.Queued > 0 {
		row(w, "queued", plural(int(v.Queued), "entry that waits for the owner"))
	}
	if v.Unread > 0 {
		row(w, "unread", plural(int(v.Unread), "message"))
	}
	for _, s := range v.Waits {
		what := "waits"
		if s.Unit != "" {
			what = "unit " + oneLine(s.Unit, 40) + " waits"
		}
		row(w, what, strings.TrimPrefix(s.String(), "waits "))
	}
	if v.DeadLetter != nil {
		row(w, "never begun", showDeadLetter(v.DeadLetter))
	}
	if r.TTL > 0 {
		row(w, "forgotten in", age(r.TTL))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i, u := range v.Units {
		if err := showUnit(out, r.Units[i], u); err != nil {
			return err
		}
	}
	if len(v.Timeline) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\ntimeline")
	w = table(out)
	for _, l := range v.Timeline {
		row(w, "  "+clock(l.At), l.What, firstLine(l.Detail))
	}
	return w.Flush()
}

func showDeadLetter(l *letterView) string {
	return fmt.Sprintf("dead letter %s: %s, %s (weir dead show %s)", l.ID, l.Reason, oneLine(firstLine(l.Detail), 100), l.ID)
}

func showUnit(out io.Writer, u actors.UnitRecord, v unitView) error {
	fmt.Fprintln(out)
	w := table(out)
	if v.Unit != "" {
		row(w, "unit", v.Unit)
	}
	row(w, "state", v.State)
	row(w, "type", dash(v.Type))
	if !u.Began.IsZero() || u.Ledger != (actors.Ledger{}) {
		row(w, "attempts", attempts(v.Attempt, u.Ledger))
	}
	row(w, "created", clock(u.Created))
	if !u.Began.IsZero() {
		row(w, "began", clock(u.Began))
		row(w, "updated", clock(u.Updated)+" ("+age(u.Updated.Sub(u.Began))+" later)")
	}
	if !u.Due.IsZero() {
		row(w, "due", clock(u.Due)+" (in "+age(time.Until(u.Due))+")")
	}
	for _, wait := range v.WaitingFor {
		row(w, "waits for", wait)
	}
	if len(u.Result) > 0 {
		row(w, "result", showBytes(u.Result, 160))
	}
	if v.Reason != "" {
		row(w, "reason", v.Reason)
	}
	if v.Error != "" {
		row(w, "error", firstLine(v.Error))
	}
	if v.Doubt != "" {
		row(w, "in doubt", "step "+v.Doubt+": weir doubt resolve says what became of it")
	}
	if err := w.Flush(); err != nil || len(v.Steps) == 0 {
		return err
	}
	fmt.Fprintln(out)
	w = table(out)
	row(w, "  STEP", "STATUS", "ATTEMPTS", "BEGAN", "TOOK", "RESULT")
	for i, s := range v.Steps {
		took, result := "-", "-"
		if s.EndedAt != nil && s.Status != string(messages.StepFound) {
			took = age(time.Duration(s.TookMS) * time.Millisecond)
		}
		switch {
		case s.Error != "":
			result = "error: " + firstLine(s.Error)
		case s.Result != nil || s.Base64 != nil:
			result = showBytes(u.Steps[i].Value, 80)
		}
		began := "-"
		if s.BeganAt != nil {
			began = clock(*s.BeganAt)
		}
		row(w, "  "+s.Step, stepStatus(s.Status), s.Attempts, began, took, result)
	}
	return w.Flush()
}

// stepStatus is a step's status for a person.
func stepStatus(status string) string {
	if status == string(messages.StepFound) {
		return "found by its key, not run again"
	}
	return status
}

// attempts is the number of attempts, and the ledger without its zeros.
func attempts(n int64, l actors.Ledger) string {
	var parts []string
	for _, c := range []struct {
		n    int64
		name string
	}{
		{l.Failures, "failures"},
		{l.Crashes, "crashes"},
		{l.Timeouts, "timeouts"},
		{l.Deaths, "deaths"},
		{l.Blamed, "blamed"},
		{l.Interruptions, "interruptions, free"},
		{l.Waits, "waits, free"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", c.name, c.n))
		}
	}
	if l.Classes != "" {
		parts = append(parts, "of classes "+strings.ReplaceAll(string(l.Classes), "=", ": "))
	}
	s := fmt.Sprint(n)
	if len(parts) > 0 {
		s += " (" + strings.Join(parts, "; ") + ")"
	}
	return s
}

// firstLine leaves a stack trace to --json.
func firstLine(s string) string {
	head, rest, more := strings.Cut(strings.TrimSpace(s), "\n")
	if more && strings.TrimSpace(rest) != "" {
		return head + " …"
	}
	return head
}
