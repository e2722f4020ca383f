package cli

import (
	"encoding/json"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// content is bytes as JSON shows them: a JSON value as it is, text as a string, anything else in base64.
type content struct {
	Result json.RawMessage `json:"result,omitempty"`
	Base64 []byte          `json:"result_base64,omitempty"`
}

func newContent(contentType string, b []byte) content {
	if len(b) == 0 {
		return content{}
	}
	media, _, _ := mime.ParseMediaType(contentType)
	jsonish := media == "" || media == "application/json" || strings.HasSuffix(media, "+json")
	switch {
	case jsonish && json.Valid(b):
		return content{Result: b}
	case utf8.Valid(b):
		text, err := json.Marshal(string(b))
		if err == nil {
			return content{Result: text}
		}
	}
	return content{Base64: b}
}

// showBytes is the same for a person.
func showBytes(b []byte, most int) string { return dash(oneLine(string(b), most)) }

// taskView is a task as `weir task` prints it.
type taskView struct {
	TaskID string `json:"task_id"`
	// State of the task's only unit, or of the whole task's where there are more; empty without that one.
	State   string `json:"state,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Fence   uint64 `json:"fence"`
	Queued  int64  `json:"queued,omitempty"`
	EntryID string `json:"entry_id,omitempty"`
	// Deliveries of the entry while it is pending.
	Deliveries int64 `json:"deliveries,omitempty"`
	// Waits are its entries in the streams of agent types; only looked for while a unit was never begun.
	Waits []standing `json:"waits_for_type,omitempty"`
	// DeadLetter is the newest one of a task that was never begun.
	DeadLetter *letterView `json:"dead_letter,omitempty"`
	// Unread are the messages to it that nothing has waited for yet.
	Unread   int64      `json:"unread,omitempty"`
	TTLMS    int64      `json:"ttl_ms,omitempty"`
	Units    []unitView `json:"units"`
	Timeline []lineView `json:"timeline"`
}

type unitView struct {
	Unit        string        `json:"unit,omitempty"`
	State       string        `json:"state"`
	Type        string        `json:"type,omitempty"`
	Attempt     int64         `json:"attempt"`
	Attempts    actors.Ledger `json:"attempts"`
	CreatedAt   *time.Time    `json:"created_at,omitempty"`
	BeganAt     *time.Time    `json:"began_at,omitempty"`
	UpdatedAt   *time.Time    `json:"updated_at,omitempty"`
	DueAt       *time.Time    `json:"due_at,omitempty"`
	ContentType string        `json:"content_type,omitempty"`
	content
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Doubt is the step whose effect is unknown.
	Doubt string `json:"doubt,omitempty"`
	// WaitingFor is what it waits for now, also beside a retry.
	WaitingFor []waitView `json:"waiting_for,omitempty"`
	Steps      []stepView `json:"steps"`
}

// waitView is an open wait.
type waitView struct {
	Wait     string            `json:"wait"`
	Kind     messages.WaitKind `json:"kind"`
	Messages []messages.Slot   `json:"messages,omitempty"`
	Children []string          `json:"children,omitempty"`
	Since    *time.Time        `json:"since,omitempty"`
	Deadline *time.Time        `json:"deadline,omitempty"`
}

// String says what ends the wait.
func (v waitView) String() string {
	var names []string
	for _, m := range v.Messages {
		name := m.Message
		if m.Nth > 1 {
			name += " (" + strconv.Itoa(m.Nth) + ")"
		}
		names = append(names, name)
	}
	names = append(names, v.Children...)
	text := v.Wait
	switch {
	case v.Kind == messages.WaitTimer:
		text += ": its time"
	case len(names) != 1 || names[0] != v.Wait:
		text += ": " + string(v.Kind) + " of " + strings.Join(names[:min(len(names), 5)], ", ")
		if len(names) > 5 {
			text += ", …"
		}
	}
	if v.Deadline != nil {
		text += ", until " + clock(*v.Deadline)
	}
	return oneLine(text, 200)
}

type stepView struct {
	Step        string     `json:"step"`
	Status      string     `json:"status"`
	Attempts    int        `json:"attempts"`
	BeganAt     *time.Time `json:"began_at,omitempty"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	TookMS      int64      `json:"took_ms"`
	ContentType string     `json:"content_type,omitempty"`
	content
	Error string `json:"error,omitempty"`
}

type lineView struct {
	At     time.Time `json:"at"`
	What   string    `json:"what"`
	Detail string    `json:"detail,omitempty"`
}

// moment leaves a missing time out of JSON, and gives every other one in UTC.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func millis(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	return moment(time.UnixMilli(ms))
}

