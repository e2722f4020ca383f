// Package waits holds what one unit waits for in memory, by the rules of a state store and under a clock that the caller
// moves: what actorstest, and the tests of actors, run handlers on.
package waits

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Book is the checkpoints of a unit, its open waits, its children, and the messages to its task. It is not for more than
// one goroutine. The zero Book is empty.
type Book struct {
	// Now is what deadlines are measured by; see Advance.
	Now time.Time

	order []string
	steps map[string]messages.Step
	open  map[string]open
	mail  map[string][]letter
	shut  map[actors.Slot]bool // slots whose time is over
	sent  int
}

// open is a wait that is not over.
type open struct {
	actors.Wait
	began, deadline time.Time // no deadline: the zero time
}

type letter struct {
	id  string
	nth int // of all messages, by when they came
	messages.Mail
}

// Put writes a checkpoint as a store gives it back: its bytes, decoded again.
func (b *Book) Put(s messages.Step) error {
	back, err := messages.DecodeStep(s.Name, messages.EncodeStep(s))
	if err != nil {
		return fmt.Errorf("keep step %q: %w", s.Name, err)
	}
	if b.steps == nil {
		b.steps = map[string]messages.Step{}
	}
	if !slices.Contains(b.order, s.Name) {
		b.order = append(b.order, s.Name)
	}
	b.steps[s.Name] = back
	return nil
}

// stamp is a time in a checkpoint; a test's clock may start anywhere.
func stamp(t time.Time) int64 { return max(t.UnixMilli(), 0) }

// Drop forgets a checkpoint.
func (b *Book) Drop(name string) { delete(b.steps, name) }

// Step is the checkpoint of that name.
func (b *Book) Step(name string) (messages.Step, bool) {
	s, ok := b.steps[name]
	return s, ok
}

// Steps are the checkpoints, in the order in which their names first had one.
func (b *Book) Steps() []messages.Step {
	var all []messages.Step
	for _, name := range b.order {
		if s, ok := b.steps[name]; ok {
			all = append(all, s)
		}
	}
	return all
}

