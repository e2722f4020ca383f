package streambridge

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/messages"
)

// model is a stream, its pending list, the agents and the acker, as small as they can be, around a window. It draws what
// happens next and holds the window to its promises.
type model struct {
	t       *rapid.T
	w       *window
	next    int
	task    map[messages.Ref]string
	pending map[messages.Ref]bool // with us
	settled map[messages.Ref]bool // out of the pending list for good
	begun   []*messages.Assign    // assigned and not answered
	acks    []messages.Ref
	errands []messages.Ref
	// stale is what a tick under way has seen: its answer comes later.
	stale    []messages.Ref
	ticking  bool
	last     map[string]place // of the last assignment of a task that was not ordered again
	reads    int64
	idled    bool
	draining bool
}

func newModel(t *rapid.T) *model {
	return &model{
		t: t, w: newWindow(8, 100), task: map[messages.Ref]string{}, pending: map[messages.Ref]bool{}, settled: map[messages.Ref]bool{},
		last: map[string]place{},
	}
}

func (m *model) arrival(r messages.Ref) arrival {
	a := arrival{Ref: r, at: placeOf(r.ID), deliveries: 1, size: int64(5 + len(r.ID)), task: &messages.Task{TaskId: m.task[r], Type: "noop"}}
	switch m.task[r] {
	case "bad":
		a.task, a.bad = nil, &messages.DecodeError{Reason: messages.Reason_REASON_UNDECODABLE}
	case "elsewhere":
		a.moveTo = "elsewhere"
	case "mail":
		a.task = &messages.Task{TaskId: "a", Message: "m"}
	}
	return a
}

func (m *model) step(ev event) {
	for _, e := range m.w.Step(ev) {
		switch e := e.(type) {
		case assign:
			require.False(m.t, m.draining, "a drain assigns nothing")
			for _, other := range m.begun {
				require.NotEqual(m.t, other.Task.TaskId, e.Task.TaskId, "one assignment a task")
			}
			require.Equal(m.t, m.task[e.Entry.Ref()], e.Task.TaskId)
			for s := m.w.oldest; s != nil; s = s.newer {
				if s.state == waiting && s.task.TaskId == e.Task.TaskId {
					require.False(m.t, s.at.before(placeOf(e.Entry.Id)), "the oldest goes first")
				}
			}
			m.begun = append(m.begun, e.Assign)
		case acknowledge:
			m.acks = append(m.acks, e.ref)
		case bury:
			m.errands = append(m.errands, e.Ref)
		case move:
			m.errands = append(m.errands, e.held.Ref)
		case deliver:
			m.errands = append(m.errands, e.Ref)
		case idle:
			require.False(m.t, m.idled, "once")
			m.idled = true
		case cancel, report, giveUp:
		}
	}
	check(m.t, m.w)
}

// read hands out what the reader may ask for.
func (m *model) read() {
	limit, bytes := m.w.advertise()
	if limit <= m.reads || bytes <= m.w.readBytes {
		return
	}
	n := rapid.IntRange(0, int(min(limit-m.reads, 4))).Draw(m.t, "n")
	var ev arrived
	for range n {
		m.next++
		r := ref(m.next)
		m.task[r] = rapid.SampledFrom([]string{"a", "a", "b", "c", "d", "bad", "elsewhere", "mail"}).Draw(m.t, "task")
		m.pending[r] = true
		if rapid.IntRange(0, 9).Draw(m.t, "reply lost") == 0 {
			continue // handed out, and nobody knows
		}
		a := m.arrival(r)
		ev.entries, ev.bytes = append(ev.entries, a), ev.bytes+a.size
	}
	m.reads += int64(len(ev.entries))
	m.step(ev)
	count, _ := m.w.credits()
	require.GreaterOrEqual(m.t, count, -int64(8), "no overdraft beyond what claims may")
}

// held draws one of the entries that a heartbeat names.
func (m *model) held() (messages.Ref, bool) {
	all := m.w.held()
	if len(all) == 0 {
		return messages.Ref{}, false
	}
	r := rapid.SampledFrom(all).Draw(m.t, "held").Ref
	return r, m.pending[r]
}

func (m *model) out(r messages.Ref) {
	delete(m.pending, r)
	m.settled[r] = true
}

func (m *model) agent(v messages.Verdict) {
	if len(m.begun) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.begun)-1).Draw(m.t, "who")
	a := m.begun[i]
	m.begun = slices.Delete(m.begun, i, i+1)
	if v == messages.Verdict_VERDICT_MOVED {
		m.out(a.Entry.Ref())
	}
	m.step(finished{&messages.Done{TaskId: a.Task.TaskId, Entry: a.Entry, Verdict: v}})
}

func (m *model) settle(from *[]messages.Ref) {
	if len(*from) == 0 {
		return
	}
	n := rapid.IntRange(1, len(*from)).Draw(m.t, "n")
	batch := slices.Clone((*from)[:n])
	*from = (*from)[n:]
	for _, r := range batch {
		m.out(r)
	}
	m.step(settled{batch})
}

func (m *model) tick() {
	if m.ticking {
		return
	}
	m.step(sweeping{})
	m.ticking = true
	for r := range m.pending { // whatever its idle time: the worst sweep there can be
		m.stale = append(m.stale, r)
	}
	slices.SortFunc(m.stale, func(a, b messages.Ref) int {
		if placeOf(a.ID).before(placeOf(b.ID)) {
			return -1
		}
		return 1
	})
}

