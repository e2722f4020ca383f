package memstream

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/streamtest"
)

func TestConformance(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Fixture { return newFixture(t) })
}

// fixture is a group on a server of its own.
type fixture struct {
	t      *testing.T
	server *Server
	names  messages.Names
	keys   messages.Keys
	self   *Stream
}

func newFixture(t *testing.T) *fixture {
	names := messages.Names{Stream: "agent:tasks", Group: "agent-workers"}.WithDefaults()
	keys, err := messages.NewKeys(names)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer()
	return &fixture{t: t, server: s, names: names, keys: keys, self: s.Stream()}
}

func (f *fixture) script(do func(tx *Tx)) {
	f.t.Helper()
	err := f.self.Script(f.t.Context(), "fixture", f.keys, f.names.Group, func(tx *Tx) error {
		do(tx)
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) Names() messages.Names   { return f.names }
func (f *fixture) New() streamtest.Stream  { return f.server.Stream() }
func (f *fixture) Pass(d time.Duration)    { f.server.Advance(d) }
func (f *fixture) Delete(ref messages.Ref) { f.server.Delete(ref) }
func (f *fixture) Trim(n int)              { f.server.Trim(f.names.Stream, n) }
func (f *fixture) DropGroup() {
	f.server.fault(func(int64) { delete(f.server.data.log(f.names.Stream).groups, f.names.Group) })
}
func (f *fixture) Flush()               { f.server.FlushAll() }
func (f *fixture) Memory(share float64) { f.server.SetMemory(share) }
func (f *fixture) Inbox() string        { return f.keys.Inbox() }

func (f *fixture) Kill(node messages.Node) {
	f.server.KillNode(node.Incarnation)
	f.script(func(tx *Tx) {
		for _, stream := range tx.w.streams() {
			for _, d := range tx.w.read(stream).pending.from(entryID{}) {
				if d.consumer == node.Consumer {
					d.atMS -= node.Lease.Milliseconds()
				}
			}
		}
	})
}

func (f *fixture) Add(fields ...messages.Pair) string {
	return f.server.Add(f.names.Stream, fields...)
}

func (f *fixture) Group(name string) func() {
	f.server.fault(func(int64) { f.server.data.make(f.names.Stream).join(name, entryID{}) })
	return func() {
		f.server.fault(func(int64) {
			l := f.server.data.log(f.names.Stream)
			l.group(name).delivered = l.last
		})
	}
}

func (f *fixture) Len(stream string) (n int) {
	f.server.fault(func(int64) {
		if l := f.server.data.log(stream); l != nil {
			n = l.entries.len()
		}
	})
	return n
}

func (f *fixture) Pending(stream string) (found []streamtest.Pending) {
	f.script(func(tx *Tx) {
		for _, p := range tx.Pending(stream == f.keys.Inbox()) {
			found = append(found, streamtest.Pending(p))
		}
	})
	return found
}

func (f *fixture) Consumers() (names []string) {
	f.server.fault(func(int64) { names = sortedKeys(f.server.data.log(f.names.Stream).group(f.names.Group).consumers) })
	return names
}

// unitOf returns the unit's record, made when it is missing.
func unitOf(tx *Tx, id, unit string) (*Task, *Unit) {
	t := tx.MakeTask(id)
	if t.Units[unit] == nil {
		t.Units[unit] = &Unit{Name: unit, Type: "noop", CreatedMS: tx.NowMS}
	}
	return t, t.Units[unit]
}

func (f *fixture) Begin(node messages.Node, taskID, unit string) {
	f.script(func(tx *Tx) {
		t, u := unitOf(tx, taskID, unit)
		t.Owner = node.Incarnation
		t.Fence++
		u.FenceAt, u.Run, u.BeganMS = t.Fence, Run{Incarnation: node.Incarnation, Activation: 1}, tx.NowMS
		tx.Become(t, u, messages.State_STATE_RUNNING, false)
	})
}

func (f *fixture) End(taskID, unit string) {
	f.script(func(tx *Tx) {
		t, u := unitOf(tx, taskID, unit)
		tx.Become(t, u, messages.State_STATE_SUCCEEDED, false)
		t.Owner = ""
	})
}

func (f *fixture) Retry(taskID, unit string, d time.Duration, fields []messages.Pair) {
	f.due(taskID, unit, messages.State_STATE_RETRYING, d, fields)
}

func (f *fixture) Schedule(taskID, unit string, d time.Duration, fields []messages.Pair) {
	f.due(taskID, unit, messages.State_STATE_SCHEDULED, d, fields)
}

func (f *fixture) due(taskID, unit string, state messages.State, d time.Duration, fields []messages.Pair) {
	f.script(func(tx *Tx) {
		t, u := unitOf(tx, taskID, unit)
		u.Wake++
		tx.Keep(messages.Ref{}, taskID, unit, fields, control(fields, messages.ControlOrigin))
		tx.DueAt(taskID, unit, tx.NowMS+d.Milliseconds())
		tx.Become(t, u, state, false)
		t.Owner = ""
	})
}

func (f *fixture) Park(taskID, unit, wait string, d time.Duration, fields []messages.Pair) {
	f.script(func(tx *Tx) {
		t, u := unitOf(tx, taskID, unit)
		u.Type = "t"
		u.Wake++
		tx.Keep(messages.Ref{}, taskID, unit, fields, control(fields, messages.ControlOrigin))
		tx.OpenWaits(t, u, []OpenWait{{Name: wait, For: d, Wait: messages.Wait{Kind: messages.WaitTimer}}})
		tx.Become(t, u, messages.State_STATE_WAITING, false)
		t.Owner = ""
	})
}

func (f *fixture) Delay(taskID, unit string, d time.Duration, fields []messages.Pair) {
	f.script(func(tx *Tx) {
		tx.Delay(taskID, unit, Delayed{AtMS: tx.NowMS + d.Milliseconds(), TTL: time.Hour, Mark: Mark{Work: "w", Type: "t"}, Fields: fields})
	})
}

func (f *fixture) Submitted(taskID, unit string) (id string) {
	f.script(func(tx *Tx) { id = tx.Marks(taskID)[unit].EntryID })
	return id
}

func (f *fixture) Queue(taskID string, fields []messages.Pair) {
	f.script(func(tx *Tx) {
		t := tx.MakeTask(taskID)
		t.Waiting = append(t.Waiting, fields)
		tx.w.due["q:"+messages.Escape(taskID)] = tx.NowMS + tx.w.lease.Milliseconds()
	})
}

func (f *fixture) Hold(limit, taskID string, ref messages.Ref) {
	f.script(func(tx *Tx) {
		t, u := unitOf(tx, taskID, "")
		tx.Slots(t, u, []Limit{{Name: limit}}, ref)
	})
}

func (f *fixture) Line(limit string, most int, taskID string, fields []messages.Pair) {
	f.script(func(tx *Tx) {
		t, u := unitOf(tx, taskID, "")
		u.Type, u.Wake = "t", 1
		tx.Keep(messages.Ref{}, taskID, "", fields, control(fields, messages.ControlOrigin))
		tx.Become(t, u, messages.State_STATE_PENDING, false)
		tx.Line(t, u, Limit{limit, most})
	})
}

func (f *fixture) Uncopy(taskID string) {
	f.script(func(tx *Tx) { delete(tx.w.copies, unitKey{taskID, ""}) })
}

func (f *fixture) Held(limit string) (ids []string) {
	f.script(func(tx *Tx) {
		for _, m := range sortedKeys(tx.w.limit(limit).held) {
			id, _ := unitOfMember(m)
			ids = append(ids, id)
		}
	})
	return ids
}

func (f *fixture) Cancel(taskID, unit, reason string) {
	f.script(func(tx *Tx) { tx.CancelUnit(taskID, unit, time.Hour, reason, "a test", Known{}) })
}

func (f *fixture) CancelLater(taskID, unit string) {
	f.script(func(tx *Tx) { tx.w.due["c:"+member(taskID, unit)] = tx.NowMS })
}

func (f *fixture) Forget(taskID string) {
	f.script(func(tx *Tx) { tx.w.forget(tx.Task(taskID)) })
}

func (f *fixture) Unit(taskID, unit string) (found streamtest.Unit) {
	f.script(func(tx *Tx) {
		t := tx.Task(taskID)
		if t == nil {
			return
		}
		found.Owner, found.Fence, found.Waiting = t.Owner, t.Fence, len(t.Waiting)
		found.Copied = tx.Copied(taskID, unit)
		if u := t.Units[unit]; u != nil {
			found.State, found.Interruptions, found.Deaths, found.Failures = u.State, u.Interruptions, u.Deaths, u.Failures
			found.Waits, found.Steps = t.SortedWaits(unit), sortedKeys(u.Steps)
			if u.Reason != 0 {
				found.Reason = strings.TrimPrefix(u.Reason.String(), "REASON_")
			}
		}
	})
	return found
}