func newTaskView(r *actors.TaskRecord) taskView {
	v := taskView{
		TaskID: r.ID, Owner: r.Owner, Fence: r.Fence, Queued: r.Queued, Unread: r.Unread, EntryID: r.EntryID, TTLMS: r.TTL.Milliseconds(),
		Units: []unitView{}, Timeline: []lineView{},
	}
	for _, u := range r.Units {
		v.Units = append(v.Units, newUnitView(u))
		if u.Unit == "" || len(r.Units) == 1 {
			v.State = actors.StateName(u.State)
		}
	}
	for _, l := range r.Log {
		v.Timeline = append(v.Timeline, lineView{At: l.At.UTC(), What: l.What, Detail: l.Detail})
	}
	return v
}

func newUnitView(u actors.UnitRecord) unitView {
	v := unitView{
		Unit: u.Unit, State: actors.StateName(u.State), Type: u.Type, Attempt: attempt(u), Attempts: u.Ledger,
		CreatedAt: moment(u.Created), BeganAt: moment(u.Began), UpdatedAt: moment(u.Updated), DueAt: moment(u.Due),
		ContentType: u.ContentType, content: newContent(u.ContentType, u.Result),
		Error: u.Error, Reason: actors.ReasonName(u.Reason), Doubt: u.Doubt, Steps: []stepView{},
	}
	for _, w := range u.Waits {
		v.WaitingFor = append(v.WaitingFor, waitView{
			Wait: w.Name, Kind: w.Kind, Messages: w.Slots, Children: w.Children, Since: moment(w.Since), Deadline: moment(w.Deadline),
		})
	}
	for _, s := range u.Steps {
		step := stepView{
			Step: s.Name, Status: string(s.Status), Attempts: s.Attempts, BeganAt: millis(s.BeganMS), EndedAt: millis(s.EndedMS),
			ContentType: s.ContentType, Error: s.Error,
		}
		if s.Status.HasResult() { // the value of another is Weir's own note
			step.content = newContent(s.ContentType, s.Value)
		}
		if s.EndedMS > 0 {
			step.TookMS = s.EndedMS - s.BeganMS
		}
		v.Steps = append(v.Steps, step)
	}
	return v
}

// attempt is the number of the attempt that runs, comes next or succeeded. A unit that ended otherwise has only those that
// it was charged with.
func attempt(u actors.UnitRecord) int64 {
	n := u.Ledger.Attempt()
	if u.State == messages.State_STATE_FAILED || u.State == messages.State_STATE_CANCELLED {
		n--
	}
	return n
}

// letterView is a dead letter as `weir dead` prints it.
type letterView struct {
	ID         string      `json:"id"`
	Reason     string      `json:"reason"`
	Detail     string      `json:"detail"`
	TaskID     string      `json:"task_id,omitempty"`
	Unit       string      `json:"unit,omitempty"`
	Type       string      `json:"type,omitempty"`
	Stream     string      `json:"stream"`
	EntryID    string      `json:"entry_id"`
	Deliveries int64       `json:"deliveries"`
	At         time.Time   `json:"at"`
	Bytes      int64       `json:"bytes"`
	Fields     []fieldView `json:"fields,omitempty"`
}

// fieldView is a field of the entry: text, or base64 where it is none.
type fieldView struct {
	Name        *string `json:"name,omitempty"`
	NameBase64  []byte  `json:"name_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

func newLetterView(l *messages.DeadLetter, withFields bool) letterView {
	v := letterView{
		ID: l.GetId(), Reason: actors.ReasonName(l.GetReason()), Detail: l.GetDetail(), TaskID: l.GetTaskId(), Unit: l.GetUnit(),
		Type: l.GetType(), Stream: l.GetEntry().GetStream(), EntryID: l.GetEntry().GetId(),
		Deliveries: l.GetEntry().GetDeliveries(), At: time.UnixMilli(l.GetAtMs()).UTC(),
	}
	for _, f := range l.GetFields() {
		v.Bytes += int64(len(f.GetName()) + len(f.GetValue()))
		if !withFields {
			continue
		}
		var field fieldView
		field.Name, field.NameBase64 = textOrBytes(f.GetName())
		field.Value, field.ValueBase64 = textOrBytes(f.GetValue())
		v.Fields = append(v.Fields, field)
	}
	return v
}

func textOrBytes(b []byte) (*string, []byte) {
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	return nil, b
}
