package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/examples/triage/triage"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/supervision"
)

const (
	// demoSample is how often one of the results is shown.
	demoSample = 500 * time.Millisecond
	// demoProgress is how often the count is shown where lines cannot be overwritten.
	demoProgress = time.Second
)

// story is the account of a demo: lines as things happen, and what they come to.
type story struct {
	out   io.Writer
	quiet bool
	tty   bool // the last line can be overwritten
	since time.Time

	mu       sync.Mutex
	victim   string
	total    int
	done     int
	began    int
	running  bool
	sampled  time.Time
	counted  time.Time
	stepsRun int
	crash    *demoCrash
	crashed  time.Time
	before   []string // steps of the victim before its crash
	sample   triage.Result
}

// demoCrash is what the crash cost.
type demoCrash struct {
	TaskID string `json:"task_id"`
	Step   string `json:"step"`
	// Kept steps were not run again, Repeated ones were.
	Kept        []string `json:"kept_steps"`
	Repeated    []string `json:"repeated_steps"`
	RecoveredMS int64    `json:"recovered_ms"`
}

func newStory(std Std, quiet bool) *story {
	s := &story{out: std.Out, quiet: quiet, since: time.Now()}
	if f, ok := std.Out.(*os.File); ok && std.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		s.tty = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// tell writes a line.
func (s *story) tell(what, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line(what, fmt.Sprintf(format, args...))
}

func (s *story) line(what, text string) {
	if s.quiet {
		return
	}
	if s.tty && s.running {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	fmt.Fprintf(s.out, "%5.1fs  %-10s %s\n", time.Since(s.since).Seconds(), what, oneLine(text, 200))
	s.progress(true)
}

// progress shows the count: overwriting itself on a terminal, once in a while elsewhere.
func (s *story) progress(again bool) {
	if !s.running || s.quiet {
		return
	}
	text := fmt.Sprintf("%d of %d reports done, %d at work", s.done, s.total, s.began-s.done)
	switch {
	case s.tty:
		const width = 30
		full := width * s.done / max(s.total, 1)
		fmt.Fprintf(s.out, "\r\x1b[K%5.1fs  %s%s %s", time.Since(s.since).Seconds(), strings.Repeat("█", full), strings.Repeat("░", width-full), text)
	case !again && time.Since(s.counted) >= demoProgress:
		s.counted = time.Now()
		fmt.Fprintf(s.out, "%5.1fs  %-10s %s\n", time.Since(s.since).Seconds(), "progress", text)
	}
}

func (s *story) begin(total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total, s.running, s.counted = total, true, time.Now()
}

func (s *story) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running && s.tty && !s.quiet {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	s.running = false
}

// on takes the runtime's events, one after the other.
func (s *story) on(e supervision.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case supervision.TaskBegan:
		if e.Attempt == 1 {
			s.began++
		}
		s.progress(false)
	case supervision.StepRan:
		s.step(e)
	case supervision.AgentCrashed:
		s.stepsRun++ // the step that was cut off ran as well
		s.crash, s.crashed = &demoCrash{TaskID: e.TaskID, Step: "reply"}, time.Now()
		s.line("CRASH", fmt.Sprintf("%s: its agent panicked in step %q, when the model had answered and nothing was kept yet", e.TaskID, s.crash.Step))
	case supervision.EntryBuried:
		s.line("set aside", fmt.Sprintf("entry %s is a dead letter now, its bytes kept (%s: %s); the others go on", e.ID, actors.ReasonName(e.Reason), e.Detail))
	case supervision.TaskEnded:
		if e.Outcome == messages.Outcome_OUTCOME_COMPLETED {
			s.done++
		}
		if s.crash != nil && e.TaskID == s.crash.TaskID && e.Outcome == messages.Outcome_OUTCOME_COMPLETED {
			s.recovered()
		}
		s.progress(false)
	}
}

func (s *story) step(e supervision.StepRan) {
	s.stepsRun++
	if e.TaskID != s.victim || e.Err != nil {
		return
	}
	if s.crash == nil {
		s.before = append(s.before, e.Step)
	} else {
		s.crash.Repeated = append(s.crash.Repeated, e.Step)
	}
}

func (s *story) recovered() {
	c := s.crash
	c.RecoveredMS = time.Since(s.crashed).Milliseconds()
	c.Kept = slices.DeleteFunc(slices.Clone(s.before), func(step string) bool { return slices.Contains(c.Repeated, step) })
	s.line("recovered", fmt.Sprintf("%s: a fresh agent finished it %d ms later; %s ran again, %s did not",
		c.TaskID, c.RecoveredMS, strings.Join(c.Repeated, " and "), strings.Join(c.Kept, " and ")))
}

// result shows one of the results now and then.
func (s *story) result(r triage.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ID == s.victim {
		s.sample = r
	}
	if time.Since(s.sampled) < demoSample {
		return
	}
	s.sampled = time.Now()
	text := r.ID + ": " + r.Intent
	if len(r.Similar) > 0 {
		text += ", like " + strings.Join(r.Similar, ", ")
	}
	s.line("answered", text)
}

// outcome is what the events came to.
func (s *story) outcome() (stepsRun int, crash *demoCrash) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stepsRun, s.crash
}

