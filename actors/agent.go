package actors

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Handler is one message type of an agent. Make it with On.
type Handler[A any] struct {
	name string
	err  error
	// bind decodes the message, and gives the call that is left.
	bind func(in stored) (call func(*A, *Context) (stored, error), err error)
}

// On makes a handler of a method, such as On((*Refund).Handle). The message M and the result R are protobuf messages (as
// pointers), Go values that JSON keeps, Raw or None; a type that would lose something is refused by Agent.Err.
func On[A, M, R any](f func(*A, *Context, M) (R, error)) Handler[A] {
	h := Handler[A]{err: errors.Join(typeErr("message", reflect.TypeFor[M]()), typeErr("result", reflect.TypeFor[R]()))}
	if f == nil {
		h.err = errors.Join(h.err, fmt.Errorf("%w: a handler without a function", ErrMisuse))
	}
	h.bind = func(in stored) (func(*A, *Context) (stored, error), error) {
		m, err := decode[M](in, true)
		if err != nil {
			return nil, &payloadError{err}
		}
		return func(a *A, c *Context) (stored, error) {
			r, err := f(a, c, m)
			if err != nil {
				return stored{}, err
			}
			return encode(r)
		}, nil
	}
	return h
}

// As names the handler: entries of type "agent/name" go to it. Without a name it gets those of type "agent".
// Names are the only thing that routes: a new version of a message is a new handler, As("v2").
func (h Handler[A]) As(name string) Handler[A] {
	h.name = name
	if err := routeName("As", name); err != nil {
		h.err = errors.Join(h.err, err)
	}
	return h
}

func typeErr(what string, t reflect.Type) error {
	if err := lossless(t); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// payloadError is a payload that does not decode as its handler's message.
type payloadError struct{ err error }

func (e *payloadError) Error() string { return e.err.Error() }
func (e *payloadError) Unwrap() error { return e.err }

// Agent is a behaviour: handlers over a value that is made afresh for each activation. Make it with Of or Func; the zero
// Agent is refused. It is immutable and may be shared.
type Agent struct {
	fresh    func() error // misuse that shows when values are made
	routes   map[string]route
	external any
	set      settings
	err      error
	warn     *warner
}

// route decodes the message of one handler.
type route func(in stored) (bound, error)

// bound runs the handler on its message and a fresh value.
type bound func(c *Context) (stored, error)

// Of makes an agent whose fresh function gives the value that handlers run on: a new one each time, since what a value
// keeps between two calls is neither stored nor shared between nodes.
func Of[A any](fresh func() *A, handlers ...Handler[A]) Agent {
	a := newAgent()
	if fresh == nil {
		a.err = fmt.Errorf("%w: Of(nil) has no function that makes its value", ErrMisuse)
		return a
	}
	if len(handlers) == 0 {
		a.err = fmt.Errorf("%w: Of has no handler", ErrMisuse)
	}
	a.fresh = func() error { return checkFresh(fresh) }
	for _, h := range handlers {
		what := "handler " + h.name
		if h.name == "" {
			what = "handler"
		}
		if h.bind == nil {
			h.err = fmt.Errorf("%w: a zero Handler", ErrMisuse)
		}
		if h.err != nil {
			a.err = errors.Join(a.err, fmt.Errorf("%s: %w", what, h.err))
		}
		if _, twice := a.routes[h.name]; twice {
			a.err = errors.Join(a.err, fmt.Errorf("%w: two handlers named %q: tell them apart with As", ErrMisuse, h.name))
		}
		a.routes[h.name] = func(in stored) (bound, error) {
			call, err := h.bind(in)
			if err != nil {
				return nil, err
			}
			return func(c *Context) (stored, error) {
				v := fresh()
				if v == nil {
					return stored{}, c.misuse("the agent's value is nil")
				}
				return call(v, c)
			}, nil
		}
	}
	return a
}

// Func makes an agent of a function.
func Func[M, R any](f func(*Context, M) (R, error)) Agent {
	var h func(*struct{}, *Context, M) (R, error)
	if f != nil {
		h = func(_ *struct{}, c *Context, m M) (R, error) { return f(c, m) }
	}
	return Of(func() *struct{} { return new(struct{}) }, On(h))
}

// External makes an agent that is run by something else than Activate: x is handed to the runtime as it is. It is how
// actors/agentactor carries a plain protoactor actor.
func External(x any) Agent {
	a := newAgent()
	a.external = x
	if x == nil {
		a.err = fmt.Errorf("%w: External(nil)", ErrMisuse)
	}
	return a
}

func newAgent() Agent {
	return Agent{routes: map[string]route{}, warn: &warner{}, set: settings{budget: Budget{Retry: DefaultRetry.withDefaults()}}}
}

func checkFresh[A any](fresh func() *A) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: making the agent's value panicked: %v", ErrMisuse, r)
		}
	}()
	one, two := fresh(), fresh()
	switch {
	case one == nil || two == nil:
		return fmt.Errorf("%w: Of's function returned nil", ErrMisuse)
	case one == two && reflect.TypeFor[A]().Size() > 0: // all values without size may share one address
		return fmt.Errorf("%w: Of's function must return a new value each time, or activations share it", ErrMisuse)
	}
	return nil
}

