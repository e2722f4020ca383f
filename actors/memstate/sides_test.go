package memstate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/memstream"
)

// adapter is a whole stream adapter.
type adapter interface {
	streambridge.Stream
	streambridge.Upkeep
	io.Closer
}

// side is one of the two worlds that must not differ: a group on a server, with its nodes.
type side struct {
	t     *rapid.T
	names messages.Names
	make  func() (adapter, actors.State)
	// What foreigners do.
	remove func(ref messages.Ref)
	trim   func(n int)
	lose   func()
	pass   func(d time.Duration) // for all that is due

	nodes [nodes]*member
	seen  map[messages.Ref]string // entries by order of appearance, the same on both sides
	count map[string]int
	born  int
}

// member is one node of a side.
type member struct {
	stream adapter
	state  actors.State
	node   messages.Node
	held   []*holding
	mail   []streambridge.Mail
	acts   uint64
}

// holding is an entry that a node has in hand.
type holding struct {
	streambridge.Entry
	task  *messages.Task
	wake  uint64
	act   uint64
	begun actors.Begun
	saved bool
}

func (h *holding) beat() streambridge.Held {
	return streambridge.Held{Ref: h.Ref, TaskID: h.task.GetTaskId(), Unit: h.task.GetUnit(), Saved: h.saved}
}

func (m *member) all() (held []streambridge.Held) {
	for _, h := range m.held {
		held = append(held, h.beat())
	}
	return held
}

func (m *member) drop(refs ...messages.Ref) {
	for _, ref := range refs {
		for i, h := range m.held {
			if h.Ref == ref {
				m.held = append(m.held[:i:i], m.held[i+1:]...)
				break
			}
		}
	}
}

func memory(t *rapid.T, name string) *side {
	server := memstream.NewServer()
	s := &side{t: t, names: messages.Names{Stream: name}.WithDefaults()}
	s.make = func() (adapter, actors.State) {
		h := server.Stream()
		return h, memstate.New(h)
	}
	s.remove = func(ref messages.Ref) { server.Delete(ref) }
	s.trim = func(n int) { server.Trim(name, n) }
	s.lose = func() { server.GroupLost(s.names) }
	s.pass = func(d time.Duration) {
		keys, err := messages.NewKeys(s.names)
		require.NoError(t, err)
		require.NoError(t, server.Stream().Script(context.Background(), "pass", keys, s.names.Group, func(tx *memstream.Tx) error {
			tx.Hasten(d)
			return nil
		}))
	}
	return s.start()
}

func (s *side) start() *side {
	s.seen, s.count = map[messages.Ref]string{}, map[string]int{}
	for i := range s.nodes {
		s.open(i)
	}
	return s
}

// open starts a node anew under its consumer name.
func (s *side) open(i int) {
	s.born++
	m := &member{node: messages.Node{
		Incarnation: fmt.Sprintf("%016x", s.born), Consumer: fmt.Sprint("c", i), Lease: 30 * time.Minute, Beat: time.Minute,
		Types: []string{"x", "y"}[:1+i%2],
	}}
	m.stream, m.state = s.make()
	require.NoError(s.t, m.state.Bind(s.names))
	require.NoError(s.t, m.stream.Open(context.Background(), s.names, m.node))
	s.nodes[i] = m
}

func (s *side) close(i int) {
	require.NoError(s.t, s.nodes[i].stream.Close())
	require.NoError(s.t, s.nodes[i].state.Close())
}

// take gives entries to a node.
func (s *side) take(i int, entries []streambridge.Entry) {
	m := s.nodes[i]
	for _, e := range entries {
		m.drop(e.Ref)
		inbox := e.Stream != s.names.Stream
		task, wake, err := messages.Decode(e.Fields, e.Ref, messages.DecodeOptions{Names: s.names.Fields, Inbox: inbox})
		require.NoError(s.t, err)
		if task.GetMessage() != "" {
			m.mail = slices.DeleteFunc(m.mail, func(known streambridge.Mail) bool { return known.Ref == e.Ref })
			m.mail = append(m.mail, streambridge.Mail{
				Ref: e.Ref, TaskID: task.GetTaskId(), Name: task.GetMessage(), MessageID: task.GetEventId(), Payload: task.GetPayload(),
			})
			continue
		}
		m.acts++
		m.held = append(m.held, &holding{Entry: e, task: task, wake: wake, act: m.acts})
	}
}

