package actors

import (
	"context"
	"time"

	"github.com/weir-run/weir/messages"
)

// StateOps is what people who operate a group need of its state, beside the tasks that they know by name.
type StateOps interface {
	// Tasks lists units by what they do, a page at a time: from the indexes by state, and what runs or has not begun from
	// the entries that stand for it. No page looks at more of the group than it has to.
	Tasks(ctx context.Context, q TaskQuery) (TaskPage, error)
	// Resolve settles the effect of a step that is in doubt: its unit goes on, or ends. Repeated in the same way it succeeds
	// again, until the unit is in doubt once more.
	//
	// *NoDoubtError: it is not in doubt on that step, or not any more. ErrNoTask: there is no such unit. ErrBodyGone: it is
	// settled, and the unit has failed because it could not go on. ErrInvalid.
	Resolve(ctx context.Context, r Resolution) error
}

// TaskQuery says which units to list.
type TaskQuery struct {
	// State of the units.
	//
	// FAILED, CANCELLED, WAITING, RETRYING, SCHEDULED, and SUCCEEDED where the runtime indexes it (Keep.Index): newest change
	// first. Unspecified: all of these together. What was submitted for later and is not in the stream yet, SCHEDULED too,
	// comes behind them, the next to join it first.
	//
	// RUNNING: from the group's pending entries, the oldest entry first.
	//
	// PENDING is not kept anywhere; what is listed are the entries that nobody has begun, the oldest first: those handed out
	// to a node, then those that wait in the inbox, for an agent type, and in the public stream. An entry that waits with its
	// task for the task's owner is not among them: it is counted by TaskRecord.Queued.
	//
	// A unit for which two entries stand, such as one that was submitted by hand twice, is listed with each.
	State messages.State
	// Type is "agent", with all of its handlers, or "agent/handler". Empty: any.
	Type string
	// Doubt lists only those that are in doubt, all of them WAITING, the latest doubt first.
	Doubt bool
	// Since leaves out what came into its state before.
	Since time.Time
	// After is TaskPage.Next of the page before; empty for the first.
	After string
	// Limit is how many to list at most. Default 100, never more than 1,000.
	Limit int
}

// TaskPage is a part of a list.
type TaskPage struct {
	Tasks []TaskItem
	// Next is TaskQuery.After of the page that follows; empty on the last. A page may be shorter than its limit, or empty,
	// and not be the last: what has changed meanwhile is left out.
	Next string
}

// TaskItem is a unit in a list.
type TaskItem struct {
	// ID of the task.
	ID string
	// Unit is its record without result and steps. One that was never begun has only what its entry tells.
	Unit UnitRecord
	// Entry is the one that stands for a RUNNING or PENDING unit; Consumer has it in hand, after so many Deliveries. Both are
	// empty where nobody has it yet.
	Entry      messages.Ref
	Consumer   string
	Deliveries int64
}

// Tasks lists units by what they do, a page at a time; see TaskQuery.
func (c *Client) Tasks(ctx context.Context, q TaskQuery) (TaskPage, error) {
	return c.ops.Tasks(ctx, q)
}
