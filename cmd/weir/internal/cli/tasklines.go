package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/weir-run/weir/actors"
)

// taskLine is a task on a line of a file.
type taskLine struct {
	ID          string            `json:"id"`
	Type        string            `json:"type"`
	Step        string            `json:"step"`
	Payload     json.RawMessage   `json:"payload"`
	Base64      []byte            `json:"payload_base64"`
	ContentType string            `json:"content_type"`
	Fields      map[string]string `json:"fields"`
	Delay       string            `json:"delay"`
	At          string            `json:"at"`
	Unique      string            `json:"unique"`
	For         string            `json:"for"`
}

// taskLines reads tasks from lines of JSON. Empty lines are skipped.
type taskLines struct {
	name string
	kind string // of lines that name none
	in   *bufio.Scanner
	line int
}

func (l *taskLines) next() (actors.NewTask, error) {
	for l.in.Scan() {
		l.line++
		text := bytes.TrimSpace(l.in.Bytes())
		if len(text) == 0 {
			continue
		}
		t, err := parseTaskLine(text, l.kind)
		if err != nil {
			return actors.NewTask{}, fmt.Errorf("line %d of %s: %w", l.line, l.name, err)
		}
		return t, nil
	}
	if err := l.in.Err(); err != nil {
		return actors.NewTask{}, fmt.Errorf("line %d of %s: %w", l.line+1, l.name, err)
	}
	return actors.NewTask{}, io.EOF
}

func parseTaskLine(text []byte, kind string) (actors.NewTask, error) {
	var in taskLine
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a misspelt member would be work that is silently another
	if err := d.Decode(&in); err != nil {
		return actors.NewTask{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return actors.NewTask{}, errors.New("more than one JSON value")
	}
	if in.Type != "" {
		kind = in.Type
	}
	switch {
	case kind == "":
		return actors.NewTask{}, errors.New("it has no type, and --type is not given")
	case in.Payload != nil && in.Base64 != nil:
		return actors.NewTask{}, errors.New("payload and payload_base64 exclude each other")
	}
	t := actors.NewTask{Type: kind, ID: in.ID, Step: in.Step}
	if err := in.when(&t); err != nil {
		return actors.NewTask{}, err
	}
	raw := actors.Raw{ContentType: in.ContentType, Bytes: bytes.Clone(in.Payload)}
	switch {
	case in.Base64 != nil:
		raw.Bytes = in.Base64
	case raw.ContentType == "" && in.Payload != nil:
		raw.ContentType = "application/json"
	case in.Payload != nil && !isJSON(raw.ContentType):
		// Text in another media type is written as a JSON string.
		var s string
		if err := json.Unmarshal(in.Payload, &s); err != nil {
			return actors.NewTask{}, fmt.Errorf("payload of content type %q must be a string: %w", raw.ContentType, err)
		}
		raw.Bytes = []byte(s)
	}
	t.Payload = raw
	for _, name := range slices.Sorted(maps.Keys(in.Fields)) {
		t.Fields = append(t.Fields, actors.Field{Name: name, Value: in.Fields[name]})
	}
	return t, nil
}