// ref names an entry the same on both sides.
func (s *side) ref(ref messages.Ref) string {
	if name, ok := s.seen[ref]; ok || ref.ID == "" {
		return name
	}
	kind := "inbox"
	if ref.Stream == s.names.Stream {
		kind = "public"
	}
	s.count[kind]++
	name := fmt.Sprint(kind, s.count[kind])
	s.seen[ref] = name
	return name
}

func (s *side) refs(refs []messages.Ref) (names []string) {
	for _, r := range refs {
		names = append(names, s.ref(r))
	}
	return names
}

// sorted names entries whose order is the adapter's own.
func (s *side) sorted(refs []messages.Ref) []string {
	return slices.Sorted(slices.Values(s.refs(refs)))
}

func (s *side) entries(entries []streambridge.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s %d %s", s.ref(e.Ref), e.Deliveries, s.fields(e.Fields)))
	}
	return out
}

func (s *side) fields(fields []messages.Pair) string {
	var b strings.Builder
	for _, f := range fields {
		if f.Name == messages.ControlOrigin {
			f.Value = s.ref(messages.Ref{Stream: s.names.Stream, ID: f.Value})
		}
		fmt.Fprintf(&b, "%s=%q ", f.Name, f.Value)
	}
	return b.String()
}

func (s *side) letters() (all []*messages.DeadLetter, shown []string) {
	all, err := s.nodes[0].stream.Letters(context.Background(), "", 1000)
	require.NoError(s.t, err)
	for _, l := range all {
		var fields []messages.Pair
		for _, f := range l.GetFields() {
			fields = append(fields, messages.Pair{Name: string(f.GetName()), Value: string(f.GetValue())})
		}
		shown = append(shown, fmt.Sprint(l.GetReason(), " ", s.text(l.GetDetail()), " ", s.ref(l.GetEntry().Ref()), " ", l.GetEntry().GetDeliveries(),
			" ", l.GetEntry().GetWake(), " ", l.GetEntry().GetSize(), " ", l.GetTaskId(), " ", l.GetUnit(), " ", l.GetType(), " ", s.fields(fields)))
	}
	return all, shown
}

var (
	idText = regexp.MustCompile(`\d{13}-\d+`)
	msText = regexp.MustCompile(`after \d+ ms|soon after it began`)
)

// text takes out of a sentence what differs by time.
func (s *side) text(detail string) string {
	return msText.ReplaceAllString(idText.ReplaceAllString(detail, "ID"), "after N ms")
}

func (s *side) begun(b actors.Begun) string {
	if b.Answer != actors.Run && b.Answer != actors.Condemned {
		b.Fence = actors.Fence{}
	}
	b.Created, b.Wait, b.Detail = time.Time{}, 0, s.text(b.Detail)
	return fmt.Sprintf("%+v", b)
}

func (s *side) record(id string) string {
	r, err := s.nodes[0].state.Task(context.Background(), id)
	if err != nil {
		return failure(err)
	}
	// By name: which of two was created first depends on whether both were within a millisecond.
	slices.SortFunc(r.Units, func(a, b actors.UnitRecord) int { return strings.Compare(a.Unit, b.Unit) })
	for i, l := range r.Log {
		r.Log[i] = actors.LogLine{What: l.What, Detail: s.text(l.Detail)}
	}
	for i := range r.Units {
		u := &r.Units[i]
		one, err := s.nodes[0].state.Unit(context.Background(), id, u.Unit)
		require.NoError(s.t, err)
		steps, waits := timeless(u.Steps), u.Waits
		for i := range waits {
			waits[i].Since, waits[i].Deadline = time.Time{}, waits[i].Deadline.Round(24*365*time.Hour)
		}
		u.Steps, u.Waits = nil, nil
		require.Equal(s.t, u, one, "the unit alone")
		u.Steps, u.Waits = steps, waits
		u.Created, u.Began, u.Updated, u.Due, u.Error = time.Time{}, time.Time{}, time.Time{}, time.Time{}, s.text(u.Error)
	}
	entry := s.ref(messages.Ref{Stream: s.names.Stream, ID: r.EntryID})
	r.EntryID = ""
	r.TTL = r.TTL.Round(time.Hour)
	return fmt.Sprintf("%s %+v", entry, *r)
}

