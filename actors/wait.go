package actors

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/weir-run/weir/messages"
)

// NoTimeout is the timeout of a wait without an end.
const NoTimeout time.Duration = math.MinInt64

// Await waits for the first message of that name to the task, for at most the given time, and returns it. The name is one
// of the activation's steps and waits too. A message that came before, however long ago, is there at once.
//
// While it waits the task holds nothing: no goroutine, no place, no lease. Await answers ErrParked, the handler returns
// that, and when the message is there, or the time is over, the handler is called again from the top and Await answers. The
// time counts from when the wait was first written, by the server's clock, and nothing moves it: no replay, no crash, no
// other node. Message and end of the time are one fact: what was first is what every later activation sees, and a message
// that comes after the end is refused with ErrAnswered.
//
// When the time is over, or was over for another wait for the message, the error is ErrTimeout; a message that does not
// decode as T is a *MessageError. Both are final when the handler returns them, since another attempt would get the same
// answer. A timeout of 0 is ErrMisuse; see NoTimeout.
func Await[T any](c *Context, name string, timeout time.Duration) (T, error) {
	m := Expect[T](name)
	err := c.messages("await", Wait{Name: name, Kind: WaitFirst, Closes: true}, timeout, []Waiter{m})
	return m.value, err
}

// Sleep waits until the given time has passed since the sleep was first written, by the server's clock. Like every wait it
// holds nothing meanwhile; see Await. Its name is one of the activation's steps and waits. It does not wait for 0 or less.
func Sleep(c *Context, name string, d time.Duration) error {
	w := Wait{Name: name, Kind: WaitFirst, For: wholeMS(max(d, 0))}
	var bad error
	if d == NoTimeout {
		bad = errors.New("it would sleep for ever")
	}
	_, err := c.wait("sleep", w, bad, fmt.Sprintf("sleeps for %v in %q", d, name))
	return err
}

// Waiter is a message that First and All wait for: see Expect.
type Waiter interface {
	check() error
	slot() Slot
	// take decodes what came.
	take(wait string, m messages.Mail) error
}

// Message is a message that First or All wait for.
type Message[T any] struct {
	name  string
	nth   int
	value T
	there bool
}

// Expect names a message for First and All: the first one of that name to the task, or another (Nth). It waits for nothing
// by itself, and the name is the message's alone: no step or wait is named so.
func Expect[T any](name string) *Message[T] { return &Message[T]{name: name, nth: 1} }

// Nth is the n-th message of that name, from 1, in the order in which they were accepted. Messages with one id count once.
func (m *Message[T]) Nth(n int) *Message[T] { return &Message[T]{name: m.name, nth: n} }

// Get returns the message, and false while no First or All has ended with it.
func (m *Message[T]) Get() (T, bool) { return m.value, m.there }

func (m *Message[T]) check() error {
	switch {
	case m == nil || m.name == "" && m.nth == 0:
		return errors.New("a message that Expect has not made")
	case m.nth < 1:
		return fmt.Errorf("message %q: Nth(%d) must be at least 1", m.name, m.nth)
	}
	if err := checkName(m.name); err != nil {
		return fmt.Errorf("message %.80q: %w", m.name, err)
	}
	return typeErr(fmt.Sprintf("message %q", m.name), reflect.TypeFor[T]())
}

func (m *Message[T]) slot() Slot { return Slot{Message: m.name, Nth: m.nth} }

func (m *Message[T]) take(wait string, mail messages.Mail) error {
	v, err := decode[T](stored{mail.ContentType, mail.Payload}, true)
	if err != nil {
		return &MessageError{Wait: wait, Name: m.name, Nth: m.nth, Err: err}
	}
	m.value, m.there = v, true
	return nil
}

// First waits until one of the messages is there, for at most the given time. Get tells which: it is one alone, also when
// another has come since. For the rest see Await; but a message that comes too late is accepted, since other waits may want
// it.
func First(c *Context, name string, timeout time.Duration, w ...Waiter) error {
	return c.messages("first", Wait{Name: name, Kind: WaitFirst}, timeout, w)
}

// All waits until all the messages are there, for at most the given time. When the time is over, Get returns those that
// were there by then. For the rest see Await and First.
func All(c *Context, name string, timeout time.Duration, w ...Waiter) error {
	return c.messages("all", Wait{Name: name, Kind: WaitAll}, timeout, w)
}

