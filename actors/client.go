package actors

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weir-run/weir/messages"
)

// NewTask is work to submit.
type NewTask struct {
	// Type is "agent" or "agent/handler".
	Type string
	// ID names the work: submitted twice it is done once. At most 1,024 bytes of UTF-8. Empty: a random one.
	ID string
	// Step makes it a part of the task with an outcome of its own; usually empty.
	Step string
	// Payload is the handler's message: a protobuf message, a Go value that JSON keeps, or Raw. nil is an empty payload, for
	// handlers that take None.
	Payload any
	// Fields go with the task and are seen by Context.Field; at most 16 KiB together. Of the standard field names,
	// event_id, source, traceparent, attempt, root and due may be among them.
	Fields []Field

	// Delay lets the task join the stream that much later, At not before that time; at most one of them, at most ten years
	// ahead, and both by the server's clock, whatever the clocks of the nodes say. It is SCHEDULED until then, kept by the server:
	// a node of any group of the stream moves it within its tick (1 s by default), however full the stream is by then. A time
	// that is over means now. Submitted again under its id it is known, whatever the delay: the first one stands.
	Delay time.Duration
	At    time.Time
	// Unique names what only one task at a time is for: while another task of the stream has the same key, submitting adds
	// nothing and answers with the handle of that one (Task.Known), whatever the work. The key is taken for For, from the
	// submission on; the end of the task does not free it. At most 1,024 bytes of UTF-8. Neither goes without the other.
	//
	// These four are for Submit and SubmitAll alone: Spawn, Emit and schedules refuse them.
	Unique string
	For    time.Duration
}

// ClientOption is an argument of NewClient.
type ClientOption func(*Client) error

// MaxPayload is the largest payload in bytes that Submit takes. Default 1 MiB. It should be what the runtimes allow: they
// set larger ones aside.
func MaxPayload(n int) ClientOption {
	return func(c *Client) error {
		c.maxPayload = n
		return positive("MaxPayload", int64(n))
	}
}

// MaxBacklog refuses tasks with ErrBacklogFull while the stream holds that many entries that nobody has acknowledged, and
// delayed tasks while that many wait for their time. Default 50,000; −1 for no limit.
func MaxBacklog(n int64) ClientOption {
	return func(c *Client) error {
		c.maxLen = n
		if n == -1 {
			c.maxLen = 0
			return nil
		}
		return positive("MaxBacklog", n)
	}
}

// RememberIDs is how long a submitted id is remembered, so that submitting it again adds nothing. Default 24 hours, as
// long as the record of a task that succeeded is kept. Longer than that, and a task whose record has expired counts as
// submitted and not begun: its id cannot be used again, and who waits for its result waits in vain.
func RememberIDs(d time.Duration) ClientOption {
	return func(c *Client) error {
		c.ttl = d
		return positive("RememberIDs", int64(d))
	}
}

func positive(name string, n int64) error {
	if n <= 0 {
		return fmt.Errorf("%s (%d) must be positive", name, n)
	}
	return nil
}

const (
	defaultMaxPayload = 1 << 20
	defaultMaxLen     = 50_000
	defaultRemember   = 24 * time.Hour
	maxFieldBytes     = 16 << 10
)

// Client submits tasks and reads what became of them. It may be used from any number of goroutines and has nothing to
// close: the state is the caller's.
type Client struct {
	desk       StateDesk
	ops        StateOps
	names      Names
	maxPayload int
	maxLen     int64
	ttl        time.Duration
}

// NewClient binds the state to the group that names names (empty ones have their defaults). No I/O.
func NewClient(state State, names Names, opts ...ClientOption) (*Client, error) {
	if state == nil {
		return nil, errors.New("new client: the state is nil")
	}
	names = names.WithDefaults()
	if err := names.Validate(); err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	if err := state.Bind(names); err != nil {
		return nil, fmt.Errorf("new client: %w", err)
	}
	c := &Client{desk: state, ops: state, names: names, maxPayload: defaultMaxPayload, maxLen: defaultMaxLen, ttl: defaultRemember}
	for _, o := range opts {
		if err := o(c); err != nil {
			return nil, fmt.Errorf("new client: %w", err)
		}
	}
	return c, nil
}

