package actors

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/weir-run/weir/messages"
)

// Parallel calls f for each element of in, at most limit at once, and returns the results in in's order. Each branch has
// a Context of its own, which is the only one it may use; names are still one namespace, so branches number or name
// their steps apart.
//
// All branches finish, whatever becomes of the others. When one parks, so does the handler; what any of them waits for
// brings it back, and then the others' steps are replayed. The error joins those of the branches. A panic in a branch is a *Panic on the handler's goroutine
// once all have finished.
func Parallel[T, R any](c *Context, limit int, in []T, f func(*Context, T) (R, error)) ([]R, error) {
	const what = "Parallel"
	if err := c.enter(what); err != nil {
		return nil, err
	}
	defer c.leave()
	if limit < 1 || f == nil {
		return nil, c.misuse("Parallel(limit %d) needs a limit of at least 1 and a function", limit)
	}
	p := branches{act: c.act, each: make([]branch, len(in))}
	out := make([]R, len(in))
	p.run(limit, func(i int, c *Context) (err error) {
		out[i], err = f(c, in[i])
		return err
	})
	if err := p.join(c); err != nil {
		return nil, err
	}
	return out, nil
}

type branches struct {
	act  *activation
	each []branch
}

// branch is what became of one element.
type branch struct {
	err    error
	parked *parking
	panic  *Panic
	goexit bool
}

// run calls f for each element, on at most limit goroutines at once, and waits for all of them.
func (p *branches) run(limit int, f func(i int, c *Context) error) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range p.each {
		slots <- struct{}{}
		if err := p.act.latched(); err != nil {
			p.each[i].err = err
			<-slots
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			p.one(i, f)
		})
	}
	wg.Wait()
}

// one is a branch's goroutine: it ends by a return, a panic or a Goexit, and none of them reaches its siblings.
func (p *branches) one(i int, f func(i int, c *Context) error) {
	b := &p.each[i]
	b.goexit = true
	defer func() {
		if v := recover(); v != nil {
			b.goexit, b.panic = false, asPanic(v)
		}
	}()
	c := &Context{act: p.act}
	b.err = f(i, c)
	b.goexit = false
	b.parked = c.parked
	if b.parked != nil && !errors.Is(b.err, ErrParked) {
		p.act.note("a branch of Parallel returned %s although it is parked (%s): return the error", resultOr(b.err), b.parked.why)
	}
}

func asPanic(v any) *Panic {
	if p, ok := v.(*Panic); ok {
		return p
	}
	return &Panic{Value: v, Stack: debug.Stack()}
}

// join brings what became of the branches to the handler: a crash first, then the latch, then an error that a retry can
// heal, then what branches wait for, then final errors.
func (p *branches) join(c *Context) error {
	var errs []error
	var parked *parking
	healable := false
	for i := range p.each {
		b := &p.each[i]
		switch {
		case b.panic != nil:
			panic(b.panic)
		case b.goexit:
			runtime.Goexit()
		case b.parked != nil:
			parked = parked.and(b.parked)
		case b.err != nil:
			healable = healable || failed(p.act.classify(b.err)).Outcome == messages.Outcome_OUTCOME_RETRY
			errs = append(errs, b.err)
		}
	}
	if latched := p.act.latched(); latched != nil {
		return latched
	}
	switch {
	case parked != nil && !healable:
		return c.park(parked)
	case len(errs) == 1:
		return errs[0]
	case len(errs) > 1:
		return fmt.Errorf("%d branches failed: %w", len(errs), errors.Join(errs...))
	}
	return nil
}
