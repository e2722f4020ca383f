package actors

import (
	"errors"
	"fmt"
	"time"
)

// What durable calls and clients answer; compare with errors.Is.
var (
	// ErrParked: the activation gave up its place and waits for a message, a timer or a retry. Return it.
	ErrParked = errors.New("parked")
	// ErrTimeout: what was awaited did not come in time.
	ErrTimeout = errors.New("timed out")
	// ErrMisuse: the author broke a rule of the API; the unit fails without retry and the message names the step.
	ErrMisuse = errors.New("misuse")
	// ErrCancelled: someone cancelled the task.
	ErrCancelled = errors.New("cancelled")
	// ErrLeaseLost: another owner has the unit; nothing this activation writes is accepted any more.
	ErrLeaseLost = errors.New("lease lost")
	// ErrDraining: the node stops and its grace period is over; the unit goes on elsewhere, free of charge.
	ErrDraining = errors.New("draining")
	// ErrConflict: the id is taken by other work (another type or payload).
	ErrConflict = errors.New("id taken by other work")
	// ErrNoTask: nothing is known under this id.
	ErrNoTask = errors.New("no such task")
	// ErrNotEnded: the task has not ended within the caller's context.
	ErrNotEnded = errors.New("not ended")
	// ErrTooLarge: a payload or a result is over its cap; nothing was written.
	ErrTooLarge = errors.New("too large")
	// ErrBacklogFull: the stream holds as many unacknowledged entries as the client's MaxBacklog allows.
	ErrBacklogFull = errors.New("backlog full")
	// ErrGateShut: the group is too far behind and takes nothing in; a *GateError says why and until when.
	ErrGateShut = errors.New("gate shut")
	// ErrResume is a store's answer to the commit of a parked unit whose wait is over already. Authors never see it.
	ErrResume = errors.New("nothing to wait for: run again")
	// ErrNotEmitted is a store's answer to a commit one of whose Emits cannot be added: its id is taken by other work there
	// (ErrConflict), or the key is no stream. Authors see it as the reason of a FAILED unit.
	ErrNotEmitted = errors.New("what was emitted cannot be added")
	// ErrAnswered: what the message was for has its answer: another message of that name came first, or the time was over.
	ErrAnswered = errors.New("answered already")
	// ErrRepeated: this very message is there already, as one finds who repeats a Send whose answer was lost. It is an
	// ErrAnswered.
	ErrRepeated = fmt.Errorf("the same message again: %w", ErrAnswered)
	// ErrEnded: the task has ended; nothing reaches it any more.
	ErrEnded = errors.New("the task has ended")
	// ErrMailboxFull: messages.MaxUnread messages to the task wait and nothing has read them.
	ErrMailboxFull = errors.New("mailbox full")
	// ErrInvalid: a task or a message that can never be submitted or sent as it is: its id, type, fields or payload break a rule that the message names.
	ErrInvalid = errors.New("invalid task")
)

// GateError is a task that was refused because the group that it is for is too far behind: nothing was added. It is
// ErrGateShut for errors.Is.
type GateError struct {
	// Reason says which limit of the group's gate (supervision.Config.Gate) is broken.
	Reason string
	// RetryAfter is when to come back: a guess from how fast the backlog shrinks.
	RetryAfter time.Duration
}

func (e *GateError) Error() string {
	return fmt.Sprintf("%v: %s; try again in %v", ErrGateShut, e.Reason, e.RetryAfter.Round(time.Second))
}

// Is makes it comparable with ErrGateShut.
func (e *GateError) Is(target error) bool { return target == ErrGateShut }
