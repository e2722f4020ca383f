package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// submitFlags are what `weir submit` was told.
type submitFlags struct {
	kind, id, step, payload, contentType, file string
	count                                      int
	maxPayload                                 int
	maxBacklog                                 int64
	wait                                       bool
	timeout                                    time.Duration
	when                                       whenFlags
}

func (a *app) submitCmd() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit --type TYPE [--id ID] [--payload JSON | --file tasks.jsonl | -]",
		Short: "Submit tasks: one, --count of them, or one a line of a file",
		Long: `Submit tasks to the stream. An id that was submitted before with the same work adds nothing and is reported as known;
with other work it is refused.

Without --file a task has the payload of --payload ({} by default). With --count N there are N of them; their ids are
ID-1 … ID-N, or random without --id.

With --file, or - for the standard input, each line is a JSON object:

  {"id": "r-1", "type": "triage", "payload": {"text": "…"}}

with the optional members step, content_type, payload_base64 (bytes instead of JSON), fields (an object of strings), delay,
at, unique and for. A line without type has that of --type; so it is with --delay, --at, --unique and --for.

With --delay or --at a task is SCHEDULED until its time, by the server's clock: the server keeps it, and a worker of any
group of the stream lets it join the stream then. With --unique KEY --for 1h it adds nothing, and answers with the earlier
task, while one that was submitted with that key in the last hour has it.`,
		Example: `  weir submit --type echo --payload '{"hello":"world"}' --wait
  weir submit --type echo --id reminder --delay 90s
  weir submit --type echo --unique report:today --for 24h
  weir submit --type steps --id s --count 1000 --payload '{"n":3,"sleep_ms":10}'
  jq -c '{id, type: "triage", payload: .}' reports.jsonl | weir submit -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && args[0] != "-" {
				return fmt.Errorf("unexpected argument %q: only - stands alone, for the standard input", args[len(args)-1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.file != "" {
					return usagef("--file and - exclude each other")
				}
				f.file = "-"
			}
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.submit(cmd.Context(), f)
		},
	}
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.kind, "type", "", "agent type, or type/handler")
	fs.StringVar(&f.id, "id", "", "task id (random by default)")
	fs.StringVar(&f.step, "step", "", "the part of the task that this is; usually none")
	fs.StringVar(&f.payload, "payload", "{}", "payload")
	fs.StringVar(&f.contentType, "content-type", "application/json", "media type of --payload")
	fs.StringVar(&f.file, "file", "", "file with a task on each line, - for the standard input")
	fs.IntVar(&f.count, "count", 1, "how many tasks")
	fs.IntVar(&f.maxPayload, "max-payload", 1<<20, "largest payload in bytes; what the workers allow")
	fs.Int64Var(&f.maxBacklog, "max-backlog", 50_000, "refuse while the stream holds so many entries, or so many wait for their time; -1 for no limit")
	fs.BoolVar(&f.wait, "wait", false, "wait for the tasks' ends and print their results; exit 1 when one did not succeed")
	fs.DurationVar(&f.timeout, "timeout", 0, "how long to wait at most (default no limit)")
	f.when.add(fs)
	env(fs, "max-payload")
	env(fs, "max-backlog")
	return cmd
}

func (f submitFlags) check(cmd *cobra.Command) error {
	fs := cmd.Flags()
	if err := f.when.check(); err != nil {
		return err
	}
	if f.file != "" {
		for _, name := range []string{"id", "step", "payload", "content-type", "count"} {
			if fs.Changed(name) {
				return usagef("--%s does not go with a file of tasks", name)
			}
		}
		return nil
	}
	switch {
	case f.kind == "":
		return usagef("--type is missing")
	case f.count < 1:
		return usagef("--count (%d) must be at least 1", f.count)
	case fs.Changed("timeout") && !f.wait:
		return usagef("--timeout goes with --wait")
	case isJSON(f.contentType) && !json.Valid([]byte(f.payload)):
		return usagef("--payload is not JSON (say --content-type text/plain for text)")
	}
	return nil
}

func isJSON(contentType string) bool { return contentType == "application/json" }

// submitBatch is how many tasks are sent at once.
const submitBatch = 1000

// submit sends all tasks and reports.
func (a *app) submit(ctx context.Context, f submitFlags) error {
	next, closeSource, err := a.taskSource(f)
	if err != nil {
		return err
	}
	defer closeSource()
	d, err := a.openDesk(ctx, actors.MaxPayload(f.maxPayload), actors.MaxBacklog(f.maxBacklog))
	if err != nil {
		return err
	}
	defer d.close()

	before, err := d.before(ctx, f)
	if err != nil {
		return err
	}
	report := submitReport{before: before, keep: a.json || f.wait || f.count == 1 && f.file == ""}
	for end := false; !end; {
		batch := make([]actors.NewTask, 0, submitBatch)
		for len(batch) < submitBatch {
			t, err := next()
			if errors.Is(err, io.EOF) {
				end = true
				break
			}
			if err != nil {
				return a.failSubmit(report, err)
			}
			f.when.apply(&t)
			batch = append(batch, t)
		}
		if len(batch) == 0 {
			break
		}
		sent, err := d.client.SubmitAll(ctx, batch)
		report.add(sent)
		if err != nil {
			return a.failSubmit(report, err)
		}
	}
	if f.wait {
		patience, cancel := ctx, context.CancelFunc(func() {})
		if f.timeout > 0 {
			patience, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("--timeout (%v) is over", f.timeout))
		}
		defer cancel()
		report.wait(patience)
		report.explain(ctx, d)
	}
	return a.showSubmit(report, f.wait)
}

// before is the state that the one task which was asked for by its id has already, "" when nothing has begun it. A
// producer's own entry may have made it, of which submitting knows nothing.
func (d *desk) before(ctx context.Context, f submitFlags) (string, error) {
	if f.id == "" || f.count != 1 {
		return "", nil
	}
	r, err := d.client.Task(f.id).Status(ctx)
	switch {
	case errors.Is(err, actors.ErrNoTask):
		return "", nil
	case err != nil:
		return "", err
	}
	if u := unitOf(r, f.step); u != nil && !u.Began.IsZero() {
		return actors.StateName(u.State), nil
	}
	return "", nil
}

func unitOf(r *actors.TaskRecord, unit string) *actors.UnitRecord {
	for i := range r.Units {
		if r.Units[i].Unit == unit {
			return &r.Units[i]
		}
	}
	return nil
}

// failSubmit says what was submitted before the error stopped it.
func (a *app) failSubmit(r submitReport, err error) error {
	if r.New+r.Known > 0 || a.json {
		r.Error = oneSentence(err)
		if shown := a.showSubmit(r, false); shown != nil && !errors.Is(shown, errSilent) {
			return shown
		}
	}
	return err
}

// submitReport is the answer of `weir submit`.
type submitReport struct {
	New   int             `json:"new"`
	Known int             `json:"known"`
	Error string          `json:"error,omitempty"`
	Tasks []submittedTask `json:"tasks"`

	keep   bool
	before string
	sent   []*actors.Task
	wrong  int
}

type submittedTask struct {
	TaskID  string `json:"task_id"`
	Unit    string `json:"unit,omitempty"`
	EntryID string `json:"entry_id"` // empty while it waits for its time
	Known   bool   `json:"known"`
	// DueAt is when it joins the stream.
	DueAt *time.Time `json:"due_at,omitempty"`
	// Before is the state that the task had already when this entry of it was new.
	Before string `json:"state_before,omitempty"`
	State  string `json:"state,omitempty"`
	content
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
}

func (r *submitReport) add(sent []*actors.Task) {
	for _, t := range sent {
		if t == nil {
			continue // refused: the error says why
		}
		if t.Known {
			r.Known++
		} else {
			r.New++
		}
		if r.keep {
			r.sent = append(r.sent, t)
			done := submittedTask{TaskID: t.ID, Unit: t.Unit, EntryID: t.EntryID, Known: t.Known, DueAt: moment(t.Due)}
			if !t.Known {
				done.Before = r.before
			}
			r.Tasks = append(r.Tasks, done)
		}
	}
}

// wait waits for every task in turn: while one is waited for, the others end too.
func (r *submitReport) wait(ctx context.Context) {
	for i, t := range r.sent {
		raw, err := actors.Result[actors.Raw](ctx, t)
		out := &r.Tasks[i]
		var failed *actors.TaskError
		switch {
		case err == nil:
			out.State, out.content = "SUCCEEDED", newContent(raw.ContentType, raw.Bytes)
			continue
		case errors.As(err, &failed):
			out.State, out.Reason, out.Error = actors.StateName(failed.State), failed.Reason, failed.Detail
		default:
			out.Error = oneSentence(err)
		}
		r.wrong++
	}
}

// explain says how those stand that have not ended: it is no more than help, so what goes wrong with it is left out.
func (r *submitReport) explain(ctx context.Context, d *desk) {
	var pending []string
	for i := range r.Tasks {
		t := &r.Tasks[i]
		if t.State != "" {
			continue
		}
		record, err := r.sent[i].Status(ctx)
		if err != nil {
			return
		}
		u := unitOf(record, t.Unit)
		if u == nil {
			continue
		}
		t.State = actors.StateName(u.State)
		switch {
		case u.State == messages.State_STATE_SCHEDULED:
			t.Error += "; it " + dueText(u.Due)
		case u.Began.IsZero():
			pending = append(pending, t.TaskID)
		}
	}
	if len(pending) == 0 {
		return
	}
	found, err := d.standings(ctx, pending...)
	if err != nil {
		return
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		for _, s := range found[t.TaskID] {
			if s.Unit == t.Unit && t.Error != "" {
				t.Error += "; it " + s.String()
				break
			}
		}
	}
}

func (a *app) showSubmit(r submitReport, waited bool) error {
	if err := a.printSubmit(r, waited); err != nil {
		return err
	}
	if r.wrong > 0 {
		return errSilent
	}
	return nil
}

func (a *app) printSubmit(r submitReport, waited bool) error {
	if a.json {
		if r.Tasks == nil {
			r.Tasks = []submittedTask{}
		}
		return a.printJSON(r)
	}
	if len(r.Tasks) == 1 && r.New+r.Known == 1 {
		word := "new"
		switch before := r.Tasks[0].Before; {
		case r.Known == 1:
			word = "known"
		case before == "SUCCEEDED":
			word = "new entry; the task is done already"
		case before != "":
			word = "new entry; the task is " + before + " already"
		}
		where := "entry " + r.Tasks[0].EntryID
		if due := r.Tasks[0].DueAt; due != nil {
			where = dueText(*due)
		}
		fmt.Fprintf(a.std.Out, "task %s: %s, %s\n", oneLine(r.Tasks[0].TaskID, 1024), word, where)
	} else {
		fmt.Fprintf(a.std.Out, "%s: %s new, %s known\n", plural(r.New+r.Known, "task"), count(int64(r.New)), count(int64(r.Known)))
	}
	if !waited {
		return nil
	}
	w := table(a.std.Out)
	row(w, "TASK", "STATE", "RESULT")
	for _, t := range r.Tasks {
		result := string(t.Result)
		switch {
		case t.Error != "":
			result = firstLine(t.Error)
			if t.Reason != "" && !strings.HasPrefix(result, t.Reason) {
				result = t.Reason + ": " + result
			}
		case t.Base64 != nil:
			result = plural(len(t.Base64), "byte")
		}
		row(w, oneLine(t.TaskID, 60), dash(t.State), dash(result))
	}
	return w.Flush()
}

// taskSource gives one task after the other, and io.EOF at the end.
func (a *app) taskSource(f submitFlags) (next func() (actors.NewTask, error), done func(), err error) {
	if f.file == "" {
		n := 0
		return func() (actors.NewTask, error) {
			if n++; n > f.count {
				return actors.NewTask{}, io.EOF
			}
			t := actors.NewTask{
				Type: f.kind, ID: f.id, Step: f.step,
				Payload: actors.Raw{ContentType: f.contentType, Bytes: []byte(f.payload)},
			}
			if f.id != "" && f.count > 1 {
				t.ID += "-" + strconv.Itoa(n)
			}
			return t, nil
		}, func() {}, nil
	}
	in, name, done := a.std.In, "the standard input", func() {}
	if f.file != "-" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, nil, err
		}
		in, name, done = file, f.file, func() { file.Close() }
	}
	lines := &taskLines{name: name, kind: f.kind, in: bufio.NewScanner(in)}
	// A payload in JSON may be longer than its bytes, and base64 is by a third.
	lines.in.Buffer(nil, 2*f.maxPayload+1<<16)
	return lines.next, done, nil
}
