package statetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// catalogue are the waits of the property test; one name is always the same wait. Only x and y close their slots, and
// nothing else waits for their messages: then it makes no difference which of two waits ends first in a turn.
var catalogue = map[string]actors.Wait{
	"x":    await("x", 2*time.Minute),
	"y":    await("y", -1),
	"nap":  timer("nap", time.Minute),
	"long": timer("long", 3*time.Minute),
	"f":    firstOf("f", 2*time.Minute, nth("m", 1), nth("n", 1)),
	"g":    allOf("g", 3*time.Minute, nth("m", 1), nth("m", 2), nth("n", 1)),
	"h":    firstOf("h", -1, nth("m", 2)),
}

// book is what must be true of the waits and the mail of one task: the rules again, written for reading and not for speed.
type book struct {
	minutes int // that have passed
	units   map[string]*waitingUnit
	mail    map[string][]sent // by name, in order
	shut    map[actors.Slot]bool
	read    map[actors.Slot]bool
	sent    int
}

type sent struct {
	id, payload string
	arrival     int
}

type waitingUnit struct {
	state messages.State
	open  map[string]int // name → the minute in which it ends, -1 for never
	over  map[string]messages.Waited
}

func newBook() *book {
	return &book{
		units: map[string]*waitingUnit{}, mail: map[string][]sent{}, shut: map[actors.Slot]bool{}, read: map[actors.Slot]bool{},
	}
}

func (b *book) unit(name string) *waitingUnit {
	if b.units[name] == nil {
		b.units[name] = &waitingUnit{open: map[string]int{}, over: map[string]messages.Waited{}}
	}
	return b.units[name]
}

// names are the units that have begun.
func (b *book) names() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(b.units)) {
		if b.units[name].state != 0 {
			all = append(all, name)
		}
	}
	return all
}

func (b *book) ended() bool {
	for _, name := range b.names() {
		if !final(b.units[name].state) {
			return false
		}
	}
	return len(b.names()) > 0
}

func (b *book) unread() (n int64) {
	for name, all := range b.mail {
		for i := range all {
			if !b.read[nth(name, i+1)] {
				n++
			}
		}
	}
	return n
}

// commit opens waits and looks at them; it says whether any of them is over.
func (b *book) commit(u *waitingUnit, waits []actors.Wait) (over bool) {
	for _, w := range waits {
		if _, done := u.over[w.Name]; done {
			over = true
			continue
		}
		if _, open := u.open[w.Name]; open {
			continue
		}
		u.open[w.Name] = -1
		if w.For >= 0 {
			u.open[w.Name] = b.minutes + int(w.For/time.Minute)
		}
	}
	for _, w := range waits {
		over = b.look(u, w.Name) || over
	}
	return over
}

// look ends an open wait if it is over.
func (b *book) look(u *waitingUnit, name string) bool {
	until, open := u.open[name]
	if !open {
		return false
	}
	w, ripe := catalogue[name], until >= 0 && until <= b.minutes
	there, lost := map[int]sent{}, 0
	for i, s := range w.Slots {
		switch all := b.mail[s.Message]; {
		case len(all) >= s.Nth:
			there[i] = all[s.Nth-1]
		case b.shut[s]:
			lost++
		}
	}
	end := messages.Waited{}
	switch {
	case w.Kind == actors.WaitFirst && len(there) > 0:
		first := slices.SortedFunc(maps.Keys(there), func(i, j int) int { return there[i].arrival - there[j].arrival })[0]
		there = map[int]sent{first: there[first]}
	case w.Kind == actors.WaitAll && len(there) == len(w.Slots):
	case ripe, w.Kind == actors.WaitAll && lost > 0, len(w.Slots) > 0 && lost == len(w.Slots):
		end.Timeout = true
	default:
		return false
	}
	for i, m := range there {
		if end.Messages == nil {
			end.Messages = map[int]messages.Mail{}
		}
		end.Messages[i] = letter(m.payload)
		b.read[w.Slots[i]] = true
	}
	delete(u.open, name)
	u.over[name] = end
	for _, s := range w.Slots {
		if end.Timeout && w.Closes && !b.hoped(s) && len(b.mail[s.Message]) < s.Nth {
			b.shut[s] = true
		}
	}
	return true
}

func (b *book) hoped(s actors.Slot) bool {
	for _, u := range b.units {
		for name := range u.open {
			if slices.Contains(catalogue[name].Slots, s) {
				return true
			}
		}
	}
	return false
}

func (u *waitingUnit) wake() {
	if u.state == messages.State_STATE_WAITING {
		u.state = messages.State_STATE_PENDING
	}
}

// each looks at the open waits for which the question is answered with yes, and wakes their units.
func (b *book) each(ask func(w actors.Wait, ripe bool) bool) {
	for _, name := range b.names() {
		u := b.units[name]
		for _, wait := range slices.Sorted(maps.Keys(u.open)) {
			if ask(catalogue[wait], u.open[wait] >= 0 && u.open[wait] <= b.minutes) && b.look(u, wait) {
				u.wake()
			}
		}
	}
}

// turn is a tick.
func (b *book) turn() { b.each(func(_ actors.Wait, ripe bool) bool { return ripe }) }

// send is what a message comes to.
func (b *book) send(name, id, payload string) (actors.Mailed, error) {
	all := b.mail[name]
	slot := nth(name, len(all)+1)
	b.each(func(w actors.Wait, ripe bool) bool { return ripe && slices.Contains(w.Slots, slot) })
	if b.ended() {
		return actors.Mailed{}, actors.ErrEnded
	}
	for i, m := range all {
		switch {
		case id != "" && m.id == id:
			return actors.Mailed{Nth: i + 1, Known: true}, actors.ErrAnswered
		case id == "":
			return actors.Mailed{Nth: 1, Known: m.payload == payload}, actors.ErrAnswered
		}
	}
	if b.shut[slot] {
		return actors.Mailed{Nth: slot.Nth}, actors.ErrAnswered
	}
	b.sent++
	b.mail[name] = append(all, sent{id, payload, b.sent})
	b.each(func(w actors.Wait, _ bool) bool { return slices.Contains(w.Slots, slot) })
	return actors.Mailed{Nth: slot.Nth}, nil
}

// String is for a failure's text.
func (u *waitingUnit) String() string {
	return fmt.Sprintf("%s, open %v, over %v", actors.StateName(u.state), u.open, u.over)
}
