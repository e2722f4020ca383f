package statetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// The events of the table, each with the word for its answer.
var lifeEvents = map[string]func(l *life) string{
	"begin: its next entry, elsewhere": func(l *life) string { return word(l.next().begin()) },
	"begin: its entry, elsewhere":      func(l *life) string { return word(l.at.on(there).begin()) },
	"begin: its entry, for later": func(l *life) string {
		req := l.at.on(there).request()
		req.Due = l.World.Now(l.t).Add(time.Hour)
		return l.asks(req)
	},
	"begin: with a stale wake number": func(l *life) string {
		fields := append([]messages.Pair{
			{Name: messages.ControlID, Value: l.task.GetTaskId()}, {Name: messages.ControlOrigin, Value: "1-1"}, {Name: messages.ControlWake, Value: "9"},
		}, fieldsOf(l.task)...)
		ref := l.World.Deliver(l.t, true, consumerOf(there), fields)
		return word((&work{rig: l.rig, task: l.task, ref: ref, wake: 9, deliveries: 1, node: there, act: 1}).begin())
	},
	"begin: other work of its name": func(l *life) string {
		other := newTask(l.task.GetTaskId())
		other.Payload = []byte("other work")
		return word(l.deliver(other, there).begin())
	},
	"begin: its activation, again":     func(l *life) string { return word(l.at.begin()) },
	"begin: a fresh actor of its node": func(l *life) string { return word(l.at.again().begin()) },
	"begin: after its node has died": func(l *life) string {
		l.World.Live(l.t, here, false)
		return word(l.at.on(there).begin())
	},

	"commit: completed": func(l *life) string { return l.writes(l.at.completed(l.fence(), "ok")) },
	"commit: retry":     func(l *life) string { return l.writes(l.at.retry(l.fence(), time.Hour)) },
	"commit: rejected": func(l *life) string {
		return l.writes(l.at.rejected(l.fence(), messages.Reason_REASON_REJECTED, "no"))
	},
	"commit: parked":          func(l *life) string { return l.writes(l.at.parked(l.fence(), timer("nap", time.Hour))) },
	"commit: parked in doubt": func(l *life) string { return l.writes(l.at.doubt(l.fence(), "pay")) },
	"commit: cancelled":       func(l *life) string { return l.writes(l.at.outcome(l.fence(), messages.Outcome_OUTCOME_CANCELLED)) },
	"commit: interrupted":     func(l *life) string { return l.writes(l.at.outcome(l.fence(), messages.Outcome_OUTCOME_INTERRUPTED)) },
	"commit: any, under an old fence": func(l *life) string {
		said := map[string]bool{}
		for n := range messages.Outcome_name {
			o := messages.Outcome(n)
			if o == messages.Outcome_OUTCOME_UNSPECIFIED {
				continue
			}
			for _, old := range l.oldFences() {
				c := l.at.outcome(old, o)
				c.Reason = messages.Reason_REASON_REJECTED
				said[l.writes(c)] = true
			}
		}
		require.Len(l.t, said, 1)
		for what := range said {
			return what
		}
		return ""
	},
	"checkpoint": func(l *life) string { return writeWord(l, l.step(l.fence(), l.task, done("s", "v"))) },
	"checkpoint under an old fence": func(l *life) string {
		for _, old := range l.oldFences()[1:] {
			require.ErrorIs(l.t, l.step(old, l.task, done("s", "v")), actors.ErrLeaseLost)
		}
		return writeWord(l, l.step(l.oldFences()[0], l.task, done("s", "v")))
	},

	"cancel": func(l *life) string {
		_, err := l.State.Cancel(l.t.Context(), actors.Cancellation{ID: l.task.GetTaskId(), TTL: week})
		return deskWord(l, err)
	},
	"submit again": func(l *life) string { return l.submits(l.task) },
	"submit other work": func(l *life) string {
		other := newTask(l.task.GetTaskId())
		other.Payload = []byte("other work")
		return l.submits(other)
	},
	"message": func(l *life) string {
		_, err := l.State.Send(l.t.Context(), actors.Mailing{ID: l.task.GetTaskId(), Name: "hello", Payload: []byte("1")})
		return deskWord(l, err)
	},
	"resolve: done":  func(l *life) string { return l.resolves(actors.ResolveDone) },
	"resolve: rerun": func(l *life) string { return l.resolves(actors.ResolveRerun) },
	"resolve: fail":  func(l *life) string { return l.resolves(actors.ResolveFail) },

	"time passes": func(l *life) string {
		return l.puts(func() error {
			l.World.Pass(l.t, 2*time.Hour)
			l.moments()
			l.World.Turn(l.t)
			return nil
		})
	},
	"its node gives back what it has": func(l *life) string {
		return l.puts(func() error {
			l.World.Release(l.t, here, consumerOf(here), l.at.ref, l.task.GetTaskId(), "")
			return nil
		})
	},
	"its node sets the entry aside": func(l *life) string {
		l.setAside(l.at, messages.Reason_REASON_BUDGET_SPENT, true)
		return "ok"
	},

	"its letter: retry":    func(l *life) string { return l.settles("retry") },
	"its letter: complete": func(l *life) string { return l.settles("complete") },
	"its letter: drop":     func(l *life) string { return l.settles("drop") },
	"another's letter: retry": func(l *life) string {
		l.stray()
		return l.settles("retry")
	},
	"another's letter: complete": func(l *life) string {
		l.stray()
		return l.settles("complete")
	},
	"another's letter: drop": func(l *life) string {
		l.stray()
		return l.settles("drop")
	},
	"set aside, and that letter: retry": func(l *life) string {
		l.setAside(l.at, messages.Reason_REASON_BUDGET_SPENT, true)
		return l.settles("retry")
	},
}