// demoSummary is a demo in numbers.
type demoSummary struct {
	Where      string      `json:"where"`
	Stream     string      `json:"stream,omitempty"`
	Reports    int         `json:"reports"`
	Succeeded  int         `json:"succeeded"`
	Failed     int         `json:"failed"`
	StepsRun   int         `json:"steps_run"`
	ModelCalls int         `json:"model_calls"`
	Crash      *demoCrash  `json:"crash"`
	DeadLetter *letterView `json:"dead_letter"`
	ElapsedMS  int64       `json:"elapsed_ms"`
	PerSecond  float64     `json:"tasks_per_second"`
}

// problem says what did not go as it must, or "".
func (d demoSummary) problem() string {
	switch {
	case d.Succeeded != d.Reports:
		return fmt.Sprintf("%d of %d reports succeeded", d.Succeeded, d.Reports)
	case d.Crash == nil || len(d.Crash.Repeated) != 1 || len(d.Crash.Kept) != 2:
		return "the crash was not recovered from as it must be"
	case d.ModelCalls != 2*d.Reports+1:
		return fmt.Sprintf("the model was asked %d times for %d reports", d.ModelCalls, d.Reports)
	}
	return ""
}

func (a *app) showDemo(s *story, d demoSummary) error {
	problem := d.problem()
	if a.json {
		if err := a.printJSON(d); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(s.out, "\nthe reply to %s, after the crash:\n\n%s\n", s.sample.ID, indent(wrap(s.sample.Reply, 100)))
		d.show(s.out)
	}
	if problem != "" {
		return fmt.Errorf("not as promised: %s", problem)
	}
	return nil
}

func (d demoSummary) show(out io.Writer) {
	fmt.Fprintln(out)
	w := table(out)
	row(w, "reports", fmt.Sprintf("%d submitted, %d answered, %d failed, in %.1f s (%.0f a second)",
		d.Reports, d.Succeeded, d.Failed, float64(d.ElapsedMS)/1000, d.PerSecond))
	row(w, "steps", fmt.Sprintf("%d run: 3 a report, and 1 again after the crash", d.StepsRun))
	row(w, "model", fmt.Sprintf("%d calls: 2 a report, and 1 again after the crash", d.ModelCalls))
	if c := d.Crash; c != nil {
		row(w, "crashes", fmt.Sprintf("1, recovered in %d ms; kept: %s; run again: %s", c.RecoveredMS, strings.Join(c.Kept, ", "), strings.Join(c.Repeated, ", ")))
	}
	if l := d.DeadLetter; l != nil {
		row(w, "dead letters", fmt.Sprintf("1: entry %s, %s (%s)", l.EntryID, l.Reason, l.Detail))
	}
	_ = w.Flush() // a terminal that is gone
}

// wrap breaks text between words, at most so many characters a line.
func wrap(text string, width int) string {
	var b strings.Builder
	col := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case col == 0:
		case col+1+n > width:
			b.WriteByte('\n')
			col = 0
		default:
			b.WriteByte(' ')
			col++
		}
		b.WriteString(word)
		col += n
	}
	return b.String()
}

func indent(text string) string { return "  " + strings.ReplaceAll(text, "\n", "\n  ") }