// messages waits for messages and hands out what came.
func (c *Context) messages(kind string, w Wait, timeout time.Duration, waiters []Waiter) error {
	var bad error
	w.For, bad = limitOf(timeout)
	why := fmt.Sprintf("waits for message %q", w.Name)
	if !w.Closes {
		why = fmt.Sprintf("waits in %q for %s of", w.Name, kind)
	}
	if len(waiters) == 0 {
		bad = errors.Join(bad, errors.New("it has no message to wait for"))
	}
	seen := map[Slot]bool{}
	for i, m := range waiters {
		if m == nil {
			bad = errors.Join(bad, errors.New("a nil message"))
			continue
		}
		if err := m.check(); err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		s := m.slot()
		if seen[s] {
			bad = errors.Join(bad, fmt.Errorf("message %q is there twice, and one message would do for both: see Nth", s.Message))
		}
		seen[s] = true
		w.Slots = append(w.Slots, s)
		if !w.Closes && i < shownSlots {
			why += " " + s.String()
		}
	}
	end, err := c.wait(kind, w, bad, why)
	if err != nil {
		return err
	}
	var unread error
	for i, m := range waiters {
		if mail, ok := end.Messages[i]; ok {
			if err := m.take(w.Name, mail); err != nil && unread == nil {
				unread = err
			}
		}
	}
	switch {
	case unread != nil:
		return unread
	case end.Timeout:
		return &waitError{kind: kind, name: w.Name, after: timeout}
	}
	return nil
}

// shownSlots is how many messages the text of a wait names.
const shownSlots = 5

// String is the message's name, with the number of all but the first.
func (s Slot) String() string {
	if s.Nth == 1 {
		return fmt.Sprintf("%q", s.Message)
	}
	return fmt.Sprintf("%q (%d)", s.Message, s.Nth)
}

// limitOf checks a wait's timeout and makes a Wait.For of it.
func limitOf(timeout time.Duration) (time.Duration, error) {
	switch {
	case timeout == NoTimeout:
		return -1, nil
	case timeout <= 0:
		return 0, fmt.Errorf("a timeout of %v: say how long it may take, or NoTimeout", timeout)
	}
	return wholeMS(timeout), nil
}

// wholeMS rounds up to what stores count in: no wait ends early.
func wholeMS(d time.Duration) time.Duration {
	if part := d % time.Millisecond; part > 0 && d < math.MaxInt64-time.Millisecond {
		d += time.Millisecond - part
	}
	return d
}

// wait answers a wait from its checkpoint, or parks. kind says it to the author; bad is what is wrong with how it was called.
func (c *Context) wait(kind string, w Wait, bad error, why string) (messages.Waited, error) {
	var none messages.Waited
	if err := c.named(kind, w.Name); err != nil {
		return none, err
	}
	defer c.leave()
	if bad != nil {
		return none, c.misuse("%s %q: %v", kind, w.Name, bad)
	}
	cp, found, err := c.act.kept(kind, w.Name, messages.StepWaited)
	switch {
	case err != nil:
		return none, err
	case !found && w.For == 0 && len(w.Slots) == 0 && w.Kind != WaitJoin:
		return none, nil // a sleep of no time
	case !found:
		return none, c.park(&parking{waits: []Wait{w}, why: why})
	}
	end, err := messages.DecodeWaited(w.Name, cp.Value)
	if err != nil {
		return none, c.act.latchTo(err)
	}
	return end, nil
}

// kept finds the checkpoint of a wait or a child. One that a step of that name left is of another version of the code.
func (a *activation) kept(kind, name string, statuses ...messages.StepStatus) (messages.Step, bool, error) {
	cp, found, err := a.lookup(name)
	if err != nil {
		return cp, false, a.latchTo(err)
	}
	if !found {
		return cp, false, nil
	}
	if !slices.Contains(statuses, cp.Status) {
		return cp, false, a.otherKind(kind, cp)
	}
	a.replayed(name)
	return cp, true, nil
}

// otherKind sets the unit aside: what has the name now is not what left the checkpoint.
func (a *activation) otherKind(kind string, cp messages.Step) error {
	return a.latchTo(fmt.Errorf("%s %q: the checkpoint of that name is of another kind (%s): what was it in an earlier version of the code? %w",
		kind, cp.Name, cp.Status, messages.ErrStep))
}