// word is an answer of Begin as the table says it.
func word(b actors.Begun) string {
	for answer, word := range map[actors.Answer]string{
		actors.Run: "run", actors.AlreadyDone: "done", actors.Elsewhere: "elsewhere", actors.Queued: "queued",
		actors.CancelledBefore: "cancelled", actors.Conflict: "conflict",
	} {
		if b.Answer == answer {
			return word
		}
	}
	return fmt.Sprintf("answer %d", b.Answer)
}

func (l *life) asks(req actors.BeginRequest) string {
	l.t.Helper()
	b, err := l.State.Begin(l.t.Context(), req)
	require.NoError(l.t, err)
	return word(b)
}

// fence is its last activation's, or one that is made up.
func (l *life) fence() actors.Begun {
	if l.begun.Fence.Number > 0 {
		return l.begun
	}
	return actors.Begun{Fence: actors.Fence{Number: 1, Incarnation: here, Activation: 1}}
}

// oldFences are those that nobody has any more, or never had: the activation's before, and each part of the last one changed.
func (l *life) oldFences() []actors.Begun {
	now := l.fence()
	number, node, activation := now, now, now
	number.Fence.Number++
	node.Fence.Incarnation = there
	activation.Fence.Activation++
	return []actors.Begun{l.old, number, node, activation}
}

func (l *life) writes(c actors.Commit) string {
	l.t.Helper()
	return writeWord(l, l.State.Commit(l.t.Context(), c))
}

func writeWord(l *life, err error) string {
	l.t.Helper()
	if err == nil {
		return "ok"
	}
	require.ErrorIs(l.t, err, actors.ErrLeaseLost)
	return "lost"
}

func deskWord(l *life, err error) string {
	l.t.Helper()
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, actors.ErrNoTask):
		return "none"
	}
	require.ErrorIs(l.t, err, actors.ErrEnded)
	return "ended"
}

func (l *life) submits(task *messages.Task) string {
	l.t.Helper()
	got := l.submit(submission(task))[0]
	switch {
	case errors.Is(got.Err, actors.ErrConflict):
		return "conflict"
	case got.Known:
		return "known"
	}
	require.NoError(l.t, got.Err)
	return "ok"
}

func (l *life) resolves(how actors.Resolving) string {
	l.t.Helper()
	err := l.State.Resolve(l.t.Context(), l.at.resolve(how, "pay"))
	if _, certain := errors.AsType[*actors.NoDoubtError](err); certain {
		return "certain"
	}
	return deskWord(l, err)
}

// puts says where something puts an entry, if it does.
func (l *life) puts(do func() error) string {
	l.t.Helper()
	public := len(l.World.Public(l.t))
	if do() != nil {
		return "refused"
	}
	switch inbox := len(l.World.TakeInbox(l.t, consumerOf(third))); {
	case inbox == 1:
		return "inbox"
	case inbox > 1:
		return fmt.Sprintf("%d entries", inbox)
	case len(l.World.Public(l.t)) > public:
		return "stream"
	}
	return "nothing"
}

func (l *life) setAside(w *work, reason messages.Reason, fail bool) {
	l.t.Helper()
	l.World.Bury(l.t, w.node, consumerOf(w.node), w.ref, l.task.GetTaskId(), "", l.task.GetType(), reason, fail)
}

// stray makes a letter of another entry under its name, such as one that could not be decoded: it says nothing of the unit.
func (l *life) stray() {
	l.t.Helper()
	l.setAside(l.deliver(l.task, there), messages.Reason_REASON_UNDECODABLE, false)
}

// settles settles the newest letter.
func (l *life) settles(how string) string {
	l.t.Helper()
	dead := l.World.Dead(l.t)
	require.NotEmpty(l.t, dead)
	id := dead[len(dead)-1].GetId()
	return l.puts(func() error { return l.World.Settle(l.t, id, how) })
}
