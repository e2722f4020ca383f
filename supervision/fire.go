package supervision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/schedule"
)

// What a node does about one schedule that is due: plan, ask the condition, fire, tell.

const (
	// fireTries and firePause bring a fire through a lost reply; after that the next look sees what became of it.
	fireTries = 4
	firePause = 250 * time.Millisecond
	// fireArguments is after how many names and values of tasks' fields a fire ends: a script takes some thousands.
	fireArguments = 3000
)

// verdict is what the condition said of a tick that does not run.
type verdict struct {
	tick time.Time
	err  error
}

// deal fires a schedule. It returns what is next by the server's clock, and whether there is more to do at once.
func (s *scheduler) deal(ctx context.Context, c *schedule.Compiled, due actors.ScheduleDue, now time.Time) (next time.Time, again bool) {
	plan := c.Plan(due.Tick, now)
	fire := actors.ScheduleFire{
		Name: due.Name, Hash: due.Hash, Tick: due.Tick, Next: plan.Next, Missed: int64(plan.Count),
		Incarnation: s.incarnation, TTL: schedule.Forget,
	}
	switch c.Overlap {
	case schedule.Skip:
		fire.Overlap = actors.OverlapSkipped
	case schedule.CancelOld:
		fire.Overlap = actors.OverlapRefused
	case schedule.Allow:
	}
	runs := plan.Runs
	if c.Overlap != schedule.Allow && len(runs) > 1 {
		// One at a time: whether the second overlaps is known when the first was started.
		fire.Next, runs = runs[1], runs[:1]
	}
	if plan.Count > 0 {
		fire.Why = "missed"
	}
	var vetoed []verdict
	arguments := 0
	for _, tick := range runs {
		if arguments > fireArguments {
			fire.Next = tick // the rest at once, in a fire of its own
			break
		}
		ok, err := s.ask(ctx, c, tick)
		if ctx.Err() != nil {
			return time.Time{}, false // nobody knows what it would have said: another node asks
		}
		if !ok {
			vetoed = append(vetoed, verdict{tick, err})
			fire.Vetoed++
			fire.Why = "the condition said no"
			if err != nil {
				fire.Why = "the condition failed: " + err.Error()
			}
			continue
		}
		task, err := c.Submission(s.tasks, tick, now)
		if err != nil {
			s.report(due.Name, err)
			return time.Time{}, false
		}
		arguments += 2 * len(task.Fields)
		fire.Runs = append(fire.Runs, actors.ScheduleRun{Tick: tick, Task: task})
	}
	fired, err := s.fire(ctx, fire)
	for range fireTries {
		if err != nil || fired.Outcome != actors.ScheduleBusy {
			break
		}
		if err = s.cancelOld(ctx, due.Name, fired.Task, fire.Runs[0].Tick); err == nil {
			fired, err = s.fire(ctx, fire)
		}
	}
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.log.Warn("a schedule that is due could not be fired, trying on", "schedule", due.Name, "err", err)
		}
		return time.Time{}, false
	case fired.Outcome == actors.ScheduleMoved || fired.Outcome == actors.ScheduleOverlapped:
		s.tell(fire, plan, vetoed, fired, now)
		return fired.Next, !fired.Next.IsZero() && !fired.Next.After(now)
	case fired.Outcome == actors.ScheduleBusy:
		s.log.Warn("a schedule that is due waits: the task before was cancelled and has not ended", "schedule", due.Name, "task_id", fired.Task)
		return time.Time{}, false
	case fired.Outcome == actors.ScheduleFull:
		s.log.Warn("a schedule that is due waits: the stream is full", "schedule", due.Name, "tick", due.Tick)
		return time.Time{}, false
	default: // another node was first, or its description is another one
		return fired.Next, false
	}
}

// fire repeats a call whose answer is unknown.
func (s *scheduler) fire(ctx context.Context, f actors.ScheduleFire) (fired actors.ScheduleFired, err error) {
	for range fireTries {
		if fired, err = s.desk.FireSchedule(ctx, f); err == nil {
			return fired, nil
		}
		select {
		case <-ctx.Done():
			return fired, err
		case <-time.After(firePause):
		}
	}
	return fired, err
}

// cancelOld ends the task of the tick before. A node that dies after this leaves the tick to another one, which finds
// nothing to cancel any more.
func (s *scheduler) cancelOld(ctx context.Context, name, id string, tick time.Time) error {
	err := s.tasks.Task(id).Cancel(ctx, fmt.Sprintf("schedule %s: the tick of %s has come", name, tick.Format(time.RFC3339)))
	switch {
	case err == nil:
		s.log.Info("the task of the tick before was cancelled", "schedule", name, "task_id", id, "tick", tick)
		s.events(ScheduleCancelled{Schedule: name, Tick: tick, TaskID: id})
		return nil
	case errors.Is(err, actors.ErrEnded), errors.Is(err, actors.ErrNoTask):
		return nil
	}
	return err
}