// Submit adds a task to the stream, now or later. It is idempotent by id: the same work again is the same task (Task.Known),
// other work under the id is ErrConflict. After an error without an answer, submit the same id again.
//
// ErrInvalid and ErrTooLarge: nothing was sent. ErrBacklogFull, and ErrGateShut (a *GateError that says when): try later.
func (c *Client) Submit(ctx context.Context, t NewTask) (*Task, error) {
	sub, err := c.submission(t, time.Now())
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	got, err := c.desk.Submit(ctx, []Submission{sub})
	if err != nil {
		return nil, fmt.Errorf("submit task %q: %w", sub.ID, err)
	}
	return c.submitted(sub, got[0])
}

// What one call of the desk takes at most.
const (
	submitBatch = 1000
	submitBytes = 8 << 20
)

// SubmitAll adds tasks in order, in pipelines. All are checked before the first is sent. The result has a Task for
// each, nil for those that were refused; the error joins the first ten refusals. When ctx ends, or the server cannot be
// reached, the rest are nil as well: submit them again.
func (c *Client) SubmitAll(ctx context.Context, tasks []NewTask) ([]*Task, error) {
	subs := make([]Submission, len(tasks))
	now := time.Now()
	for i, t := range tasks {
		var err error
		if subs[i], err = c.submission(t, now); err != nil {
			return nil, fmt.Errorf("submit task %d of %d: %w", i+1, len(tasks), err)
		}
	}
	out := make([]*Task, len(tasks))
	var refused []error
	done := 0
	for done < len(subs) {
		batch := nextBatch(subs[done:])
		got, err := c.desk.Submit(ctx, batch)
		if err != nil {
			return out, fmt.Errorf("submit %d tasks, %d of them sent: %w", len(tasks), done, err)
		}
		for i, g := range got {
			if out[done+i], err = c.submitted(batch[i], g); err != nil {
				refused = append(refused, err)
			}
		}
		done += len(batch)
	}
	if len(refused) == 0 {
		return out, nil
	}
	return out, fmt.Errorf("%d of %d tasks refused: %w", len(refused), len(tasks), errors.Join(refused[:min(len(refused), 10)]...))
}

// nextBatch is the head of subs that goes in one call: at least one.
func nextBatch(subs []Submission) []Submission {
	size := 0
	for i, s := range subs[:min(len(subs), submitBatch)] {
		for _, f := range s.Fields {
			size += len(f.Name) + len(f.Value)
		}
		if i > 0 && size > submitBytes {
			return subs[:i]
		}
	}
	return subs[:min(len(subs), submitBatch)]
}

func (c *Client) submitted(sub Submission, got Submitted) (*Task, error) {
	if got.Err != nil {
		return nil, fmt.Errorf("submit task %q: %w", sub.ID, got.Err)
	}
	t := &Task{ID: sub.ID, Unit: sub.Unit, EntryID: got.EntryID, Known: got.Known, Due: got.Due, c: c}
	if got.ID != "" {
		t.ID, t.Unit = got.ID, got.Unit
	}
	return t, nil
}

// Names says where its tasks go, every empty name with its default.
func (c *Client) Names() Names { return c.names }

// Submission checks a task and writes what Submit would send, with created as the time of its creation: for what submits in
// the client's place, as a schedule does.
func (c *Client) Submission(t NewTask, created time.Time) (Submission, error) {
	return c.submission(t, created)
}

// submission checks a task and writes its entry's fields.
func (c *Client) submission(t NewTask, now time.Time) (Submission, error) {
	t.ID = cmp.Or(t.ID, rand.Text())
	s, err := submission(t, c.names.Fields, c.maxPayload, now)
	s.MaxLen, s.TTL = c.maxLen, c.ttl
	return s, err
}

// submission checks a task that has an id and writes its entry's fields, under the names f. maxPayload is in bytes.
func submission(t NewTask, f messages.FieldNames, maxPayload int, now time.Time) (Submission, error) {
	if err := checkTask(t); err != nil {
		return Submission{}, err
	}
	if err := checkTime(t, now); err != nil {
		return Submission{}, fmt.Errorf("task %.80q: %w: %w", t.ID, err, ErrInvalid)
	}
	var body stored
	if t.Payload != nil {
		var err error
		if body, err = encode(t.Payload); err != nil {
			return Submission{}, fmt.Errorf("task %.80q: payload: %w: %w", t.ID, ErrInvalid, err)
		}
	}
	if len(body.data) > maxPayload {
		return Submission{}, fmt.Errorf("task %.80q: %w", t.ID, tooLarge("the payload", len(body.data), maxPayload))
	}
	fields := make([]Field, 0, 6+len(t.Fields))
	add := func(name, value string) { fields = append(fields, Field{Name: name, Value: value}) }
	add(f.TaskID, t.ID)
	add(f.Type, t.Type)
	add(f.Payload, string(body.data))
	if body.contentType != "" {
		add(f.ContentType, body.contentType)
	}
	if t.Step != "" {
		add(f.Step, t.Step)
	}
	add(f.CreatedAt, strconv.FormatInt(now.UnixMilli(), 10))
	if err := checkFields(t, f); err != nil {
		return Submission{}, err
	}
	return Submission{
		ID: t.ID, Unit: t.Step, Work: messages.WorkHash(t.Type, body.data), Fields: append(fields, t.Fields...),
		Delay: t.Delay, At: t.At, Unique: t.Unique, For: t.For,
	}, nil
}

