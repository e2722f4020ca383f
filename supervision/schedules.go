package supervision

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/schedule"
)

const (
	// lookEvery is how long a schedule that somebody adds or changes goes unnoticed. What is known to be next is looked for
	// at its time.
	lookEvery = 2 * time.Second
	// lookSoon is how soon a look follows one that found more than it could bring.
	lookSoon = 100 * time.Millisecond
	// dueAtOnce is how many schedules one look brings.
	dueAtOnce = 50
	// declareEvery is how often a node says again what it declares, long before that would be forgotten.
	declareEvery = time.Hour
	// declareSoon is how soon it says so again where the store knows of no schedule at all: it may have lost its data.
	declareSoon = 10 * time.Second
	// conditionPatience is how long a When may take.
	conditionPatience = 10 * time.Second
	// stepAside lets one node of several fire while the others come too late to try.
	stepAside = 20 * time.Millisecond
)

// scheduler fires schedules: those that the node declares, and those that clients added. Its loop looks at the store, which
// alone decides what is due and who was first; each schedule that is due is dealt with in a goroutine of its own, since its
// condition is a user's code.
type scheduler struct {
	desk        actors.ScheduleDesk
	tasks       *actors.Client
	incarnation string
	log         hclog.Logger
	events      func(Event)
	fault       func(error)

	own    map[string]*schedule.Compiled // by name
	broken map[string]error              // declared here, by name, and cannot be used
	hashes []string                      // of own
	added  map[string]*schedule.Compiled // clients' schedules, by hash; nil for one that cannot be read here

	started  map[string]bool // declared since the node started
	declared time.Time       // when all were declared last
	busy     map[string]bool
	done     chan handled
	work     sync.WaitGroup
	cancel   context.CancelFunc
	stopped  chan struct{}

	fired, unusable atomic.Int64
}

// handled is what a schedule's goroutine tells the loop.
type handled struct {
	name  string
	next  time.Time // by the server's clock; zero for none
	again bool      // there is more to do at once
}

// newScheduler compiles what the node declares. What is broken is kept to be told of, and stops nothing.
func newScheduler(declared []schedule.Schedule, desk actors.ScheduleDesk, tasks *actors.Client) *scheduler {
	s := &scheduler{
		desk: desk, tasks: tasks,
		own: map[string]*schedule.Compiled{}, broken: map[string]error{}, added: map[string]*schedule.Compiled{},
		started: map[string]bool{}, busy: map[string]bool{}, done: make(chan handled, dueAtOnce), stopped: make(chan struct{}),
	}
	for i, one := range declared {
		ready, err := schedule.Compile(one)
		if err == nil {
			_, err = ready.Submission(tasks, time.Now(), time.Now())
		}
		switch {
		case one.Name == "":
			// It has no name under which it could be reported.
			s.broken[fmt.Sprintf("(number %d of Config.Schedules)", i+1)] = err
		case s.own[one.Name] != nil || s.broken[one.Name] != nil:
			delete(s.own, one.Name)
			s.broken[one.Name] = fmt.Errorf("schedule %q: %w: Config.Schedules has its name twice", one.Name, schedule.ErrInvalid)
		case err != nil:
			s.broken[one.Name] = err
		default:
			s.own[one.Name] = ready
		}
	}
	for _, c := range s.own {
		s.hashes = append(s.hashes, c.Hash)
	}
	slices.Sort(s.hashes)
	s.unusable.Store(int64(len(s.broken)))
	return s
}

// start begins the loop. ctx ends what it does; stop waits for that.
func (s *scheduler) start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, name := range sortedNames(s.broken) {
		s.report(name, s.broken[name])
	}
	go func() {
		defer close(s.stopped)
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("panic in the scheduler", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				s.fault(fmt.Errorf("panic in the scheduler: %v", p))
			}
		}()
		s.run(ctx)
	}()
}

// stop ends the loop and waits until nothing of it fires any more.
func (s *scheduler) stop() {
	s.cancel()
	<-s.stopped
	s.work.Wait()
}

