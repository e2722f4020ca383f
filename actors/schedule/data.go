package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// data is a schedule as it stands in a file and in the store. The order of its members is part of the hash.
type data struct {
	Name    string     `json:"name"`
	Cron    string     `json:"cron,omitempty"`
	Every   string     `json:"every,omitempty"`
	Anchor  *time.Time `json:"anchor,omitempty"`
	At      *time.Time `json:"at,omitempty"`
	Zone    string     `json:"zone,omitempty"`
	Grace   string     `json:"grace,omitempty"`
	Missed  Missed     `json:"missed,omitempty"`
	Overlap Overlap    `json:"overlap,omitempty"`
	// When says that the schedule has a condition in code. It cannot be read back.
	When bool     `json:"when,omitempty"`
	Task taskData `json:"task"`
}

// taskData is the task; the payload is one of JSON, text that is not JSON, or any bytes.
type taskData struct {
	Type          string            `json:"type"`
	ContentType   string            `json:"content_type,omitempty"`
	Payload       json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
	Fields        map[string]string `json:"fields,omitempty"`
}

// MarshalJSON writes the schedule as a file has it, without its code.
func (s Schedule) MarshalJSON() ([]byte, error) {
	d, err := dataOf(s)
	if err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads what a file has. A member that there is not is an error.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	var d data
	if err := dec.Decode(&d); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	var err error
	*s, err = d.schedule()
	return err
}

// encode writes a schedule that has its defaults.
func encode(s Schedule) ([]byte, error) {
	d, err := dataOf(s)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("it has %d bytes with its payload, at most %d are allowed", len(text), MaxBytes)
	}
	return text, nil
}

func hashOf(text []byte) string { return messages.WorkHash("schedule", text) }

func dataOf(s Schedule) (data, error) {
	d := data{
		Name: s.Name, Cron: s.Cron, Zone: s.Zone, Missed: s.Missed, Overlap: s.Overlap, When: s.When != nil,
		Every: durationText(s.Every), Grace: durationText(s.Grace), Anchor: timeData(s.Anchor), At: timeData(s.At),
		Task: taskData{Type: s.Task.Type},
	}
	var err error
	if s.Task.Payload != nil {
		var payload []byte
		if d.Task.ContentType, payload, err = actors.Encode(s.Task.Payload); err != nil {
			return d, fmt.Errorf("Task.Payload: %w", err)
		}
		if d.Task.ContentType == messages.TypeJSON && json.Valid(payload) {
			d.Task.Payload, d.Task.ContentType = payload, ""
		} else {
			d.Task.PayloadBase64 = payload
		}
	}
	for _, f := range s.Task.Fields {
		switch _, twice := d.Task.Fields[f.Name]; {
		case !utf8.ValidString(f.Name) || !utf8.ValidString(f.Value):
			return d, fmt.Errorf("Task.Fields: %q must be UTF-8, name and value", f.Name)
		case twice:
			return d, fmt.Errorf("Task.Fields: %q comes twice", f.Name)
		case d.Task.Fields == nil:
			d.Task.Fields = map[string]string{}
		}
		d.Task.Fields[f.Name] = f.Value
	}
	return d, nil
}

func (d data) schedule() (Schedule, error) {
	s := Schedule{
		Name: d.Name, Cron: d.Cron, Zone: d.Zone, Missed: d.Missed, Overlap: d.Overlap,
		Task: actors.NewTask{Type: d.Task.Type},
	}
	var err error
	if s.Every, err = duration("every", d.Every); err != nil {
		return s, err
	}
	if s.Grace, err = duration("grace", d.Grace); err != nil {
		return s, err
	}
	if d.Anchor != nil {
		s.Anchor = *d.Anchor
	}
	if d.At != nil {
		s.At = *d.At
	}
	switch t := d.Task; {
	case t.Payload != nil && t.PayloadBase64 != nil:
		return s, errors.New("task: payload and payload_base64 exclude each other")
	case t.Payload != nil && t.ContentType != "" && t.ContentType != messages.TypeJSON:
		// Text of another kind stands in a JSON string.
		var text string
		if err := json.Unmarshal(t.Payload, &text); err != nil {
			return s, fmt.Errorf("task: the payload of content_type %q must be a string, or payload_base64", t.ContentType)
		}
		s.Task.Payload = actors.Raw{ContentType: t.ContentType, Bytes: []byte(text)}
	case t.Payload != nil:
		var b bytes.Buffer
		if err := json.Compact(&b, t.Payload); err != nil {
			return s, fmt.Errorf("task: payload: %w", err)
		}
		s.Task.Payload = actors.Raw{ContentType: messages.TypeJSON, Bytes: b.Bytes()}
	case t.PayloadBase64 != nil || t.ContentType != "":
		s.Task.Payload = actors.Raw{ContentType: t.ContentType, Bytes: t.PayloadBase64}
	}
	for name, value := range d.Task.Fields {
		s.Task.Fields = append(s.Task.Fields, actors.Field{Name: name, Value: value})
	}
	slices.SortFunc(s.Task.Fields, func(a, b actors.Field) int { return strings.Compare(a.Name, b.Name) })
	if d.When {
		s.broken = errWhen
	}
	return s, nil
}

var errWhen = errors.New("when is code: it stands neither in a file nor in the store")

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func duration(name, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s (%q) must be a duration such as 90s or 24h", name, text)
	}
	return d, nil
}

func timeData(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// clip keeps a name that may be anything short enough for a message.
func clip(s string) string {
	if len(s) <= MaxName {
		return s
	}
	return s[:MaxName] + "…"
}