func checkTask(t NewTask) error {
	agent, handler, routed := strings.Cut(t.Type, "/")
	var problem string
	switch {
	case len(t.ID) > messages.MaxTaskID:
		problem = fmt.Sprintf("the id has %d bytes where %d are allowed", len(t.ID), messages.MaxTaskID)
	case !utf8.ValidString(t.ID):
		problem = "the id is not UTF-8"
	case len(t.Step) > messages.MaxTaskID:
		problem = fmt.Sprintf("the step has %d bytes where %d are allowed", len(t.Step), messages.MaxTaskID)
	case !utf8.ValidString(t.Step):
		problem = "the step is not UTF-8"
	case routeName("Type", agent) != nil, routed && routeName("Type", handler) != nil:
		problem = fmt.Sprintf("the type %.80q is not \"agent\" or \"agent/handler\"", t.Type)
	default:
		return nil
	}
	return fmt.Errorf("task %.80q: %s: %w", t.ID, problem, ErrInvalid)
}

// checkTime refuses times and periods that make no sense.
func checkTime(t NewTask, now time.Time) error {
	switch {
	case t.Delay != 0 && !t.At.IsZero():
		return fmt.Errorf("Delay (%v) and At (%s) exclude each other", t.Delay, t.At.Format(time.RFC3339))
	case t.Delay < 0:
		return fmt.Errorf("Delay (%v) must not be negative", t.Delay)
	case t.Delay > MaxDelay:
		return fmt.Errorf("Delay (%v) must be at most %v", t.Delay, MaxDelay)
	case t.At.After(now.Add(MaxDelay)):
		return fmt.Errorf("At (%s) must be at most %v ahead", t.At.Format(time.RFC3339), MaxDelay)
	case t.Unique == "" && t.For != 0:
		return fmt.Errorf("For (%v) goes with a Unique key", t.For)
	case t.Unique != "" && t.For < time.Millisecond:
		return fmt.Errorf("For (%v) must say how long the Unique key is taken, at least 1ms", t.For)
	case len(t.Unique) > messages.MaxTaskID:
		return fmt.Errorf("the Unique key has %d bytes where %d are allowed", len(t.Unique), messages.MaxTaskID)
	case !utf8.ValidString(t.Unique):
		return errors.New("the Unique key is not UTF-8")
	}
	return nil
}

// checkFields refuses producer fields that would be taken for something else, or do not fit.
func checkFields(t NewTask, names messages.FieldNames) error {
	taken := []string{names.TaskID, names.Type, names.Payload, names.ContentType, names.Step, names.CreatedAt}
	size := 0
	for _, f := range t.Fields {
		size += len(f.Name) + len(f.Value)
		var problem string
		switch {
		case f.Name == "" || !utf8.ValidString(f.Name):
			problem = "needs a name in UTF-8"
		case slices.Contains(taken, f.Name):
			problem = "is written by Submit itself"
		case strings.HasPrefix(f.Name, messages.ControlPrefix):
			problem = "has a name that is Weir's own"
		default:
			continue
		}
		return fmt.Errorf("task %.80q: field %.80q %s: %w", t.ID, f.Name, problem, ErrInvalid)
	}
	if size > maxFieldBytes {
		return fmt.Errorf("task %.80q: %w: %w", t.ID, ErrInvalid, tooLarge("the fields", size, maxFieldBytes))
	}
	if most := messages.MaxFields - 6; len(t.Fields) > most {
		return fmt.Errorf("task %.80q: %d fields where %d are allowed: %w", t.ID, len(t.Fields), most, ErrInvalid)
	}
	return nil
}

// Task is a handle on a task by its id; no I/O.
func (c *Client) Task(id string) *Task { return &Task{ID: id, c: c} }
