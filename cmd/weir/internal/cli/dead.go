package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

func (a *app) deadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, show and settle dead letters",
		Args:  cobra.ArbitraryArgs,
		RunE:  group,
	}
	cmd.AddCommand(
		a.deadListCmd(), a.deadShowCmd(),
		a.settleCmd(streambridge.Retry, "retry", "retried", "Put dead letters back into the group's inbox, with a fresh ledger"),
		a.settleCmd(streambridge.Complete, "complete", "completed", "Mark the work of dead letters as SUCCEEDED without running it"),
		a.settleCmd(streambridge.Drop, "drop", "dropped", "Remove dead letters; their tasks stay FAILED"),
	)
	return cmd
}

// letterFilter is what a letter must be to be meant.
type letterFilter struct {
	reason, kind, task string
}

func (f *letterFilter) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "only those with this reason: "+strings.Join(messages.ReasonNames(), ", "))
	cmd.Flags().StringVar(&f.kind, "type", "", "only those of this agent type")
	cmd.Flags().StringVar(&f.task, "task", "", "only those of this task id")
}

func (f letterFilter) check() error {
	if f.reason == "" {
		return nil
	}
	if _, ok := messages.Reason_value["REASON_"+strings.ToUpper(f.reason)]; !ok {
		return usagef("--reason: there is no reason %q, only %s", f.reason, strings.Join(messages.ReasonNames(), ", "))
	}
	return nil
}

func (f letterFilter) match(v letterView) bool {
	return (f.reason == "" || strings.EqualFold(f.reason, v.Reason)) && (f.kind == "" || f.kind == v.Type) && (f.task == "" || f.task == v.TaskID)
}

// letterPage is how many letters one call reads.
const letterPage = 500

// letters calls f for each letter after an id that the filter lets through, oldest first, until f says that it is enough.
func (w *window) letters(ctx context.Context, after string, filter letterFilter, f func(letterView) (more bool)) error {
	for {
		page, err := w.Letters(ctx, after, letterPage)
		if err != nil {
			return err
		}
		for _, l := range page {
			if v := newLetterView(l, false); filter.match(v) && !f(v) {
				return nil
			}
			after = l.GetId()
		}
		if len(page) < letterPage {
			return nil
		}
	}
}

func (a *app) deadListCmd() *cobra.Command {
	var (
		filter letterFilter
		limit  int
		after  string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit (%d) must be at least 1", limit)
			}
			if err := filter.check(); err != nil {
				return err
			}
			d, err := a.openDesk(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			w, err := d.openWindow()
			if err != nil {
				return err
			}
			found, more := []letterView{}, false
			err = w.letters(cmd.Context(), after, filter, func(v letterView) bool {
				if more = len(found) == limit; more {
					return false
				}
				found = append(found, v)
				return true
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(struct {
					Letters []letterView `json:"dead_letters"`
					More    bool         `json:"more"`
				}{found, more})
			}
			return showLetters(a.std.Out, found, more)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	filter.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "show at most so many")
	cmd.Flags().StringVar(&after, "after", "", "begin after this id: the last one of the page before")
	return cmd
}

func showLetters(out io.Writer, found []letterView, more bool) error {
	if len(found) == 0 {
		fmt.Fprintln(out, "no dead letters")
		return nil
	}
	w := table(out)
	row(w, "ID", "AT", "REASON", "TASK", "TYPE", "DETAIL")
	for _, l := range found {
		row(w, l.ID, clock(l.At), l.Reason, dash(oneLine(l.TaskID, 40)), dash(oneLine(l.Type, 24)), oneLine(firstLine(l.Detail), 80))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(out, "more after %s\n", found[len(found)-1].ID)
	}
	return nil
}

func (a *app) deadShowCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a dead letter with the entry's original fields",
		Args:  oneArg("dead letter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.openDesk(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			w, err := d.openWindow()
			if err != nil {
				return err
			}
			l, err := w.Letter(cmd.Context(), args[0])
			if err != nil {
				return letterError(args[0], err)
			}
			v := newLetterView(l, true)
			if a.json {
				return a.printJSON(v)
			}
			return showLetter(a.std.Out, l, v)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

func letterError(id string, err error) error {
	if errors.Is(err, streambridge.ErrNoLetter) {
		return fmt.Errorf("there is no dead letter %q", id)
	}
	return err
}

func showLetter(out io.Writer, l *messages.DeadLetter, v letterView) error {
	w := table(out)
	row(w, "dead letter", v.ID)
	row(w, "at", clock(v.At))
	row(w, "reason", v.Reason)
	row(w, "detail", firstLine(v.Detail))
	row(w, "task", dash(v.TaskID))
	if v.Unit != "" {
		row(w, "unit", v.Unit)
	}
	row(w, "type", dash(v.Type))
	row(w, "entry", v.EntryID+" of "+v.Stream)
	row(w, "deliveries", v.Deliveries)
	if err := w.Flush(); err != nil {
		return err
	}
	if len(l.GetFields()) == 0 {
		fmt.Fprintln(out, "\nthe entry's fields are gone")
		return nil
	}
	fmt.Fprintln(out)
	w = table(out)
	row(w, "  FIELD", "BYTES", "VALUE")
	for _, f := range l.GetFields() {
		row(w, "  "+oneLine(string(f.GetName()), 40), len(f.GetValue()), showBytes(f.GetValue(), 160))
	}
	return w.Flush()
}

// settled is what became of the letters that a command was given.
type settled struct {
	How    string          `json:"how"`
	Done   []string        `json:"done"`
	Failed []settleFailure `json:"failed"`
}

type settleFailure struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

func (a *app) settleCmd(how streambridge.Settlement, verb, past, short string) *cobra.Command {
	var (
		all    bool
		filter letterFilter
	)
	cmd := &cobra.Command{
		Use:   verb + " ID… | --all",
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all == (len(args) > 0):
				return usagef("give either the ids of dead letters or --all")
			case !all && filter != letterFilter{}:
				return usagef("--reason, --type and --task go with --all")
			}
			if err := filter.check(); err != nil {
				return err
			}
			d, err := a.openDesk(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			w, err := d.openWindow()
			if err != nil {
				return err
			}
			result := settled{How: verb, Done: []string{}, Failed: []settleFailure{}}
			settle := func(id string) {
				if err := letterError(id, w.Settle(cmd.Context(), id, how)); err != nil {
					result.Failed = append(result.Failed, settleFailure{ID: id, Error: oneSentence(err)})
					return
				}
				result.Done = append(result.Done, id)
			}
			for _, id := range args {
				settle(id)
			}
			if all {
				err = w.letters(cmd.Context(), "", filter, func(v letterView) bool {
					settle(v.ID)
					return cmd.Context().Err() == nil
				})
			}
			return errors.Join(a.showSettled(result, past), err)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	filter.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, verb+" all of them, or all that --reason, --type and --task leave")
	return cmd
}

func (a *app) showSettled(s settled, past string) error {
	if a.json {
		if err := a.printJSON(s); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.std.Out, "%s %s\n", plural(len(s.Done), "dead letter"), past)
		for _, f := range s.Failed {
			fmt.Fprintf(a.std.Err, "%s: %s\n", f.ID, f.Error)
		}
	}
	if len(s.Failed) > 0 {
		return errSilent
	}
	return nil
}
