package statetest

import (
	_ "embed"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// lifeTable is every state × every event, for people to read and for this test to run.
//
//go:embed life.txt
var lifeTable string

// cell is what the table says of one event in one state.
type cell struct{ event, state, want string }

var gap = regexp.MustCompile(` {2,}`)

// cells reads the table.
func cells(t *testing.T) (all []cell) {
	t.Helper()
	var states []string
	for line := range strings.Lines(lifeTable) {
		row := gap.Split(strings.TrimSpace(line), -1)
		switch {
		case strings.HasPrefix(line, "#") || len(row) < 2:
		case states == nil:
			states = row[1:]
		default:
			require.Len(t, row, len(states)+1, row[0])
			require.Contains(t, lifeEvents, row[0])
			for i, want := range row[1:] {
				all = append(all, cell{row[0], states[i], want})
			}
		}
	}
	require.Len(t, all, len(lifeEvents)*len(lifeStates), "every state × every event")
	return all
}

// theLifeOfAUnit runs every cell on a group of its own.
func theLifeOfAUnit(t *testing.T, fresh func(t *testing.T) Fixture) {
	for _, c := range cells(t) {
		if c.want == "-" {
			continue
		}
		t.Run(c.state+": "+c.event, func(t *testing.T) {
			t.Parallel()
			l := &life{rig: newRig(t, fresh(t)), task: newTask("x{}")}
			l.at = l.deliver(l.task, here)
			lifeStates[c.state](l)
			before := l.short()
			answer := lifeEvents[c.event](l)
			after := l.short()
			if after == before {
				after = "."
			}
			require.Equal(t, c.want, after+" "+answer)
			l.sound()
		})
	}
}

// life is a unit in one of the states.
type life struct {
	*rig
	task *messages.Task
	// at is the entry that it came with, in the hands of here; begun its last activation, old the one before.
	at         *work
	begun, old actors.Begun
	// next takes what it goes on with to another node.
	next func() *work
}

// run begins it twice, so that there is an old fence.
func (l *life) run() {
	l.t.Helper()
	l.old = l.at.run()
	l.at = l.at.again()
	l.begun = l.at.run()
}

func (l *life) promoted() *work {
	l.t.Helper()
	l.World.Promote(l.t, l.task.GetTaskId(), "")
	return l.fromInbox(l.task, there)
}

// The states, as they come about.
var lifeStates = map[string]func(l *life){
	"none":      func(*life) {},
	"SUBMITTED": func(l *life) { l.submit(submission(l.task)) },
	"DELAYED":   func(l *life) { l.submit(delayed(l.task, time.Millisecond)) }, // until a node's clock says so
	"SCHEDULED": func(l *life) {
		l.submit(submission(l.task))
		req := l.at.request()
		req.Due = l.World.Now(l.t).Add(time.Hour)
		b, err := l.State.Begin(l.t.Context(), req)
		require.NoError(l.t, err)
		require.Equal(l.t, actors.Elsewhere, b.Answer)
		l.next = l.promoted
	},
	"BACK": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		l.commit(l.at.outcome(l.begun, messages.Outcome_OUTCOME_INTERRUPTED))
		l.next = func() *work { return l.at.on(there) }
	},
	"RUNNING": func(l *life) {
		l.submit(submission(l.task))
		l.run()
	},
	"RETRYING": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		l.commit(l.at.retry(l.begun, time.Hour))
		l.next = l.promoted
	},
	"WAITING": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		l.commit(l.at.parked(l.begun, timer("nap", time.Hour)))
	},
	"DOUBT": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		require.NoError(l.t, l.step(l.begun, l.task, messages.Step{Name: "pay", Status: messages.StepIntent, Attempts: 1, BeganMS: 1}))
		l.commit(l.at.doubt(l.begun, "pay"))
	},
	"SUCCEEDED": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		l.commit(l.at.completed(l.begun, "ok"))
	},
	"FAILED": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		l.commit(l.at.rejected(l.begun, messages.Reason_REASON_REJECTED, "no"))
	},
	"CANCELLED": func(l *life) {
		l.submit(submission(l.task))
		l.run()
		l.cancel(l.task.GetTaskId(), "")
	},
}

// short is the state that it is in, as the table says it.
func (l *life) short() string {
	l.t.Helper()
	u, err := l.State.Unit(l.t.Context(), l.task.GetTaskId(), "")
	if errors.Is(err, actors.ErrNoTask) {
		return "none"
	}
	require.NoError(l.t, err)
	return map[messages.State]string{
		messages.State_STATE_PENDING: "PEND", messages.State_STATE_SCHEDULED: "SCHED", messages.State_STATE_RUNNING: "RUN",
		messages.State_STATE_RETRYING: "RETRY", messages.State_STATE_WAITING: "WAIT", messages.State_STATE_SUCCEEDED: "SUCC",
		messages.State_STATE_FAILED: "FAIL", messages.State_STATE_CANCELLED: "CANC",
	}[u.State]
}

// sound is what is true of a unit in any state.
func (l *life) sound() {
	l.t.Helper()
	u, err := l.State.Unit(l.t.Context(), l.task.GetTaskId(), "")
	if errors.Is(err, actors.ErrNoTask) {
		return
	}
	require.NoError(l.t, err)
	rec, mine := l.record(l.task.GetTaskId()), member(l.task)
	_, known := l.World.Standing(l.t, rec.ID)[""]
	for _, state := range []messages.State{
		messages.State_STATE_FAILED, messages.State_STATE_CANCELLED, messages.State_STATE_RETRYING, messages.State_STATE_WAITING,
		messages.State_STATE_SCHEDULED,
	} {
		in := l.World.Index(l.t, state, l.task.GetType())
		if known && state == u.State {
			require.Equal(l.t, []string{mine}, in, "the index of its state")
		} else {
			require.Empty(l.t, in, "the index of %v while it is %v", state, u.State)
		}
	}
	later := u.State == messages.State_STATE_RETRYING || u.State == messages.State_STATE_SCHEDULED
	for due := range l.World.Due(l.t) {
		require.False(l.t, due == "r:"+mine && !later, "a retry is due while it is %v", u.State)
		require.False(l.t, strings.HasPrefix(due, "w:") && final(u.State), "a wait goes on after the end")
	}
	require.Equal(l.t, final(u.State), rec.TTL > 0, "what has ended is forgotten some time, and nothing else")
	require.False(l.t, rec.Owner != "" && u.State != messages.State_STATE_RUNNING, "%s owns what is %v", rec.Owner, u.State)
	require.False(l.t, u.Doubt != "" && u.State != messages.State_STATE_WAITING, "in doubt while it is %v", u.State)
	require.Equal(l.t, u.Doubt != "", len(l.doubts()) > 0, "listed where it is in doubt")
}
