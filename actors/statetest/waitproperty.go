package statetest

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// noWaitIsMissed lets two units of a task wait, retry, crash and end while messages come and time passes, in any order, and
// compares everything that can be seen with a book of the rules.
func noWaitIsMissed(t *testing.T, fresh func(t *testing.T) Fixture) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &waitProperty{rig: newRig(t, fresh(t)), rt: rt, book: newBook(), hands: map[string]*hand{}}
		rt.Repeat(map[string]func(*rapid.T){
			"go on": p.goOn, "go on too": p.goOn, "park": p.park, "park too": p.park, "retry": p.retry, "crash": p.crash, "end": p.end,
			"send": p.send, "send too": p.send, "time passes": p.pass, "tick": p.tick, "": p.check,
		})
		if len(p.book.names()) == 0 || p.book.ended() {
			return
		}
		_, err := p.State.Cancel(t.Context(), actors.Cancellation{ID: "a", TTL: week})
		require.NoError(t, err)
		for _, name := range p.book.names() {
			if u := p.book.units[name]; !final(u.state) {
				u.state = messages.State_STATE_CANCELLED
				clear(u.open)
			}
		}
		p.check(rt) // nothing must be left
	})
}

type waitProperty struct {
	*rig
	rt    *rapid.T
	book  *book
	hands map[string]*hand // by unit, what runs
	tied  bool             // a wait was opened
}

// hand is an entry at work.
type hand struct {
	work  *work
	begun actors.Begun
	last  *actors.Commit
}

func taskOf(unit string) *messages.Task { return part("a", unit) }

func (p *waitProperty) anyUnit(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"", "u/2"}).Draw(rt, "unit")
}

// running draws a unit that runs.
func (p *waitProperty) running(rt *rapid.T) (*waitingUnit, *hand) {
	name := p.anyUnit(rt)
	u := p.book.unit(name)
	if u.state != messages.State_STATE_RUNNING {
		rt.Skip("it does not run")
	}
	return u, p.hands[name]
}

// goOn begins a unit that has an entry.
func (p *waitProperty) goOn(rt *rapid.T) {
	name := p.anyUnit(rt)
	u := p.book.unit(name)
	task := taskOf(name)
	switch u.state {
	case 0:
		p.hands[name] = &hand{work: p.deliver(task, here)}
	case messages.State_STATE_RETRYING:
		p.World.Promote(p.t, "a", name)
		p.take()
	case messages.State_STATE_PENDING:
		p.take()
	default:
		rt.Skip("nothing continues it")
	}
	h := p.hands[name]
	h.work.act++
	h.begun = h.work.run()
	if len(u.over) > 0 && !h.begun.Steps {
		rt.Fatalf("its waits have ended, and Begin says nothing of checkpoints")
	}
	u.state = messages.State_STATE_RUNNING
}

// take gives what the inbox holds to the units that it is for.
func (p *waitProperty) take() {
	for _, d := range p.World.TakeInbox(p.t, consumerOf(here)) {
		name := d.Field("step")
		act := p.hands[name].work.act
		p.hands[name] = &hand{work: p.received(d, taskOf(name), here)}
		p.hands[name].work.act = act
	}
}

func (p *waitProperty) waits(rt *rapid.T, least int) (all []actors.Wait) {
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(slices.Sorted(maps.Keys(catalogue))), least, 3, rapid.ID).Draw(rt, "waits") {
		all = append(all, catalogue[name])
	}
	p.tied = p.tied || len(all) > 0
	return all
}

func (p *waitProperty) park(rt *rapid.T) {
	u, h := p.running(rt)
	c := h.work.parked(h.begun, p.waits(rt, 1)...)
	want := error(nil)
	if p.book.commit(u, c.Waits) {
		want = actors.ErrResume
	} else {
		u.state = messages.State_STATE_WAITING
	}
	for range 2 { // a lost reply
		if err := p.State.Commit(p.t.Context(), c); !errors.Is(err, want) {
			rt.Fatalf("parked: %v, expected %v", err, want)
		}
	}
	h.last = &c
	if want == nil {
		p.World.Ack(p.t, h.work.ref)
	}
}

