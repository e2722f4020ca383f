package actors

import (
	"context"
	"errors"
	"time"
)

// ErrNoSchedule: no schedule has this name.
var ErrNoSchedule = errors.New("no such schedule")

// ScheduleDesk keeps the schedules of a stream, which all its groups share. It knows names, definitions (as bytes that it
// does not look into) and what is next; package schedule knows what they mean. redisstate and memstate have one. Every
// method is one atomic script and may be repeated after a lost reply.
type ScheduleDesk interface {
	// DeclareSchedule writes a definition, or finds the same one there.
	DeclareSchedule(ctx context.Context, d ScheduleDeclaration) (ScheduleDeclared, error)
	// DueSchedules lists the schedules that are due by the server's clock and that the asking node may fire.
	DueSchedules(ctx context.Context, q ScheduleQuery) (SchedulesDue, error)
	// FireSchedule goes on from one tick to another, and submits tasks for those between. It is refused unless the tick is
	// what is next, the server's clock has reached it and the definition is the one that the caller knows.
	FireSchedule(ctx context.Context, f ScheduleFire) (ScheduleFired, error)
	// PauseSchedule lets nothing be next until ResumeSchedule. ErrNoSchedule. Pausing twice is pausing once.
	PauseSchedule(ctx context.Context, name string) error
	// ResumeSchedule ends a pause; next is worked out from the definition with that hash. ErrConflict: it has another one
	// now. ErrNoSchedule. One that is not paused stays as it is.
	ResumeSchedule(ctx context.Context, name, hash string, next time.Time) error
	// RemoveSchedule forgets a schedule, and tells whether nodes declare it in code: those leave it alone until one of them
	// starts anew. ErrNoSchedule.
	RemoveSchedule(ctx context.Context, name string) (inCode bool, err error)
	// Schedules lists those with the given names, or all, by name. Names that there are not are left out.
	Schedules(ctx context.Context, names ...string) (ScheduleList, error)
}

// ScheduleDeclaration is a definition on its way to the store.
type ScheduleDeclaration struct {
	Name string
	// Definition and Hash of it. Empty with Broken.
	Definition []byte
	Hash       string
	// Next is the first tick of a definition that is new or changed; zero for none. One that is known keeps its own.
	Next time.Time
	// InCode says that a node declares it; otherwise a client adds it.
	InCode bool
	// Start says that the node has just started: its definition wins. Without it the node only says that it still has it.
	Start bool
	// Broken is why the node cannot use its definition; it is shown with the schedule.
	Broken string
	// TTL is how long a schedule of the code is remembered after it was declared or fired last.
	TTL time.Duration
}

// ScheduleDeclared is the answer to a declaration.
type ScheduleDeclared int

const (
	// ScheduleKnown: it stands there just so.
	ScheduleKnown ScheduleDeclared = iota + 1
	// ScheduleNew: there was none of that name.
	ScheduleNew
	// ScheduleChanged: there was another definition, which counts no more.
	ScheduleChanged
	// ScheduleTaken: nodes declare one of that name in code, so a client cannot.
	ScheduleTaken
	// ScheduleOther: there is another definition, of a node that started later.
	ScheduleOther
	// ScheduleRemoved: it was removed after the node had started.
	ScheduleRemoved
)

// ScheduleQuery asks what is due.
type ScheduleQuery struct {
	// Hashes of the definitions that the node declares in code. Those that a client added it may fire anyway.
	Hashes []string
	// Limit is how many at most.
	Limit int
}

// SchedulesDue is what is due.
type SchedulesDue struct {
	// Now is the server's clock.
	Now time.Time
	// Due are those that the node may fire, the one that has waited longest first.
	Due []ScheduleDue
	// More says that there were more than Limit.
	More bool
	// Soonest is the next tick of all that are not due; zero for none.
	Soonest time.Time
	// Known is how many schedules there are.
	Known int
}

// ScheduleDue is a schedule that is due.
type ScheduleDue struct {
	Name string
	Tick time.Time
	Hash string
	// Definition of one that a client added; nil for those of the code.
	Definition []byte
}

// ScheduleFire goes on from Tick to Next.
type ScheduleFire struct {
	Name, Hash string
	// Tick is what the caller believes to be next.
	Tick time.Time
	// Runs are the ticks that run, with the tasks that they submit. MaxLen of the first counts for all of them: they are all
	// submitted, or none is.
	Runs []ScheduleRun
	// Next is the following tick; zero for none.
	Next time.Time
	// Overlap is what the runs do while the task of the last run has not ended in the caller's group.
	Overlap ScheduleOverlap
	// Vetoed and Missed count ticks that are passed over, and Why says it to a person.
	Vetoed, Missed int64
	Why            string
	// Incarnation of the node: asked again by the same one, a fire that was done answers what it answered.
	Incarnation string
	// TTL as for a declaration.
	TTL time.Duration
}

// ScheduleOverlap says what a tick does while the task before has not ended.
type ScheduleOverlap int

const (
	// OverlapAllowed: it runs all the same.
	OverlapAllowed ScheduleOverlap = iota
	// OverlapSkipped: it is passed over, ScheduleOverlapped.
	OverlapSkipped
	// OverlapRefused: nothing is written, ScheduleBusy.
	OverlapRefused
)

// ScheduleRun is one tick and its task.
type ScheduleRun struct {
	Tick time.Time
	Task Submission
}

// ScheduleFired is the answer to a fire.
type ScheduleFired struct {
	Outcome ScheduleOutcome
	// Next is what is next now: what the fire said, or where it was refused, what the store says; zero for none.
	Next time.Time
	// Task is the one that has not ended, of ScheduleOverlapped and ScheduleBusy.
	Task string
}

// ScheduleOutcome is what became of a fire.
type ScheduleOutcome int

const (
	// ScheduleMoved: done, with all of its runs.
	ScheduleMoved ScheduleOutcome = iota + 1
	// ScheduleOverlapped: done, but without its runs.
	ScheduleOverlapped
	// ScheduleStale: another tick is next: somebody else has fired, or paused or removed it.
	ScheduleStale
	// ScheduleEarly: the server's clock has not reached the tick.
	ScheduleEarly
	// ScheduleForeign: the definition is another one now.
	ScheduleForeign
	// ScheduleFull: the stream is full; try again later.
	ScheduleFull
	// ScheduleBusy: the task of the last run has not ended, and the fire asked to be refused then.
	ScheduleBusy
)

// ScheduleList is a list of schedules.
type ScheduleList struct {
	// Now is the server's clock.
	Now       time.Time
	Schedules []ScheduleRecord
}

// ScheduleRecord is all that the store knows of a schedule.
type ScheduleRecord struct {
	Name       string
	Definition []byte
	Hash       string
	InCode     bool
	Paused     bool
	// Next is the next tick; zero while it is paused, and where there is none any more.
	Next time.Time
	// Broken is why a node that declares it cannot use its definition; the last one that could still counts.
	Broken string
	// Declared is when the definition came.
	Declared time.Time
	// Last is the last tick that ran, and LastTask its task.
	Last     time.Time
	LastTask string
	// Fired counts runs; Vetoed, Missed and Overlapped count ticks that were passed over.
	Fired, Vetoed, Missed, Overlapped int64
	// Passed is the last tick that was passed over, and Why.
	Passed time.Time
	Why    string
}