// ask asks the condition of a schedule, if it has one. A condition that goes on after its time, or after ctx, is left alone.
func (s *scheduler) ask(ctx context.Context, c *schedule.Compiled, tick time.Time) (bool, error) {
	if c.When == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, conditionPatience, errConditionSlow)
	defer cancel()
	type answer struct {
		ok  bool
		err error
	}
	said := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if p := recover(); p != nil {
				a = answer{err: fmt.Errorf("it panicked: %v", p)}
			}
			said <- a
		}()
		a.err = errors.New("it ended by runtime.Goexit")
		a.ok, a.err = c.When(ctx, tick)
	}()
	select {
	case a := <-said:
		return a.ok && a.err == nil, a.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// tell makes events and log lines of what was done.
func (s *scheduler) tell(f actors.ScheduleFire, plan schedule.Plan, vetoed []verdict, fired actors.ScheduleFired, now time.Time) {
	if plan.Count > 0 {
		s.log.Warn("ticks of a schedule were missed", "schedule", f.Name, "from", plan.Missed[0], "to", plan.Missed[1], "count", plan.Count)
		s.events(ScheduleMissed{Schedule: f.Name, From: plan.Missed[0], To: plan.Missed[1], Count: plan.Count})
	}
	for _, v := range vetoed {
		if v.err != nil {
			s.log.Warn("the condition of a schedule failed: the tick is passed over", "schedule", f.Name, "tick", v.tick, "err", v.err)
		} else {
			s.log.Debug("the condition of a schedule said no", "schedule", f.Name, "tick", v.tick)
		}
		s.events(ScheduleVetoed{Schedule: f.Name, Tick: v.tick, Err: v.err})
	}
	for _, run := range f.Runs {
		if fired.Outcome == actors.ScheduleOverlapped {
			s.log.Info("a tick is passed over: the task before has not ended", "schedule", f.Name, "tick", run.Tick, "task_id", fired.Task)
			s.events(ScheduleOverlapped{Schedule: f.Name, Tick: run.Tick, TaskID: fired.Task})
			continue
		}
		s.fired.Add(1)
		s.log.Debug("schedule fired", "schedule", f.Name, "tick", run.Tick, "task_id", run.Task.ID)
		s.events(ScheduleFired{Schedule: f.Name, Tick: run.Tick, TaskID: run.Task.ID, Late: now.Sub(run.Tick)})
	}
}

// ScheduleFired says that this node submitted the task of a tick.
type ScheduleFired struct {
	Schedule string
	Tick     time.Time
	TaskID   string
	// Late is how long after the tick, by the server's clock.
	Late time.Duration
}

// ScheduleVetoed says that a schedule's condition passed over a tick: it said no, or failed with Err.
type ScheduleVetoed struct {
	Schedule string
	Tick     time.Time
	Err      error
}

// ScheduleMissed says that ticks are not made up for, because nothing fired at their time. One run may follow that stands
// for them.
type ScheduleMissed struct {
	Schedule string
	From, To time.Time
	// Count is how many, up to 1,000.
	Count int
}

// ScheduleOverlapped says that a tick was passed over because the task before it has not ended.
type ScheduleOverlapped struct {
	Schedule string
	Tick     time.Time
	// TaskID is the one that has not ended.
	TaskID string
}

// ScheduleCancelled says that a tick cancelled the task of the one before, which had not ended.
type ScheduleCancelled struct {
	Schedule string
	// Tick that has come.
	Tick time.Time
	// TaskID is the one that was cancelled.
	TaskID string
}

// ScheduleBroken says that a schedule cannot be used on this node: its pattern or its zone, mostly. The others fire.
type ScheduleBroken struct {
	Schedule string
	Err      error
}

// Name of the event.
func (ScheduleFired) Name() string { return "schedule_fired" }

// Name of the event.
func (ScheduleVetoed) Name() string { return "schedule_vetoed" }

// Name of the event.
func (ScheduleMissed) Name() string { return "schedule_missed" }

// Name of the event.
func (ScheduleOverlapped) Name() string { return "schedule_overlapped" }

// Name of the event.
func (ScheduleCancelled) Name() string { return "schedule_cancelled" }

// Name of the event.
func (ScheduleBroken) Name() string { return "schedule_broken" }
