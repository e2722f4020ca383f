package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// cancelView is what `weir cancel` prints.
type cancelView struct {
	TaskID string `json:"task_id"`
	// State is what the task is in now.
	State string `json:"state"`
	// Cancelled are the units that this call has ended; none where the task was cancelled before.
	Cancelled []cancelledUnit `json:"cancelled"`
}

type cancelledUnit struct {
	Unit string `json:"unit,omitempty"`
	Was  string `json:"was"`
}

func (a *app) cancelCmd() *cobra.Command {
	var c actors.Cancellation
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "End a task at once and for good, whatever it is doing",
		Long: `End a task at once and for good, whatever it is doing: CANCELLED. What waits never begins; a handler that runs is told
within a second, with the reason, and writes nothing more; no retry and no dead letter brings it back. What it has done
before is not undone. A task that has ended already is left as it is: exit code 1, or 0 where it was cancelled.

A producer's own XADD is known once it was begun. To cancel it before, name its --type.`,
		Args: oneArg("task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.openDesk(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			c.ID, c.By = args[0], a.caller()
			v := cancelView{TaskID: c.ID, State: actors.StateName(messages.State_STATE_CANCELLED), Cancelled: []cancelledUnit{}}
			units, err := d.state.Cancel(cmd.Context(), c)
			ended, over := errors.AsType[*actors.EndedError](err)
			switch {
			case over && ended.State == messages.State_STATE_CANCELLED:
			case errors.Is(err, actors.ErrNoTask):
				return fmt.Errorf("no task %q is known to group %q of stream %q; one that nobody has begun is cancelled by its --type", c.ID, d.names.Group, d.names.Stream)
			case err != nil:
				return err
			}
			for _, u := range units {
				v.Cancelled = append(v.Cancelled, cancelledUnit{Unit: u.Unit, Was: actors.StateName(u.Was)})
			}
			if a.json {
				return a.printJSON(v)
			}
			return showCancel(a.std.Out, v)
		},
	}
	cmd.Flags().StringVar(&c.Unit, "step", "", "only this part of the task")
	cmd.Flags().StringVar(&c.Reason, "reason", "", "why, for the handler and for the record")
	cmd.Flags().StringVar(&c.Type, "type", "", "agent type of a task that nobody has begun yet")
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// caller is who gives the command, as far as the environment tells.
func (a *app) caller() string {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return cmp.Or(a.std.Getenv("USER"), a.std.Getenv("LOGNAME"), "somebody") + " on " + host
}

func showCancel(out io.Writer, v cancelView) error {
	if len(v.Cancelled) == 0 {
		_, err := fmt.Fprintf(out, "task %s was cancelled before\n", oneLine(v.TaskID, 1024))
		return err
	}
	for _, u := range v.Cancelled {
		name := "task " + oneLine(v.TaskID, 1024)
		if u.Unit != "" {
			name = "unit " + oneLine(u.Unit, 1024) + " of " + name
		}
		if _, err := fmt.Fprintf(out, "cancelled %s, which was %s\n", name, u.Was); err != nil {
			return err
		}
	}
	return nil
}