func (m *model) ticked() {
	if !m.ticking {
		return
	}
	m.ticking = false
	var ev swept
	for _, r := range m.stale {
		ev.strays = append(ev.strays, m.arrival(r))
	}
	m.stale = nil
	for range min(m.w.room(), rapid.IntRange(0, 2).Draw(m.t, "orphans")) {
		m.next++
		r := ref(m.next)
		m.task[r], m.pending[r] = "a", true
		ev.claimed = append(ev.claimed, m.arrival(r))
	}
	before := map[messages.Ref]bool{}
	for r := range m.w.known {
		before[r] = true
	}
	m.step(ev)
	for r := range m.w.known {
		require.True(m.t, before[r] || m.pending[r], "a sweep brings in only what is pending: %v", r)
	}
}

func TestWindowKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		actions := map[string]func(*rapid.T){
			"read":   func(*rapid.T) { m.read() },
			"read2":  func(*rapid.T) { m.read() },
			"ack":    func(*rapid.T) { m.agent(messages.Verdict_VERDICT_ACK) },
			"drop":   func(*rapid.T) { m.agent(messages.Verdict_VERDICT_DROP) },
			"moved":  func(*rapid.T) { m.agent(messages.Verdict_VERDICT_MOVED) },
			"bury":   func(*rapid.T) { m.agent(messages.Verdict_VERDICT_BURY) },
			"acks":   func(*rapid.T) { m.settle(&m.acks) },
			"errand": func(*rapid.T) { m.settle(&m.errands) },
			"tick":   func(*rapid.T) { m.tick() },
			"ticked": func(*rapid.T) { m.ticked() },
			"silent": func(*rapid.T) { m.step(silent{}) },
			"lost": func(*rapid.T) {
				if r, ok := m.held(); ok {
					m.out(r) // another node has it
					m.step(beaten{Beat{Lost: []messages.Ref{r}}})
				}
			},
			"gone": func(*rapid.T) {
				if r, ok := m.held(); ok {
					m.out(r)
					m.step(beaten{Beat{Gone: []messages.Ref{r}, Saved: []messages.Ref{r}}})
				}
			},
			"stray answer": func(*rapid.T) {
				m.step(finished{&messages.Done{TaskId: "a", Entry: &messages.Entry{Stream: "other", Id: "1-1"}}})
			},
		}
		t.Repeat(actions)

		if rapid.Bool().Draw(t, "drain") {
			m.draining = true
			m.step(drain{})
			for len(m.begun) > 0 {
				m.agent(messages.Verdict_VERDICT_ACK)
			}
			require.True(t, m.idled, "a drain ends when nothing runs")
			return
		}
		// Everything calms down: agents answer, acks go through, sweeps find what is left. Nothing pending is forgotten.
		for round := 0; len(m.pending) > 0 || len(m.w.known) > 0 || len(m.begun) > 0; round++ {
			require.Less(t, round, 500, "pending %v, known %d", m.pending, len(m.w.known))
			for len(m.begun) > 0 {
				m.agent(messages.Verdict_VERDICT_ACK)
			}
			m.settle(&m.acks)
			m.settle(&m.errands)
			m.tick()
			m.ticked()
		}
		count, bytes := m.w.credits()
		require.EqualValues(t, 8, count, "credits return to full")
		require.EqualValues(t, 100, bytes)
		require.Empty(t, m.w.tasks)
		require.Zero(t, m.w.Stats().Ghosts)
	})
}

// FuzzWindow feeds a window with any sequence of events, also those that no well-behaved part sends, and holds it to its
// invariants. A settlement is only sent for what was given away: anything else is a fault that panics on purpose.
func FuzzWindow(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 1, 1, 2, 0, 3, 0, 9, 9})
	f.Add([]byte{0, 1, 4, 1, 0, 1, 1, 1, 5, 0, 6, 0, 7, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		w := newWindow(5, 60)
		var given []messages.Ref
		for i := 0; i+1 < len(script); i += 2 {
			op, n := script[i]%12, int(script[i+1]%16)
			task := string(rune('a' + n%3))
			var ev event
			switch op {
			case 0:
				ev = come(arrive(n, task), post(n+20, task))
			case 1:
				ev = answer(n, task, messages.Verdict_VERDICT_ACK)
			case 2:
				ev = answer(n, task, messages.Verdict(n%6))
			case 3:
				ev = settled{given}
				given = nil
			case 4:
				ev = beaten{Beat{Lost: []messages.Ref{ref(n), ref(n + 1)}}}
			case 5:
				ev = beaten{Beat{Gone: []messages.Ref{ref(n)}, Cancelled: []Cancelled{{TaskID: task}}}}
			case 6:
				ev = sweeping{}
			case 7:
				ev = swept{claimed: []arrival{arrive(n, task)}, strays: []arrival{arrive(n, task), arrive(n+1, string(rune('a'+(n+1)%16%3)))}}
			case 8:
				ev = silent{}
			case 9:
				ev = interrupt{}
			case 10:
				if n != 0 {
					continue
				}
				ev = drain{}
			case 11:
				ev = beaten{Beat{Usurped: n == 0}}
			}
			for _, e := range w.Step(ev) {
				switch e := e.(type) {
				case acknowledge:
					given = append(given, e.ref)
				case bury:
					given = append(given, e.Ref)
				case deliver:
					given = append(given, e.Ref)
				case assign, cancel, move, report, idle, giveUp:
				}
			}
			check(t, w)
		}
	})
}
