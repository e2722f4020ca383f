package messages

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// FieldNames are the names of the entry's fields. The zero value means the defaults; a producer written for another
// consumer need not change.
type FieldNames struct {
	TaskID      string // default "task_id"
	Type        string // default "type"
	Payload     string // default "payload"
	Step        string // default "step"
	Attempt     string // default "attempt"
	CreatedAt   string // default "created_at", Unix milliseconds
	ContentType string // default "content_type"
	EventID     string // default "event_id"
	Source      string // default "source"
	TraceParent string // default "traceparent"
	// Message names a message to the task: an entry that has it and no type begins nothing. Default "message", unless another
	// field has that name: then no entry is a message until this one is named too.
	Message string
	// Root and Due stay among the producer's own fields, and a value that is not what their names say is no error there.
	Root string // default "root": the id of the task that a chain of tasks began with
	// Due is also when a task that was never begun runs at the earliest: an entry that is read before then waits for its time,
	// unless that is more than ten years ahead.
	Due string // default "due": Unix milliseconds of the tick of a schedule that the task is for, or of when it is to run
}

// WithDefaults returns a copy in which every empty name has its default.
func (f FieldNames) WithDefaults() FieldNames {
	f.TaskID = cmp.Or(f.TaskID, "task_id")
	f.Type = cmp.Or(f.Type, "type")
	f.Payload = cmp.Or(f.Payload, "payload")
	f.Step = cmp.Or(f.Step, "step")
	f.Attempt = cmp.Or(f.Attempt, "attempt")
	f.CreatedAt = cmp.Or(f.CreatedAt, "created_at")
	f.ContentType = cmp.Or(f.ContentType, "content_type")
	f.EventID = cmp.Or(f.EventID, "event_id")
	f.Source = cmp.Or(f.Source, "source")
	f.TraceParent = cmp.Or(f.TraceParent, "traceparent")
	f.Root = cmp.Or(f.Root, "root")
	f.Due = cmp.Or(f.Due, "due")
	if f.Message == "" && !f.taken("message") {
		f.Message = "message"
	}
	return f
}

// taken reports whether a field other than Message has that name.
func (f FieldNames) taken(name string) bool {
	f.Message = ""
	return slices.ContainsFunc(f.all(), func(n named) bool { return n.name == name })
}

type named struct{ meaning, name string }

func (f FieldNames) all() []named {
	return []named{
		{"TaskID", f.TaskID},
		{"Type", f.Type},
		{"Payload", f.Payload},
		{"Step", f.Step},
		{"Attempt", f.Attempt},
		{"CreatedAt", f.CreatedAt},
		{"ContentType", f.ContentType},
		{"EventID", f.EventID},
		{"Source", f.Source},
		{"TraceParent", f.TraceParent},
		{"Message", f.Message},
		{"Root", f.Root},
		{"Due", f.Due},
	}
}

// Validate refuses one name for two meanings.
func (f FieldNames) Validate() error {
	seen := map[string]string{}
	for _, p := range f.all() {
		if other, ok := seen[p.name]; ok && p.name != "" {
			return fmt.Errorf("Names.Fields.%s and Names.Fields.%s are both %q", other, p.meaning, p.name)
		}
		seen[p.name] = p.meaning
	}
	return nil
}

// Pair is one field of an entry as a client hands it over: bytes kept in strings.
type Pair struct{ Name, Value string }

// ErrPacked means that packed fields do not unpack: they were cut or written by something else.
var ErrPacked = errors.New("packed fields are damaged")

// PackFields writes fields as netstrings, name and value in turn: `7:task_id,3:a-1,`. Order, repeats and every byte
// are kept; a script splits it without a library (https://cr.yp.to/proto/netstrings.txt).
func PackFields(fields []Pair) string {
	var b []byte
	for _, f := range fields {
		b = appendNetstring(appendNetstring(b, f.Name), f.Value)
	}
	return string(b)
}

func appendNetstring(b []byte, s string) []byte {
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ':')
	b = append(b, s...)
	return append(b, ',')
}

// UnpackFields undoes PackFields. It returns ErrPacked when packed was not written by it.
func UnpackFields(packed string) ([]Pair, error) {
	var fields []Pair
	for packed != "" {
		name, rest, err := cutNetstring(packed)
		if err != nil {
			return nil, err
		}
		value, rest, err := cutNetstring(rest)
		if err != nil {
			return nil, err
		}
		fields, packed = append(fields, Pair{name, value}), rest
	}
	return fields, nil
}

func cutNetstring(s string) (head, rest string, err error) {
	n, i := 0, 0
	for ; i < len(s) && s[i] >= '0' && s[i] <= '9' && i < 10; i++ {
		n = n*10 + int(s[i]-'0')
	}
	if i == 0 || i >= len(s) || s[i] != ':' || i > 1 && s[0] == '0' || len(s) < i+n+2 || s[i+1+n] != ',' {
		return "", "", ErrPacked
	}
	return s[i+1 : i+1+n], s[i+n+2:], nil
}

// WorkHash names the work behind an identity: 16 hex digits over type, content and length of type and payload. The same
// identity with another hash is a conflict.
func WorkHash(agentType string, payload []byte) string {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(strconv.Itoa(len(agentType)))
	_, _ = d.WriteString(":")
	_, _ = d.WriteString(agentType)
	_, _ = d.Write(payload)
	return hex.EncodeToString(d.Sum(nil))
}

// ProducerFields returns the fields without the control fields that Weir puts in front of what it moves.
func ProducerFields(fields []Pair) []Pair {
	rest := fields
	if len(rest) > 0 && rest[0].Name == ControlID {
		rest = rest[1:]
	}
	if len(rest) > 1 && rest[0].Name == ControlOrigin && rest[1].Name == ControlWake {
		return rest[2:]
	}
	return fields
}