func (p *waitProperty) retry(rt *rapid.T) {
	u, h := p.running(rt)
	c := h.work.retry(h.begun, 1000*time.Hour)
	c.Waits = p.waits(rt, 0)
	p.book.commit(u, c.Waits)
	u.state = messages.State_STATE_RETRYING
	p.commit(c)
	p.commit(c)
	p.World.Ack(p.t, h.work.ref)
}

// crash begins anew with a fresh actor; the old one's commit is refused.
func (p *waitProperty) crash(rt *rapid.T) {
	_, h := p.running(rt)
	old := h.work.parked(h.begun, catalogue["nap"])
	h.work.act++
	h.begun = h.work.run()
	p.lost(old)
}

func (p *waitProperty) end(rt *rapid.T) {
	u, h := p.running(rt)
	out := rapid.SampledFrom([]messages.Outcome{messages.Outcome_OUTCOME_COMPLETED, messages.Outcome_OUTCOME_REJECTED}).Draw(rt, "outcome")
	p.commit(h.work.outcome(h.begun, out))
	p.World.Ack(p.t, h.work.ref)
	u.state = outcomes[out]
	clear(u.open)
}

func (p *waitProperty) send(rt *rapid.T) {
	name := rapid.SampledFrom([]string{"m", "m", "n", "x", "y"}).Draw(rt, "message")
	id, payload := rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, "id"), rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "payload")
	want, why := p.book.send(name, id, payload)
	got, err := p.State.Send(p.t.Context(), mailing("a", name, id, payload))
	if got != want || !errors.Is(err, why) {
		rt.Fatalf("sent %q %q: %+v, %v, expected %+v, %v", name, id, got, err, want, why)
	}
}

func (p *waitProperty) pass(rt *rapid.T) {
	n := rapid.IntRange(1, 2).Draw(rt, "minutes")
	p.World.Pass(p.t, time.Duration(n)*time.Minute)
	p.book.minutes += n
}

func (p *waitProperty) tick(*rapid.T) {
	p.World.Turn(p.t)
	p.book.turn()
}

// check compares the record of the task with the book.
func (p *waitProperty) check(rt *rapid.T) {
	names := p.book.names()
	if len(names) == 0 {
		return
	}
	rec := p.record("a")
	if rec.Unread != p.book.unread() {
		rt.Fatalf("%d messages are unread, expected %d", rec.Unread, p.book.unread())
	}
	for _, r := range rec.Units {
		u := p.book.units[r.Unit]
		var open []string
		for _, w := range r.Waits {
			open = append(open, w.Name)
		}
		over := map[string]messages.Waited{}
		for _, s := range r.Steps {
			w, err := messages.DecodeWaited(s.Name, s.Value)
			require.NoError(p.t, err)
			over[s.Name] = w
		}
		if r.State != u.state || !slices.Equal(open, slices.Sorted(maps.Keys(u.open))) || !equal(over, u.over) {
			rt.Fatalf("unit %q is %v, open %v, over %v; expected %v", r.Unit, r.State, open, over, u)
		}
		// Woken or not: what parked it may ask again.
		if h := p.hands[r.Unit]; h != nil && h.last != nil && (u.state == messages.State_STATE_WAITING || u.state == messages.State_STATE_PENDING) {
			p.commit(*h.last)
		}
	}
	for end, ttl := range p.World.Standing(p.t, "a") {
		if p.book.ended() && ttl <= 0 || !p.book.ended() && p.tied && ttl > 0 {
			rt.Fatalf("time to live of …%s: %v", end, ttl)
		}
	}
}

func equal(a, b map[string]messages.Waited) bool {
	return maps.EqualFunc(a, b, func(x, y messages.Waited) bool {
		return string(messages.EncodeWaited(x)) == string(messages.EncodeWaited(y))
	})
}
