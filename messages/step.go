package messages

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// StepStatus is what is known of a step.
type StepStatus string

const (
	// StepDone means the value is the step's result.
	StepDone StepStatus = "done"
	// StepFound is StepDone where the value was found by the step's key (Verify): an earlier try had its effect, and this
	// one did not run. Only reports tell the two apart.
	StepFound StepStatus = "found"
	// StepIntent means the effect was about to begin: after a crash its outcome is unknown.
	StepIntent StepStatus = "intent"
	// StepRetrying means it failed and will be tried again; Error says why.
	StepRetrying StepStatus = "retrying"
	// StepSpent means its retries are used up; Error says why.
	StepSpent StepStatus = "spent"
	// StepWaited means that a wait of that name is over; the value says how (EncodeWaited).
	StepWaited StepStatus = "waited"
	// StepSpawned means that the child task of that name was started and has not ended; the value is its id.
	StepSpawned StepStatus = "spawned"
	// StepChild means that the child task of that name has ended: with a result, or FAILED or CANCELLED as Error says.
	StepChild StepStatus = "child"
)

// HasResult says that the step is over and its value is its result: it does not run again.
func (s StepStatus) HasResult() bool { return s == StepDone || s == StepFound }

// OfStep says that a step left the checkpoint, and not a wait or a child.
func (s StepStatus) OfStep() bool { return s != StepWaited && s != StepSpawned && s != StepChild }

// Step is the checkpoint of one step. Its identity is the unit and the name, never the position.
type Step struct {
	Name        string
	Status      StepStatus
	Attempts    int    // tries so far
	BeganMS     int64  // Unix ms of the last try's begin, by the node's clock
	EndedMS     int64  // Unix ms of its end; 0 while it runs
	ContentType string // of Value
	Value       []byte // the result
	Error       string // the last failure
}

// ErrStep means that a checkpoint cannot be read.
var ErrStep = errors.New("damaged checkpoint")

// EncodeStep writes a checkpoint without its name: a header line that a person can read, then the error text, then the
// value's bytes. The header is status, attempts, began, ended, length of the error, length of the value, content type:
//
//	done 1 1764000000000 1764000000042 0 17 application/json
func EncodeStep(s Step) []byte {
	b := make([]byte, 0, 64+len(s.ContentType)+len(s.Error)+len(s.Value))
	b = append(b, s.Status...)
	for _, n := range [...]int64{int64(s.Attempts), s.BeganMS, s.EndedMS, int64(len(s.Error)), int64(len(s.Value))} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	b = append(append(append(b, ' '), s.ContentType...), '\n')
	return append(append(b, s.Error...), s.Value...)
}

// DecodeStep undoes EncodeStep; what it cannot read, or what was cut short, is ErrStep: such a checkpoint sets its own
// task aside and nothing else.
func DecodeStep(name string, b []byte) (Step, error) {
	head, rest, ok := strings.Cut(string(b), "\n")
	f := strings.SplitN(head, " ", 7)
	if !ok || len(f) != 7 {
		return Step{}, fmt.Errorf("step %q: header %.40q: %w", name, head, ErrStep)
	}
	s := Step{Name: name, Status: StepStatus(f[0]), ContentType: f[6]}
	switch s.Status {
	case StepDone, StepFound, StepIntent, StepRetrying, StepSpent, StepWaited, StepSpawned, StepChild:
	default:
		return Step{}, fmt.Errorf("step %q: status %.20q: %w", name, f[0], ErrStep)
	}
	var n [5]int64
	for i := range n {
		v, err := strconv.ParseInt(f[i+1], 10, 64)
		if err != nil || v < 0 {
			return Step{}, fmt.Errorf("step %q: header %.60q: %w", name, head, ErrStep)
		}
		n[i] = v
	}
	s.Attempts, s.BeganMS, s.EndedMS = int(n[0]), n[1], n[2]
	if size := int64(len(rest)); n[3] > size || n[4] != size-n[3] {
		return Step{}, fmt.Errorf("step %q: %d bytes where %d were written: %w", name, size, n[3]+n[4], ErrStep)
	}
	s.Error = rest[:n[3]]
	if v := rest[n[3]:]; v != "" {
		s.Value = []byte(v)
	}
	return s, nil
}

// Waited is how a wait ended, as the checkpoint of its name keeps it: self-contained, so that a replay sees what the first
// run saw whatever has come since.
type Waited struct {
	// Timeout says that the time was over first. For a timer that is its purpose.
	Timeout bool
	// Messages are those that were there, by the number of the slot from 0: one for a wait for the first of several.
	Messages map[int]Mail
	// Children are the names of the children that had ended; nil says all of them.
	Children []string
}

// Mail is a message to a task.
type Mail struct {
	ContentType string
	Payload     []byte
}

// EncodeWaited writes it as packed fields, which the scripts write too: "timeout" with "1" where the time was over; the
// number of a slot with content type, line feed, payload; "some" with "1", then "child" with a name for each, where not all
// children had ended.
func EncodeWaited(w Waited) []byte {
	var fields []Pair
	if w.Timeout {
		fields = append(fields, Pair{"timeout", "1"})
	}
	for _, n := range slices.Sorted(maps.Keys(w.Messages)) {
		m := w.Messages[n]
		fields = append(fields, Pair{strconv.Itoa(n), m.ContentType + "\n" + string(m.Payload)})
	}
	if w.Children != nil {
		fields = append(fields, Pair{"some", "1"})
	}
	for _, name := range w.Children {
		fields = append(fields, Pair{"child", name})
	}
	return []byte(PackFields(fields))
}

// DecodeWaited undoes EncodeWaited; what it cannot read is ErrStep.
func DecodeWaited(name string, b []byte) (Waited, error) {
	var w Waited
	fields, err := UnpackFields(string(b))
	if err != nil {
		return w, fmt.Errorf("wait %q: %w: %w", name, err, ErrStep)
	}
	for _, f := range fields {
		switch f.Name {
		case "timeout":
			w.Timeout = true
		case "child":
			w.Children = append(w.Children, f.Value)
		case "some":
			w.Children = []string{}
		default:
			n, err := strconv.Atoi(f.Name)
			contentType, payload, ok := strings.Cut(f.Value, "\n")
			if err != nil || n < 0 || !ok {
				return w, fmt.Errorf("wait %q: field %.20q: %w", name, f.Name, ErrStep)
			}
			if w.Messages == nil {
				w.Messages = map[int]Mail{}
			}
			w.Messages[n] = Mail{contentType, []byte(payload)}
		}
	}
	return w, nil
}