// Waits are the names of the open waits, sorted.
func (b *Book) Waits() []string {
	var names []string
	for name := range b.open {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Commit does what a commit does to waits and children: it starts the children that have no checkpoint, opens the waits that
// are neither open nor over, with their deadlines, and looks at all of them. over says that one of its waits is: then a
// parked unit goes on at once.
func (b *Book) Commit(c actors.Commit) (started []actors.Spawning, over bool, err error) {
	for _, s := range c.Spawns {
		if _, known := b.steps[s.Name]; known {
			continue
		}
		err := b.Put(messages.Step{Name: s.Name, Status: messages.StepSpawned, BeganMS: stamp(b.Now), Value: []byte(s.Task.ID)})
		if err != nil {
			return nil, false, err
		}
		started = append(started, s)
	}
	for _, w := range c.Waits {
		if _, known := b.steps[w.Name]; known {
			continue
		}
		if _, known := b.open[w.Name]; known {
			continue
		}
		o := open{Wait: w, began: b.Now}
		if w.For >= 0 {
			o.deadline = b.Now.Add(w.For)
		}
		if b.open == nil {
			b.open = map[string]open{}
		}
		b.open[w.Name] = o
	}
	if err := b.look(); err != nil {
		return nil, false, err
	}
	for _, w := range c.Waits {
		s, known := b.steps[w.Name]
		over = over || known && s.Status == messages.StepWaited
	}
	return started, over, nil
}

// Send brings a message to the task. It is known by name and id, and without an id only the first of a name counts:
// ErrAnswered says that it came before, or that another did, or that nobody wants it any more.
func (b *Book) Send(name, id string, m messages.Mail) error {
	n := len(b.mail[name]) + 1
	if b.shut[actors.Slot{Message: name, Nth: n}] || id == "" && n > 1 ||
		slices.ContainsFunc(b.mail[name], func(l letter) bool { return l.id == id }) {
		return fmt.Errorf("message %q: %w", name, actors.ErrAnswered)
	}
	if b.mail == nil {
		b.mail = map[string][]letter{}
	}
	b.sent++
	b.mail[name] = append(b.mail[name], letter{id, b.sent, m})
	return b.look()
}

// End ends a child: with a result, or with an error that begins with its state.
func (b *Book) End(name string, contentType string, result []byte, failure string) error {
	s := messages.Step{
		Name: name, Status: messages.StepChild, BeganMS: b.steps[name].BeganMS, EndedMS: stamp(b.Now),
		ContentType: contentType, Value: result, Error: failure,
	}
	if err := b.Put(s); err != nil {
		return err
	}
	return b.look()
}

// Next is when the earliest deadline of the open waits is.
func (b *Book) Next() (at time.Time, ok bool) {
	for _, o := range b.open {
		if !o.deadline.IsZero() && (!ok || o.deadline.Before(at)) {
			at, ok = o.deadline, true
		}
	}
	return at, ok
}

// Advance moves the clock and ends the waits whose time is over by then.
func (b *Book) Advance(to time.Time) error {
	if to.After(b.Now) {
		b.Now = to
	}
	for _, name := range b.Waits() {
		o := b.open[name]
		if o.deadline.IsZero() || o.deadline.After(b.Now) {
			continue
		}
		end, _ := b.state(o)
		end.Timeout = true
		if err := b.close(o, end); err != nil {
			return err
		}
	}
	return b.look()
}

// look ends the waits that have what they wait for.
func (b *Book) look() error {
	for _, name := range b.Waits() {
		if end, over := b.state(b.open[name]); over {
			if err := b.close(b.open[name], end); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends a wait. A time that is over shuts the slots where the wait says so; not one for which another still hopes.
func (b *Book) close(o open, end messages.Waited) error {
	delete(b.open, o.Name)
	for _, s := range o.Slots {
		hoped := false
		for _, other := range b.open {
			hoped = hoped || slices.Contains(other.Slots, s)
		}
		if end.Timeout && o.Closes && !hoped && len(b.mail[s.Message]) < s.Nth {
			if b.shut == nil {
				b.shut = map[actors.Slot]bool{}
			}
			b.shut[s] = true
		}
	}
	return b.Put(messages.Step{
		Name: o.Name, Status: messages.StepWaited, Attempts: 1, BeganMS: stamp(o.began), EndedMS: stamp(b.Now),
		Value: messages.EncodeWaited(end),
	})
}

// state is what a wait has so far, and whether it is over: that is enough, or a slot is shut and it never will be.
func (b *Book) state(o open) (end messages.Waited, over bool) {
	if o.Kind == actors.WaitJoin {
		return b.children(o)
	}
	first, at, shut := -1, 0, 0
	end.Messages = map[int]messages.Mail{}
	for i, s := range o.Slots {
		if all := b.mail[s.Message]; len(all) >= s.Nth {
			l := all[s.Nth-1]
			end.Messages[i] = l.Mail
			if first < 0 || l.nth < at {
				first, at = i, l.nth
			}
		} else if b.shut[s] {
			shut++
		}
	}
	switch {
	case o.Kind == actors.WaitAll:
		end.Timeout = shut > 0
		return end, end.Timeout || len(end.Messages) == len(o.Slots)
	case first >= 0:
		end.Messages = map[int]messages.Mail{first: end.Messages[first]}
		return end, true
	}
	end.Timeout = shut > 0 && shut == len(o.Slots)
	return end, end.Timeout
}

func (b *Book) children(o open) (end messages.Waited, over bool) {
	results, failed := 0, false
	end.Children = []string{}
	for _, name := range o.Children {
		s := b.steps[name]
		if s.Status != messages.StepChild {
			continue
		}
		end.Children = append(end.Children, name)
		if s.Error != "" {
			failed = true
		} else {
			results++
		}
	}
	over = len(end.Children) == len(o.Children) || o.Need > 0 && results >= o.Need || failed && !o.KeepGoing
	if len(end.Children) == len(o.Children) {
		end.Children = nil
	}
	return end, over
}
