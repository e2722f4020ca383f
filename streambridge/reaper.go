package streambridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"
)

// reaper is the actor that runs upkeep on a clock of its own, also when the node is idle: it takes over what dead nodes
// held, finds strays, moves what is due, trims. Each tick's I/O and decoding run in a goroutine that posts the result back;
// at most one tick is under way.
type reaper struct {
	upkeep  Upkeep
	request TickRequest
	room    func() int
	stuck   func() int64 // nil for none
	in      *intake
	bridge  *actor.PID
	monitor *monitor
	log     hclog.Logger
	every   time.Duration
	lease   time.Duration
	timeout time.Duration
	guard   func(actor.Context)
	stopped chan struct{}
	gate    *atomic.Pointer[Gate] // as of the last tick

	cancel   context.CancelFunc
	work     sync.WaitGroup
	clock    *time.Timer
	busy     bool // from the begin of a tick until the bridge has taken what it found
	calm     bool
	unserved map[string]int // by agent type, how many ticks in a row have found nobody who runs it
}

// unservedTicks in a row make the alarm: at one of them a node that has just started, or whose server was just emptied, may
// not be known yet.
const unservedTicks = 2

// soon is when the next tick follows one that found more than there was room for.
const soon = 50 * time.Millisecond

// The reaper's private messages.
type (
	// due comes from its clock.
	due struct{}
	// ticked comes from the tick's goroutine.
	ticked struct {
		began time.Time
		tick  Tick
		found swept
		err   error
	}
	// taken is the bridge's answer to swept: its room is up to date.
	taken struct{ more bool }
)

func (due) IgnoreDeadLetterLogging()    {}
func (ticked) IgnoreDeadLetterLogging() {}
func (taken) IgnoreDeadLetterLogging()  {}

// Receive never blocks.
func (r *reaper) Receive(ctx actor.Context) {
	defer r.guard(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		root, self := ctx.ActorSystem().Root, ctx.Self()
		r.clock = time.AfterFunc(r.every, func() { root.Send(self, due{}) })
		r.tick(ctx)
	case due:
		r.tick(ctx)
		r.clock.Reset(r.every)
	case ticked:
		if errors.Is(m.err, ErrUsurped) {
			ctx.Send(r.bridge, beaten{Beat{Usurped: true}})
		} else {
			r.judge(m)
		}
		ctx.Request(r.bridge, sweptOf(m))
	case taken:
		r.busy = false
		switch {
		case m.more && r.room() > 0:
			r.tick(ctx)
		case m.more:
			// What there is more may be for us when the window has room again; soon, but not in a hot loop.
			r.clock.Reset(min(r.every, soon))
		}
	case *actor.Stopping:
		if r.clock != nil {
			r.clock.Stop()
		}
		if r.cancel != nil {
			r.cancel()
		}
	case *actor.Stopped:
		close(r.stopped)
	}
}

// wait waits for the goroutine of the last tick. It is called after stopped was closed.
func (r *reaper) wait() { r.work.Wait() }

// tick starts one turn, unless one is under way.
func (r *reaper) tick(ctx actor.Context) {
	if r.busy {
		return
	}
	r.busy = true
	// The bridge must know of the tick before the tick looks: see window.settledNow.
	ctx.Send(r.bridge, sweeping{})
	request := r.request
	request.Room = r.room()
	if r.stuck != nil {
		request.Stuck = r.stuck()
	}
	root, self := ctx.ActorSystem().Root, ctx.Self()
	life, cancel := context.WithTimeout(context.Background(), r.timeout)
	r.cancel = cancel
	r.work.Go(func() {
		defer cancel()
		root.Send(self, r.run(life, request))
	})
}

// run is one turn, on a goroutine of its own.
func (r *reaper) run(ctx context.Context, request TickRequest) (done ticked) {
	done.began = time.Now()
	defer func() {
		if p := recover(); p != nil {
			done.err = fmt.Errorf("the tick panicked: %v", p)
		}
	}()
	if done.tick, done.err = r.upkeep.Tick(ctx, request); done.err != nil {
		done.err = fmt.Errorf("tick: %w", done.err)
		return done
	}
	done.found.claimed, _, _ = r.in.arrivals(done.tick.Claimed)
	done.found.strays, _, _ = r.in.arrivals(done.tick.Strays)
	done.found.drained, _, _ = r.in.arrivals(done.tick.Drained)
	done.found.cancelled = done.tick.Cancelled
	done.tick.Claimed, done.tick.Strays, done.tick.Drained = nil, nil, nil
	return done
}

// sweptOf is what the bridge gets of a tick, also of a failed one: it ends the sweep.
func sweptOf(m ticked) swept {
	m.found.more = m.err == nil && m.tick.More
	return m.found
}

// judge says what a person should know of a tick.
func (r *reaper) judge(m ticked) {
	if m.err != nil {
		r.monitor.bad(m.err)
		return
	}
	r.monitor.good(m.began)
	for _, ref := range m.tick.Buried {
		r.log.Warn("an orphan became a dead letter", "stream", ref.Stream, "entry_id", ref.ID)
		r.monitor.emit(EntryBuried{Ref: ref})
	}
	if m.tick.Missed > 0 {
		r.log.Error("somebody trimmed entries that nobody in the group had read", "entries", m.tick.Missed)
		r.monitor.emit(StreamMissed{Count: m.tick.Missed})
	}
	if m.tick.Calm != r.calm {
		r.calm = m.tick.Calm
		if r.calm {
			r.log.Info("no node was up for a while; what others hold stays theirs until they had time to return", "for", r.lease)
		} else {
			r.log.Info("what others hold and do not return for is taken over again")
		}
		r.monitor.emit(ReclaimCalm{On: r.calm})
	}
	r.judgeGate(m.tick.Gate)
	now := map[string]int{}
	for _, name := range m.tick.Unserved {
		if now[name] = r.unserved[name] + 1; now[name] == unservedTicks {
			r.log.Warn("entries wait for an agent type that no live node runs", "type", name)
			r.monitor.emit(TypeUnserved{Type: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.unserved)) {
		if now[name] == 0 && r.unserved[name] >= unservedTicks {
			r.log.Info("nothing waits for the agent type any more, or a node runs it", "type", name)
			r.monitor.emit(TypeServed{Type: name})
		}
	}
	r.unserved = now
}
