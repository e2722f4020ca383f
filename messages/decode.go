package messages

import (
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// DefaultMaxPayload is the payload cap in bytes where none is configured: 1 MiB.
const DefaultMaxPayload = 1 << 20

// MaxProducerFields is how many bytes of names and values of the producer's own fields are kept with a task.
const MaxProducerFields = 16 << 10

// DecodeOptions say how to read an entry.
type DecodeOptions struct {
	// Names of the fields; the zero value means the defaults.
	Names FieldNames
	// Inbox says that the entry comes from the group's own inbox, where control fields are believed.
	Inbox bool
	// MaxPayload is the payload cap in bytes. 0 means DefaultMaxPayload, negative means none.
	MaxPayload int
	// HashIdentity derives the task id of an entry that names neither task_id nor event_id from type, source and payload
	// instead of the entry's id: two such entries with the same content are then one task.
	HashIdentity bool
}

// DecodeError says why an entry cannot become a task, or a message to one. What could be read of its identity goes along.
type DecodeError struct {
	Reason Reason
	Detail string
	TaskID string
	Unit   string
	Type   string
}

// Error is the detail, for a person.
func (e *DecodeError) Error() string { return e.Detail }

// Decode reads a task from the fields of an entry. It checks sizes before it copies anything, and keeps the payload to
// the byte. wake is the wake number of an inbox entry, 0 otherwise. The error is a *DecodeError: such an entry becomes a
// dead letter at its first delivery.
//
// Identity: task_id, else event_id, else (by option) a hash of type, source and payload, else the entry's id.
// The first of two fields with one name counts.
//
// An entry with a field message and without a type is a message to the task that its task_id names, and event_id is the
// message's id: the Task has Message set and no Type. In an entry with a type, message is a producer's own field.
func Decode(fields []Pair, from Ref, opts DecodeOptions) (task *Task, wake uint64, err error) {
	d := decoder{names: opts.Names.WithDefaults(), task: &Task{Origin: from.ID}}
	if slices.ContainsFunc(fields, func(f Pair) bool { return f.Name == d.names.Type && f.Value != "" }) {
		d.names.Message = ""
	}
	if err := d.read(fields, opts); err != nil {
		return nil, d.wake, err
	}
	if err := d.identify(opts); err != nil {
		return nil, d.wake, err
	}
	return d.task, d.wake, nil
}

type decoder struct {
	names FieldNames
	task  *Task
	wake  uint64
	id    string // ControlID of an inbox entry
	seen  uint32 // one bit a known field
	kept  int    // bytes of producer fields
}

func (d *decoder) fail(reason Reason, format string, args ...any) *DecodeError {
	return &DecodeError{Reason: reason, Detail: fmt.Sprintf(format, args...), TaskID: d.task.TaskId, Unit: d.task.Unit, Type: d.task.Type}
}

func (d *decoder) read(fields []Pair, opts DecodeOptions) error {
	if len(fields) > MaxFields {
		return d.fail(Reason_REASON_UNDECODABLE, "%d fields, at most %d are allowed", len(fields), MaxFields)
	}
	limit := opts.MaxPayload
	if limit == 0 {
		limit = DefaultMaxPayload
	}
	for _, f := range fields {
		if opts.Inbox && strings.HasPrefix(f.Name, ControlPrefix) {
			if err := d.control(f); err != nil {
				return err
			}
			continue
		}
		if !utf8.ValidString(f.Name) {
			return d.fail(Reason_REASON_UNDECODABLE, "field name %.40q is not UTF-8", f.Name)
		}
		if f.Name == d.names.Payload && limit > 0 && len(f.Value) > limit {
			d.identifyForLetter(fields)
			return d.fail(Reason_REASON_TOO_LARGE, "payload of %d bytes, at most %d are allowed", len(f.Value), limit)
		}
		if err := d.field(f); err != nil {
			return err
		}
	}
	return nil
}

// identifyForLetter finds the identity of an entry that is refused before it was read to its end.
func (d *decoder) identifyForLetter(fields []Pair) {
	for _, f := range fields {
		if len(f.Value) > MaxTaskID || !utf8.ValidString(f.Value) {
			continue
		}
		switch f.Name {
		case d.names.TaskID:
			d.task.TaskId = f.Value
		case d.names.Type:
			d.task.Type = f.Value
		case d.names.Step:
			d.task.Unit = f.Value
		}
	}
}

func (d *decoder) control(f Pair) error {
	if len(f.Value) > MaxTaskID || !utf8.ValidString(f.Value) {
		return d.fail(Reason_REASON_UNDECODABLE, "control field %.40q is too long or not UTF-8", f.Name)
	}
	switch f.Name {
	case ControlID:
		d.id = f.Value
	case ControlOrigin:
		d.task.Origin = f.Value
	case ControlWake:
		n, err := strconv.ParseUint(f.Value, 10, 64)
		if err != nil {
			return d.fail(Reason_REASON_UNDECODABLE, "%s %.40q is not a number", ControlWake, f.Value)
		}
		d.wake = n
	}
	return nil
}

// first reports whether this is the first field of that meaning.
func (d *decoder) first(bit uint) bool {
	if d.seen&(1<<bit) != 0 {
		return false
	}
	d.seen |= 1 << bit
	return true
}

func (d *decoder) field(f Pair) error {
	t := d.task
	for bit, known := range []struct {
		name string
		to   *string
	}{
		{d.names.TaskID, &t.TaskId},
		{d.names.Type, &t.Type},
		{d.names.Step, &t.Unit},
		{d.names.ContentType, &t.ContentType},
		{d.names.EventID, &t.EventId},
		{d.names.Source, &t.Source},
		{d.names.TraceParent, &t.Traceparent},
		{d.names.Message, &t.Message},
	} {
		if f.Name != known.name || known.name == "" {
			continue
		}
		if !d.first(uint(bit)) {
			return nil
		}
		if !utf8.ValidString(f.Value) {
			return d.fail(Reason_REASON_UNDECODABLE, "field %s is not UTF-8", f.Name)
		}
		if len(f.Value) > MaxTaskID {
			return d.fail(Reason_REASON_UNDECODABLE, "field %s has %d bytes, at most %d are allowed", f.Name, len(f.Value), MaxTaskID)
		}
		*known.to = f.Value
		return nil
	}
	for bit, known := range []struct {
		name string
		to   *int64
	}{{d.names.Attempt, &t.Attempt}, {d.names.CreatedAt, &t.CreatedAtMs}} {
		if f.Name != known.name {
			continue
		}
		if !d.first(uint(8 + bit)) {
			return nil
		}
		n, err := strconv.ParseInt(f.Value, 10, 64)
		if err != nil || n < 0 {
			return d.fail(Reason_REASON_UNDECODABLE, "field %s (%.40q) is not a number of at least 0", f.Name, f.Value)
		}
		*known.to = n
		return nil
	}
	if f.Name == d.names.Payload {
		if d.first(16) {
			t.Payload = []byte(f.Value)
		}
		return nil
	}
	if d.kept += len(f.Name) + len(f.Value); d.kept > MaxProducerFields {
		return d.fail(Reason_REASON_TOO_LARGE, "the producer's own fields have more than %d bytes", MaxProducerFields)
	}
	t.Fields = append(t.Fields, &Field{Name: []byte(f.Name), Value: []byte(f.Value)})
	return nil
}

func (d *decoder) identify(opts DecodeOptions) error {
	t := d.task
	if d.seen&(1<<messageBit) != 0 {
		return d.address()
	}
	if t.Type == "" {
		if d.seen == 0 {
			return d.fail(Reason_REASON_UNDECODABLE, "no usable field: none of %s, %s, %s is there", d.names.TaskID, d.names.Type, d.names.Payload)
		}
		return d.fail(Reason_REASON_UNDECODABLE, "field %s is missing", d.names.Type)
	}
	if agent, _, _ := strings.Cut(t.Type, "/"); agent == "" {
		return d.fail(Reason_REASON_UNDECODABLE, "field %s (%.40q) names no agent", d.names.Type, t.Type)
	}
	if err := checkContentType(t.ContentType); err != nil {
		return d.fail(Reason_REASON_UNDECODABLE, "field %s: %v", d.names.ContentType, err)
	}
	switch {
	case d.id != "":
		t.TaskId = d.id
	case t.TaskId != "":
	case t.EventId != "":
		t.TaskId = t.EventId
	case opts.HashIdentity:
		t.TaskId = "h-" + WorkHash(t.Type+"\x00"+t.Source, t.Payload)
	default:
		t.TaskId = t.Origin // the producer's entry, also after Weir moved it
	}
	return nil
}

// Due is the time in the producer's field of that meaning: the tick of a schedule, or when a producer wants the task to run.
// The zero time where there is none; a field of that name may mean anything else.
func (x *Task) Due(names FieldNames) time.Time {
	name := names.WithDefaults().Due
	for _, f := range x.GetFields() {
		if string(f.GetName()) != name {
			continue
		}
		if ms, err := strconv.ParseInt(string(f.GetValue()), 10, 64); err == nil && ms > 0 {
			return time.UnixMilli(ms)
		}
		break
	}
	return time.Time{}
}

// messageBit is the place of the field message among those that field knows.
const messageBit = 7

// address finds the task that a message is for.
func (d *decoder) address() error {
	t := d.task
	if d.id != "" {
		t.TaskId = d.id
	}
	if t.Message == "" {
		return d.fail(Reason_REASON_UNDECODABLE, "field %s is empty, and there is no %s", d.names.Message, d.names.Type)
	}
	if t.TaskId == "" {
		return d.fail(Reason_REASON_UNDECODABLE, "message %.80q says in no field %s which task it is for", t.Message, d.names.TaskID)
	}
	if err := checkContentType(t.ContentType); err != nil {
		return d.fail(Reason_REASON_UNDECODABLE, "field %s: %v", d.names.ContentType, err)
	}
	return nil
}

// Content types that a payload may have; parameters are free, and for protobuf `proto` carries the full message name.
const (
	// TypeJSON is JSON, protojson for a protobuf message.
	TypeJSON = "application/json"
	// TypeProto is protobuf's binary form.
	TypeProto = "application/protobuf"
	// TypeBytes is bytes that no codec looks into.
	TypeBytes = "application/octet-stream"
	// TypeText is text; for a handler that takes a string or Raw.
	TypeText = "text/plain"
)

// checkContentType refuses what no handler could decode. Raw handlers take any text/*, audio/*, image/*, … as well.
func checkContentType(ct string) error {
	if ct == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(ct)
	if err != nil {
		return fmt.Errorf("%.60q is not a media type", ct)
	}
	if !strings.Contains(media, "/") {
		return fmt.Errorf("%.60q is not a media type", ct)
	}
	return nil
}

// Encode writes a task as the flat fields of an entry: what XADD gets. Empty fields are left out.
func Encode(t *Task, names FieldNames) []Pair {
	n := names.WithDefaults()
	out := make([]Pair, 0, 8+len(t.Fields))
	text := func(name, value string) {
		if value != "" {
			out = append(out, Pair{name, value})
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			out = append(out, Pair{name, strconv.FormatInt(value, 10)})
		}
	}
	text(n.TaskID, t.TaskId)
	text(n.Type, t.Type)
	text(n.Step, t.Unit)
	if n.Message != "" {
		text(n.Message, t.Message)
	}
	out = append(out, Pair{n.Payload, string(t.Payload)})
	text(n.ContentType, t.ContentType)
	number(n.Attempt, t.Attempt)
	number(n.CreatedAt, t.CreatedAtMs)
	text(n.EventID, t.EventId)
	text(n.Source, t.Source)
	text(n.TraceParent, t.Traceparent)
	for _, f := range t.Fields {
		out = append(out, Pair{string(f.Name), string(f.Value)})
	}
	return out
}
