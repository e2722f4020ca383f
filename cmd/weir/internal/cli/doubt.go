package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
)

func (a *app) doubtCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doubt",
		Short: "List and settle tasks whose effect is unknown",
		Long: `List and settle tasks that are in doubt: a step that must not run twice (Unrepeatable) was interrupted, and nobody but a
person can know whether its effect happened. Such a task is WAITING and holds nothing until then.`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.doubtListCmd(), a.doubtResolveCmd())
	return cmd
}

func (a *app) doubtListCmd() *cobra.Command {
	q := actors.TaskQuery{Doubt: true}
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what is in doubt, the latest first",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.listTasks(cmd.Context(), q, since) },
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	pageFlags(cmd, &q, &since)
	return cmd
}

func (a *app) doubtResolveCmd() *cobra.Command {
	var (
		r                 actors.Resolution
		done, rerun, fail bool
		result            string
	)
	cmd := &cobra.Command{
		Use:   "resolve ID",
		Short: "Say what became of a step's effect",
		Long: `Say what became of the effect of a step that is in doubt:

  --done   it happened: the step is not run again, and gives --result (nothing, where it gives none)
  --rerun  it did not happen, or may happen twice: the step runs again
  --fail   give the task up: FAILED, with a dead letter`,
		Args: oneArg("task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.ID, r.By = args[0], a.caller()
			var err error
			if r.How, err = onlyOne(done, rerun, fail); err != nil {
				return err
			}
			switch {
			case r.Step == "":
				return usagef("--step is needed: the step that is in doubt, as weir doubt list shows it")
			case (result != "" || r.ContentType != "") && r.How != actors.ResolveDone:
				return usagef("--result and --content-type go with --done")
			case result != "" && r.ContentType == "":
				if !json.Valid([]byte(result)) {
					return usagef("--result is not JSON; for other bytes give their --content-type")
				}
				r.ContentType = "application/json"
			}
			r.Result = []byte(result)
			d, err := a.openDesk(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			err = d.state.Resolve(cmd.Context(), r)
			switch {
			case errors.Is(err, actors.ErrInvalid):
				return &usageError{err: err}
			case errors.Is(err, actors.ErrNoTask):
				return fmt.Errorf("no task %q is known to group %q of stream %q", r.ID, d.names.Group, d.names.Stream)
			case err != nil:
				return err
			}
			if a.json {
				return a.printJSON(struct {
					TaskID   string `json:"task_id"`
					Unit     string `json:"unit,omitempty"`
					Step     string `json:"step"`
					Resolved string `json:"resolved"`
				}{r.ID, r.Unit, r.Step, r.How.String()})
			}
			return showResolved(a.std.Out, r)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&r.Step, "step", "", "the step that is in doubt")
	fs.StringVar(&r.Unit, "unit", "", "the part of the task that the step belongs to, where the task has parts")
	fs.BoolVar(&done, "done", false, "the effect happened")
	fs.BoolVar(&rerun, "rerun", false, "run the step again")
	fs.BoolVar(&fail, "fail", false, "give the task up")
	fs.StringVar(&result, "result", "", "what the step gives its handler, as JSON")
	fs.StringVar(&r.ContentType, "content-type", "", "media type of --result, where it is not JSON")
	fs.StringVar(&r.Reason, "reason", "", "why, for the record")
	return cmd
}

func onlyOne(done, rerun, fail bool) (actors.Resolving, error) {
	var how actors.Resolving
	n := 0
	for i, set := range []bool{done, rerun, fail} {
		if set {
			how = []actors.Resolving{actors.ResolveDone, actors.ResolveRerun, actors.ResolveFail}[i]
			n++
		}
	}
	if n != 1 {
		return 0, usagef("give one of --done, --rerun and --fail")
	}
	return how, nil
}

func showResolved(out io.Writer, r actors.Resolution) error {
	next := "the task goes on"
	if r.How == actors.ResolveFail {
		next = "the task has failed, see weir dead list"
	}
	_, err := fmt.Fprintf(out, "step %s of task %s: %v; %s\n", oneLine(r.Step, 200), oneLine(r.ID, 1024), r.How, next)
	return err
}