// With returns a copy of the agent with options. A later option replaces an earlier one of its kind.
func (a Agent) With(opts ...AgentOption) Agent {
	for _, o := range opts {
		if o == nil {
			a.err = errors.Join(a.err, fmt.Errorf("%w: With(nil)", ErrMisuse))
		} else if err := o.agentOption(&a.set); err != nil {
			a.err = errors.Join(a.err, fmt.Errorf("%w: %w", ErrMisuse, err))
		}
	}
	return a
}

// Err is the misuse that shows without running anything, or nil: types that cannot be stored, two handlers of one name, a
// shared value, impossible options. It makes two values of the agent to compare them.
func (a Agent) Err() error {
	if a.routes == nil {
		return fmt.Errorf("%w: a zero Agent: make it with Of or Func", ErrMisuse)
	}
	if a.fresh == nil {
		return a.err
	}
	return errors.Join(a.err, a.fresh())
}

// Handler says whether the agent has a handler of that name; "" is the one without a name. For an external agent
// every name is taken.
func (a Agent) Handler(name string) bool {
	_, ok := a.routes[name]
	return ok || a.external != nil
}

// External returns what External was given, and whether this is such an agent.
func (a Agent) External() (x any, ok bool) { return a.external, a.external != nil }

// Budget is what its options allow a task to fail.
func (a Agent) Budget() Budget { return a.set.budget }

// Timeout is the longest activation, 0 for no limit. For an external agent it is the deadline of its answer.
func (a Agent) Timeout() time.Duration { return a.set.timeout }

// Agents are the agents of a runtime by name: the entry's type, up to a slash.
type Agents map[string]Agent

// Validate names every agent that cannot be run, and why.
func (as Agents) Validate() error {
	var errs []error
	if len(as) == 0 {
		errs = append(errs, errors.New("Agents must not be empty"))
	}
	for _, name := range slices.Sorted(maps.Keys(as)) {
		if err := errors.Join(routeName("Agents", name), as[name].Err()); err != nil {
			errs = append(errs, fmt.Errorf("agent %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Find returns the agent for an entry's type, "agent" or "agent/handler", and the handler's name. ok is false when there
// is no such agent; whether it has the handler is for Agent.Handler.
func (as Agents) Find(entryType string) (a Agent, handler string, ok bool) {
	name, handler, _ := strings.Cut(entryType, "/")
	a, ok = as[name]
	return a, handler, ok
}

// Types are the agents' names, sorted.
func (as Agents) Types() []string { return slices.Sorted(maps.Keys(as)) }

const maxRouteName = 256

func routeName(where, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: %s: a name must not be empty", ErrMisuse, where)
	case len(name) > maxRouteName:
		return fmt.Errorf("%w: %s: name of %d bytes must have at most %d", ErrMisuse, where, len(name), maxRouteName)
	case !utf8.ValidString(name) || strings.Contains(name, "/"):
		return fmt.Errorf("%w: %s: name %q must be UTF-8 without a slash", ErrMisuse, where, name)
	}
	return nil
}
