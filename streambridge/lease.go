package streambridge

import (
	"github.com/weir-run/weir/messages"
)

// This file is the part of the window that answers the heartbeat: what is held, and what is not ours any more.

// holding is an entry that a heartbeat renews, with its place in the order of ids.
type holding struct {
	Held
	at place
}

// held lists what waits or runs. What is being settled is not renewed: while the node lives nobody claims it, and after its
// death it may well be settled by whoever comes next.
func (w *window) held() []holding {
	out := make([]holding, 0, w.stats.Waiting+w.stats.Running)
	for s := w.oldest; s != nil; s = s.newer {
		if s.state == waiting || s.state == assigned {
			out = append(out, s.holding())
		}
	}
	return out
}

func (s *slot) holding() holding {
	return holding{Held{Ref: s.Ref, TaskID: s.task.GetTaskId(), Unit: s.task.GetUnit(), Saved: s.saved}, s.at}
}

func (w *window) beat(b Beat) {
	if w.over {
		return
	}
	if b.Usurped {
		w.over = true
		w.loseAll(false)
		w.do(report{Usurped{}})
		w.do(giveUp{ErrUsurped})
		return
	}
	for _, ref := range b.Saved {
		if s := w.known[ref]; s != nil {
			s.saved = true
		}
	}
	for _, ref := range b.Lost {
		w.lose(w.known[ref], false)
	}
	for _, ref := range b.Gone {
		w.gone(w.known[ref])
	}
	w.stop(b.Cancelled)
}

// stop tells the agents of cancelled units. What waits needs no word: Begin answers that it is cancelled.
func (w *window) stop(units []Cancelled) {
	for _, c := range units {
		q := w.tasks[c.TaskID]
		if q == nil || q.current == nil || q.current.state != assigned || q.current.cancelled || q.current.task.GetUnit() != c.Unit {
			continue
		}
		q.current.cancelled = true
		w.do(cancel{&messages.Cancel{
			TaskId: c.TaskID, Entry: q.current.entry(), Cause: messages.CancelCause_CANCEL_CAUSE_CANCELLED, Reason: c.Reason,
		}})
	}
}

// lose forgets an entry that another node has, and stops the work on it. Its actor keeps the task's place until it
// answers, so that the next entry is not given to an actor that is still at the old one.
func (w *window) lose(s *slot, silent bool) {
	if s == nil || s.state != waiting && s.state != assigned {
		return // what is being settled ends by its settlement, which leaves alone what is not ours
	}
	running := s.state == assigned
	if running {
		w.tell(s, messages.CancelCause_CANCEL_CAUSE_LEASE_LOST)
	}
	w.leave(s)
	if silent {
		w.forgetPending(s) // it may still be ours
	} else {
		w.forget(s)
	}
	w.stats.Lost++
	w.do(report{LeaseLost{
		Ref: s.Ref, TaskID: s.task.TaskId, Unit: s.task.Unit, Type: s.task.Type, Running: running, Silent: silent,
	}})
}

// loseAll begins with the newest, because leave searches from there.
func (w *window) loseAll(silent bool) {
	for s := w.newest; s != nil; {
		older := s.older
		w.lose(s, silent)
		s = older
	}
}

// gone forgets an entry whose body somebody trimmed. Work on it may go on: it is fenced, so what was rebuilt from the copy
// finds it done, and what has become a dead letter refuses its commit.
func (w *window) gone(s *slot) {
	if s == nil || s.state != waiting && s.state != assigned {
		return
	}
	w.leave(s)
	w.forget(s)
	w.stats.Gone++
	w.do(report{EntryGone{Ref: s.Ref, TaskID: s.task.TaskId, Unit: s.task.Unit, Type: s.task.Type}})
}

func (w *window) tell(s *slot, cause messages.CancelCause) {
	w.do(cancel{&messages.Cancel{TaskId: s.task.TaskId, Entry: s.entry(), Cause: cause}})
}