// lists are the tasks by state, read in small pages. Those of an index are sorted: two changes may fall into one millisecond.
func (s *side) lists() (all []string) {
	for _, q := range []actors.TaskQuery{
		{Doubt: true},
		{Limit: 2},
		{Type: "x"},
		{State: messages.State_STATE_SCHEDULED, Type: "x", Limit: 1},
		{State: messages.State_STATE_RUNNING, Limit: 1},
		{State: messages.State_STATE_PENDING, Limit: 2},
		{State: messages.State_STATE_PENDING, Type: "y"},
	} {
		var found []string
		for more := true; more; more = q.After != "" {
			page, err := s.nodes[0].state.Tasks(context.Background(), q)
			require.NoError(s.t, err)
			for _, t := range page.Tasks {
				entry := ""
				if t.Entry.ID != "" {
					entry = s.ref(t.Entry)
				}
				found = append(found, fmt.Sprint(t.ID, " ", t.Unit.Unit, " ", t.Unit.Type, " ", t.Unit.State, " ", t.Unit.Ledger, " ", entry, " ", t.Consumer, " ", t.Deliveries))
			}
			q.After = page.Next
		}
		if q.State == 0 || q.State == messages.State_STATE_SCHEDULED {
			slices.Sort(found)
		}
		all = append(all, fmt.Sprintf("%q", found))
	}
	return all
}

func (s *side) status() string {
	st, err := s.nodes[0].stream.Status(context.Background())
	require.NoError(s.t, err)
	st.OldestMS = 0
	// A server that had an entry deleted cannot tell the lag.
	st.Lag = 0
	delete(st.States, "PENDING")
	st.Unserved = nil // Redis asks the nodes that the group knows as consumers; the tick asks all
	for i := range st.Waiting {
		st.Waiting[i].OldestMS, st.Waiting[i].Served = 0, false
	}
	slices.SortFunc(st.Consumers, func(a, b streambridge.Consumer) int { return strings.Compare(a.Name, b.Name) })
	for i := range st.Consumers {
		st.Consumers[i].IdleMS, st.Consumers[i].LastTickMS = 0, 0
	}
	// They are listed by their last ticks, which may be in one millisecond on one side and in two on the other.
	slices.SortFunc(st.Consumers, func(a, b streambridge.Consumer) int { return strings.Compare(a.Name, b.Name) })
	return fmt.Sprintf("%+v", st)
}

// timeless are checkpoints without what differs by time.
func timeless(steps []messages.Step) []messages.Step {
	for i := range steps {
		if steps[i].Status == messages.StepWaited {
			steps[i].BeganMS, steps[i].EndedMS = 0, 0
		}
	}
	slices.SortFunc(steps, func(a, b messages.Step) int { return strings.Compare(a.Name, b.Name) })
	return steps
}

// failure is an error's kind.
func failure(err error) string {
	if none, ok := errors.AsType[*actors.NoDoubtError](err); ok {
		return none.Error()
	}
	if ended, ok := errors.AsType[*actors.EndedError](err); ok {
		return fmt.Sprint(actors.ErrEnded, *ended)
	}
	for _, kind := range []error{
		actors.ErrLeaseLost, actors.ErrResume, actors.ErrAnswered, actors.ErrEnded, actors.ErrConflict, actors.ErrBacklogFull, actors.ErrNoTask,
		actors.ErrBodyGone, actors.ErrNoSchedule, streambridge.ErrGroupLost,
		streambridge.ErrUsurped, streambridge.ErrNoLetter,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	if err != nil {
		return "an error"
	}
	return ""
}
