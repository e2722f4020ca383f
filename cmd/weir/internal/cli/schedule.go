package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/schedule"
)

func (a *app) scheduleCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Add, list, pause, resume, remove and run tasks that come by the clock",
		Long: `Tasks that come by the clock. What is added here is fired by every worker of the stream, from within two seconds on and without
a restart; one task a tick, however many workers there are.

Schedules that workers declare in code, or by weir worker --schedules, are listed too, and can be paused.`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(
		a.scheduleAddCmd(), a.scheduleListCmd(),
		a.scheduleSetCmd("pause", "Let nothing be next until resume", pauseSchedule),
		a.scheduleSetCmd("resume", "Go on after a pause; ticks that have passed are not made up for", resumeSchedule),
		a.scheduleSetCmd("remove", "Forget a schedule", removeSchedule),
		a.scheduleSetCmd("run-now", "Submit the schedule's task now, beside its ticks", runScheduleNow),
	)
	return cmd
}

// openSchedules connects to the stream that the flags name.
func (a *app) openSchedules(ctx context.Context) (*desk, *schedule.Client, error) {
	d, err := a.openDesk(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := schedule.NewClient(d.state, d.names)
	if err != nil {
		d.close()
		return nil, nil, err
	}
	return d, c, nil
}

// scheduleFlags are what `weir schedule add` was told.
type scheduleFlags struct {
	cron, zone, at, anchor string
	every, grace           time.Duration
	missed, overlap        string
	kind, payload, content string
	fields                 map[string]string
	file                   string
}

func (a *app) scheduleAddCmd() *cobra.Command {
	var f scheduleFlags
	cmd := &cobra.Command{
		Use:   "add NAME --type TYPE {--cron PATTERN | --every DURATION | --at TIME} | add --file FILE",
		Short: "Add a schedule, or change the one of that name",
		Long: `Add a schedule, or change the one that was added under its name before: what is next follows from the new one then.

A pattern has five fields (minute, hour, day of month, month, day of week), or six with seconds in front. Ticks later than
--grace were missed, because no worker was up: --missed says what becomes of them.

With --file, all schedules of a YAML or JSON file are added:

  schedules:
    - name: daily-report
      cron: "0 9 * * 1-5"
      zone: Europe/Berlin
      task: {type: report, payload: {team: platform}}`,
		Example: `  weir schedule add daily-report --cron '0 9 * * 1-5' --zone Europe/Berlin --type report --payload '{"team":"platform"}'
  weir schedule add heartbeat --every 30s --missed skip --type ping`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case f.file != "" && len(args) > 0:
				return errors.New("give either a name or --file")
			case f.file == "" && (len(args) != 1 || args[0] == ""):
				return errors.New("give the name of one schedule, or --file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := f.schedules(cmd, args)
			if err != nil {
				return err
			}
			d, c, err := a.openSchedules(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			return a.addSchedules(cmd.Context(), c, all)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.cron, "cron", "", "pattern, such as '0 9 * * 1-5'")
	fs.DurationVar(&f.every, "every", 0, "fixed distance, such as 90s or 24h")
	fs.StringVar(&f.at, "at", "", "a single time, such as 2026-12-24T18:00:00+01:00")
	fs.StringVar(&f.zone, "zone", "", "the clock that --cron is matched against, such as Europe/Berlin (default UTC)")
	fs.StringVar(&f.anchor, "anchor", "", "a tick of --every, from which all others follow (default the beginning of 1970)")
	fs.DurationVar(&f.grace, "grace", 0, "how late a tick may be and still be on time (default 1m)")
	fs.StringVar(&f.missed, "missed", "", "missed ticks: one run for all of them, all, or skip (default one)")
	fs.StringVar(&f.overlap, "overlap", "", "while the task before has not ended: allow, skip, or cancel-old (default allow)")
	fs.StringVar(&f.kind, "type", "", "agent type, or type/handler")
	fs.StringVar(&f.payload, "payload", "{}", "payload of each task")
	fs.StringVar(&f.content, "content-type", "application/json", "media type of --payload")
	fs.StringToStringVar(&f.fields, "task-field", nil, "producer fields of each task, such as source=crm")
	fs.StringVar(&f.file, "file", "", "file with schedules, YAML or JSON")
	return cmd
}

func (f scheduleFlags) schedules(cmd *cobra.Command, args []string) ([]schedule.Schedule, error) {
	if f.file != "" {
		for _, name := range []string{"cron", "every", "at", "zone", "anchor", "grace", "missed", "overlap", "type", "payload", "content-type", "task-field"} {
			if cmd.Flags().Changed(name) {
				return nil, usagef("--%s does not go with --file", name)
			}
		}
		return schedule.Load(f.file)
	}
	if f.kind == "" {
		return nil, usagef("--type is missing")
	}
	if isJSON(f.content) && !json.Valid([]byte(f.payload)) {
		return nil, usagef("--payload is not JSON (say --content-type text/plain for text)")
	}
	s := schedule.Schedule{
		Name: args[0], Cron: f.cron, Every: f.every, Zone: f.zone, Grace: f.grace, Missed: schedule.Missed(f.missed), Overlap: schedule.Overlap(f.overlap),
		Task: actors.NewTask{Type: f.kind, Payload: actors.Raw{ContentType: f.content, Bytes: []byte(f.payload)}},
	}
	for name, value := range f.fields {
		s.Task.Fields = append(s.Task.Fields, actors.Field{Name: name, Value: value})
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"at", f.at, &s.At}, {"anchor", f.anchor, &s.Anchor}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.to, err = time.Parse(time.RFC3339, t.text); err != nil {
			return nil, usagef("--%s (%q) must be a time such as 2026-12-24T18:00:00+01:00", t.flag, t.text)
		}
	}
	return []schedule.Schedule{s}, nil
}

// addedView is what became of the schedules that were to be added.
type addedView struct {
	Added  []scheduleView  `json:"schedules"`
	Failed []settleFailure `json:"failed"`
}

// addSchedules adds all that can be added.
func (a *app) addSchedules(ctx context.Context, c *schedule.Client, all []schedule.Schedule) error {
	v := addedView{Added: []scheduleView{}, Failed: []settleFailure{}}
	for _, s := range all {
		how, err := c.Add(ctx, s)
		if errors.Is(err, schedule.ErrInvalid) && len(all) == 1 {
			return &usageError{err: err}
		}
		if err != nil {
			v.Failed = append(v.Failed, settleFailure{ID: s.Name, Error: oneSentence(err)})
			continue
		}
		list, err := c.List(ctx, s.Name)
		if err != nil {
			return err
		}
		for _, one := range list {
			view := newScheduleView(one)
			view.How = string(how)
			v.Added = append(v.Added, view)
		}
	}
	if a.json {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else {
		for _, s := range v.Added {
			fmt.Fprintf(a.std.Out, "schedule %s: %s, %s\n", oneLine(s.Name, 200), s.How, s.next())
		}
		for _, f := range v.Failed {
			fmt.Fprintf(a.std.Err, "%s: %s\n", cmp.Or(oneLine(f.ID, 200), "a schedule"), f.Error)
		}
	}
	if len(v.Failed) > 0 {
		return errSilent
	}
	return nil
}

func (a *app) scheduleListCmd() *cobra.Command {
	return a.scheduleCommand("list [NAME…]", "List schedules, and how they stand", cobra.ArbitraryArgs, func(cmd *cobra.Command, args []string, c *schedule.Client) error {
		list, err := c.List(cmd.Context(), args...)
		if err != nil {
			return err
		}
		views := make([]scheduleView, len(list))
		for i, s := range list {
			views[i] = newScheduleView(s)
		}
		if a.json {
			return a.printJSON(struct {
				Schedules []scheduleView `json:"schedules"`
			}{views})
		}
		return showSchedules(a.std.Out, views)
	})
}

// scheduleCommand is a command that works with the schedules of the stream.
func (a *app) scheduleCommand(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string, *schedule.Client) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, c, err := a.openSchedules(cmd.Context())
			if err != nil {
				return err
			}
			defer d.close()
			return run(cmd, args, c)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

// setView is what a command did to one schedule.
type setView struct {
	Name   string `json:"name"`
	Done   string `json:"done"`
	InCode bool   `json:"in_code,omitempty"`
	TaskID string `json:"task_id,omitempty"`
	Entry  string `json:"entry_id,omitempty"`
	// Next is the next tick, of a schedule that was resumed.
	Next *time.Time `json:"next,omitempty"`

	text string
}

func (a *app) scheduleSetCmd(verb, short string, set func(context.Context, *schedule.Client, string) (setView, error)) *cobra.Command {
	oneName := func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return errors.New("give the name of one schedule")
		}
		return nil
	}
	return a.scheduleCommand(verb+" NAME", short, oneName, func(cmd *cobra.Command, args []string, c *schedule.Client) error {
		v, err := set(cmd.Context(), c, args[0])
		if errors.Is(err, actors.ErrNoSchedule) {
			return fmt.Errorf("there is no schedule %q", args[0])
		}
		if err != nil {
			return err
		}
		v.Name = args[0]
		if a.json {
			return a.printJSON(v)
		}
		_, err = fmt.Fprintf(a.std.Out, "schedule %s: %s\n", oneLine(v.Name, 200), v.text)
		return err
	})
}

func pauseSchedule(ctx context.Context, c *schedule.Client, name string) (setView, error) {
	return setView{Done: "paused", text: "paused"}, c.Pause(ctx, name)
}

func resumeSchedule(ctx context.Context, c *schedule.Client, name string) (setView, error) {
	if err := c.Resume(ctx, name); err != nil {
		return setView{}, err
	}
	v := setView{Done: "resumed", text: "resumed"}
	list, err := c.List(ctx, name)
	for _, one := range list {
		v.Next, v.text = moment(one.Next), "resumed, "+newScheduleView(one).next()
	}
	return v, err
}

func removeSchedule(ctx context.Context, c *schedule.Client, name string) (setView, error) {
	inCode, err := c.Remove(ctx, name)
	v := setView{Done: "removed", InCode: inCode, text: "removed"}
	if inCode {
		v.text += "; workers declare it: it comes back when one of them starts anew (pause keeps it quiet)"
	}
	return v, err
}

func runScheduleNow(ctx context.Context, c *schedule.Client, name string) (setView, error) {
	t, err := c.RunNow(ctx, name)
	if err != nil {
		return setView{}, err
	}
	return setView{Done: "submitted", TaskID: t.ID, Entry: t.EntryID, text: "submitted task " + t.ID + ", entry " + t.EntryID}, nil
}

// scheduleView is a schedule as `weir schedule list` prints it.
type scheduleView struct {
	Name string `json:"name"`
	// State is on, paused, over (nothing is next any more) or broken.
	State  string `json:"state"`
	InCode bool   `json:"in_code"`
	// When is the pattern, the distance or the time, for a person.
	When string     `json:"when,omitempty"`
	Next *time.Time `json:"next,omitempty"`
	Last *time.Time `json:"last,omitempty"`
	Task string     `json:"last_task_id,omitempty"`
	// Counts of ticks.
	Fired      int64 `json:"fired"`
	Vetoed     int64 `json:"vetoed"`
	Missed     int64 `json:"missed"`
	Overlapped int64 `json:"overlapped"`
	// Passed is the last tick that was passed over, and Why.
	Passed     *time.Time      `json:"passed,omitempty"`
	Why        string          `json:"why,omitempty"`
	Broken     string          `json:"broken,omitempty"`
	How        string          `json:"how,omitempty"`
	Definition json.RawMessage `json:"definition,omitempty"`
}

func newScheduleView(s schedule.Status) scheduleView {
	v := scheduleView{
		Name: s.Name, InCode: s.InCode, State: "on", Next: moment(s.Next), Last: moment(s.Last), Task: s.LastTask,
		Fired: s.Fired, Vetoed: s.Vetoed, Missed: s.Missed, Overlapped: s.Overlapped, Passed: moment(s.Passed), Why: s.Why,
	}
	if json.Valid(s.Definition) {
		v.Definition = s.Definition
	}
	switch {
	case s.Schedule.Cron != "":
		v.When = s.Schedule.Cron
		if s.Schedule.Zone != "" {
			v.When += " " + s.Schedule.Zone
		}
	case s.Schedule.Every != 0:
		v.When = "every " + s.Schedule.Every.String()
	case !s.Schedule.At.IsZero():
		v.When = "at " + s.Schedule.At.Format(time.RFC3339)
	}
	switch {
	case s.Err != nil:
		v.State, v.Broken = "broken", oneSentence(s.Err)
	case s.Paused:
		v.State = "paused"
	case s.Next.IsZero():
		v.State = "over"
	}
	return v
}

// next says when the schedule fires, for a person.
func (v scheduleView) next() string {
	if v.Next == nil {
		return "nothing is next: it is " + v.State
	}
	return "next " + clock(*v.Next)
}

func showSchedules(out io.Writer, views []scheduleView) error {
	if len(views) == 0 {
		fmt.Fprintln(out, "no schedules")
		return nil
	}
	w := table(out)
	row(w, "NAME", "WHEN", "STATE", "NEXT", "LAST", "FIRED", "PASSED OVER", "FROM")
	for _, v := range views {
		from := "client"
		if v.InCode {
			from = "code"
		}
		row(w, oneLine(v.Name, 40), dash(oneLine(v.When, 40)), v.State, seconds(v.Next), seconds(v.Last), count(v.Fired),
			count(v.Vetoed+v.Missed+v.Overlapped), from)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, v := range views {
		if v.Broken != "" {
			fmt.Fprintf(out, "%s is broken: %s\n", oneLine(v.Name, 200), oneLine(v.Broken, 400))
		}
		if v.Why != "" {
			fmt.Fprintf(out, "%s passed over %s: %s\n", oneLine(v.Name, 200), seconds(v.Passed), oneLine(v.Why, 400))
		}
	}
	return nil
}

// seconds is a moment in the reader's zone: ticks seldom have milliseconds.
func seconds(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}