func (s *scheduler) run(ctx context.Context) {
	clock := time.NewTimer(0)
	defer clock.Stop()
	var looked, now time.Time // the same moment by this node's clock and by the server's
	next := time.Now()        // when to look, by this node's
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-s.done:
			delete(s.busy, h.name)
			switch {
			case h.again:
				next = time.Now()
			case !h.next.IsZero():
				next = earlier(next, looked.Add(h.next.Sub(now)))
			}
			clock.Reset(time.Until(next))
			continue
		case <-clock.C:
		}
		due, err := s.look(ctx)
		looked = time.Now()
		next = looked.Add(lookEvery)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				s.log.Warn("the store does not tell what is due, trying on", "err", err)
			}
			failing = true
		default:
			if failing {
				s.log.Info("the store tells again what is due")
			}
			failing = false
			now = due.Now
			if !due.Soonest.IsZero() {
				next = earlier(next, looked.Add(due.Soonest.Sub(now)+rand.N(stepAside)))
			}
			for _, one := range due.Due {
				s.begin(ctx, one, now)
			}
			if due.More {
				next = looked.Add(lookSoon)
			}
		}
		clock.Reset(time.Until(next))
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// look asks what is due, and declares what is to be declared.
func (s *scheduler) look(ctx context.Context) (actors.SchedulesDue, error) {
	due, err := s.desk.DueSchedules(ctx, actors.ScheduleQuery{Hashes: s.hashes, Limit: dueAtOnce})
	if err != nil {
		return due, err
	}
	since := time.Since(s.declared)
	lost := due.Known == 0 && since > declareSoon
	if len(s.own)+len(s.broken) == 0 || len(s.started) == len(s.own)+len(s.broken) && since < declareEvery && !lost {
		return due, nil
	}
	if err := s.declare(ctx, due.Now); err != nil {
		if ctx.Err() != nil {
			return due, context.Cause(ctx)
		}
		s.log.Warn("schedules could not be declared, trying on", "err", err)
	} else {
		s.declared = time.Now()
	}
	// What is due by now is not what was due before.
	return s.desk.DueSchedules(ctx, actors.ScheduleQuery{Hashes: s.hashes, Limit: dueAtOnce})
}

// declare says what this node has: with the right of the last start the first time. One that the store refuses does not keep
// the others from it.
func (s *scheduler) declare(ctx context.Context, now time.Time) error {
	var errs []error
	for _, name := range sortedNames(s.own) {
		c := s.own[name]
		d := actors.ScheduleDeclaration{
			Name: name, Definition: c.Data, Hash: c.Hash, Next: c.Next(now), InCode: true, Start: !s.started[name], TTL: schedule.Forget,
		}
		got, err := s.desk.DeclareSchedule(ctx, d)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.started[name] = true
		switch got {
		case actors.ScheduleNew, actors.ScheduleChanged:
			if d.Next.IsZero() {
				s.log.Warn("the time of a schedule had passed when it was declared: it does not fire", "schedule", name, "at", c.At)
				continue
			}
			s.log.Info("schedule declared", "schedule", name, "next", d.Next, "changed", got == actors.ScheduleChanged)
		case actors.ScheduleOther, actors.ScheduleRemoved:
			s.log.Debug("a schedule that this node declares does not count", "schedule", name, "removed", got == actors.ScheduleRemoved)
		case actors.ScheduleKnown, actors.ScheduleTaken:
		}
	}
	for _, name := range sortedNames(s.broken) {
		if len(name) <= schedule.MaxName && name[0] != '(' { // there is a name to show it under
			_, err := s.desk.DeclareSchedule(ctx, actors.ScheduleDeclaration{
				Name: name, InCode: true, Start: !s.started[name], Broken: s.broken[name].Error(), TTL: schedule.Forget,
			})
			if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		s.started[name] = true
	}
	return errors.Join(errs...)
}

// begin deals with a schedule that is due, unless that is going on already.
func (s *scheduler) begin(ctx context.Context, due actors.ScheduleDue, now time.Time) {
	c := s.own[due.Name]
	if due.Definition != nil {
		c = s.read(due)
	}
	if c == nil || s.busy[due.Name] {
		return
	}
	s.busy[due.Name] = true
	s.work.Go(func() {
		h := handled{name: due.Name}
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("panic at a schedule", "schedule", due.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
			select {
			case s.done <- h:
			case <-s.stopped:
			}
		}()
		h.next, h.again = s.deal(ctx, c, due, now)
	})
}

// read compiles a client's schedule, once for each definition.
func (s *scheduler) read(due actors.ScheduleDue) *schedule.Compiled {
	c, known := s.added[due.Hash]
	if known {
		return c
	}
	c, err := schedule.FromDefinition(due.Definition)
	if err != nil {
		s.unusable.Add(1)
		s.report(due.Name, err)
		c = nil
	}
	if len(s.added) > 10_000 { // of definitions that come and go
		clear(s.added)
	}
	s.added[due.Hash] = c
	return c
}

func (s *scheduler) report(name string, err error) {
	s.log.Error("a schedule cannot be used: it does not fire, the others do", "schedule", name, "err", err)
	s.events(ScheduleBroken{Schedule: name, Err: err})
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

var errConditionSlow = errors.New("the condition did not answer within " + conditionPatience.String())
