package agentactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/waits"
	"github.com/weir-run/weir/messages"
)

// ledger is the store of one unit, with a hook after each commit that is written.
type ledger struct {
	actors.State
	mu      sync.Mutex
	book    waits.Book
	commits []actors.Commit
	begins  int
	after   func(c actors.Commit, answer error) error
}

func (l *ledger) Begin(context.Context, actors.BeginRequest) (actors.Begun, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begins++
	return actors.Begun{Answer: actors.Run, Fence: actors.Fence{Number: 7}, Steps: len(l.book.Steps()) > 0}, nil
}

func (l *ledger) Steps(context.Context, string, string) ([]messages.Step, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.Steps(), nil
}

func (l *ledger) Checkpoint(_ context.Context, cp actors.Checkpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.book.Put(cp.Step)
}

func (l *ledger) Commit(_ context.Context, c actors.Commit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits = append(l.commits, c)
	_, over, err := l.book.Commit(c)
	if err == nil && over && c.Outcome == messages.Outcome_OUTCOME_PARKED {
		err = actors.ErrResume
	}
	if l.after != nil {
		return l.after(c, err)
	}
	return err
}

func (l *ledger) outcomes() (all []messages.Outcome) {
	for _, c := range l.commits {
		all = append(all, c.Outcome)
	}
	return all
}

const (
	completed   = messages.Outcome_OUTCOME_COMPLETED
	parked      = messages.Outcome_OUTCOME_PARKED
	interrupted = messages.Outcome_OUTCOME_INTERRUPTED
	cancelled   = messages.Outcome_OUTCOME_CANCELLED
)

// serveOn runs one activation of the handler, to its end or its crash.
func serveOn[R any](t *testing.T, ctx context.Context, l *ledger, h func(*actors.Context, actors.Raw) (R, error)) any {
	t.Helper()
	began, done := 0, 0
	cfg := &Config{
		State: l, shared: &shared{court: newCourt()}, Hard: t.Context(),
		Hooks: Hooks{
			Began: func(*messages.Task, actors.Begun) { began++ }, Lost: func(*messages.Task) {},
			Ended: func(*messages.Task, actors.Commit, time.Duration) { done++ },
		},
		Agents: actors.Agents{"a": actors.Func(h)},
	}
	a := &activation{cfg: cfg, assign: &messages.Assign{Task: &messages.Task{TaskId: "t", Type: "a"}, Entry: &messages.Entry{Id: "1-0"}}}
	how := make(chan any, 1)
	a.serve(ctx, func(m any) { how <- m })
	m := <-how
	require.Equal(t, 1, l.begins)
	require.Equal(t, 1, began)
	require.LessOrEqual(t, done, 1)
	require.Zero(t, cfg.atWork.Load())
	return m
}

func verdictIn(t *testing.T, how any) messages.Verdict {
	t.Helper()
	m, ok := how.(ended)
	require.True(t, ok, "%T %v", how, how)
	return m.done.GetVerdict()
}

func send(t *testing.T, l *ledger, name string, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, l.book.Send(name, fmt.Sprint(i), messages.Mail{ContentType: "application/json", Payload: fmt.Appendf(nil, "%d", i)}))
	}
}

// A message that was there before the wait: the handler is called again under the same fence, and nothing parks.
func TestResume(t *testing.T) {
	l, calls, ran := &ledger{}, 0, 0
	send(t, l, "ask", 1)
	how := serveOn(t, t.Context(), l, func(c *actors.Context, _ actors.Raw) (int, error) {
		calls++
		if _, err := actors.Step(c, "plan", func(actors.StepContext) (int, error) { ran++; return 1, nil }); err != nil {
			return 0, err
		}
		return actors.Await[int](c, "ask", time.Hour)
	})
	require.Equal(t, messages.Verdict_VERDICT_ACK, verdictIn(t, how))
	require.Equal(t, []messages.Outcome{parked, completed}, l.outcomes())
	require.Equal(t, l.commits[0].Fence, l.commits[1].Fence)
	require.Equal(t, 2, calls)
	require.Equal(t, 1, ran)
}

// A chat whose messages have all come: as many calls as there are messages, one activation.
func TestResumeAgainAndAgain(t *testing.T) {
	const all = 300
	l, calls := &ledger{}, 0
	send(t, l, "user", all)
	how := serveOn(t, t.Context(), l, func(c *actors.Context, _ actors.Raw) (int, error) {
		calls++
		sum := 0
		for n := 1; n <= all; n++ {
			m := actors.Expect[int]("user").Nth(n)
			if err := actors.First(c, fmt.Sprint("user-", n), time.Hour, m); err != nil {
				return 0, err
			}
			v, _ := m.Get()
			sum += v
		}
		return sum, nil
	})
	require.Equal(t, messages.Verdict_VERDICT_ACK, verdictIn(t, how))
	require.Equal(t, all+1, calls)
	require.Equal(t, "44850", string(l.commits[all].Result))
}

// The answer to a commit that was lost is the same when it is asked again.
func TestResumeAfterALostReply(t *testing.T) {
	l, lost := &ledger{}, false
	send(t, l, "ask", 1)
	l.after = func(c actors.Commit, answer error) error {
		if c.Outcome == parked && !lost {
			lost = true
			return errors.New("i/o timeout")
		}
		return answer
	}
	how := serveOn(t, t.Context(), l, func(c *actors.Context, _ actors.Raw) (int, error) { return actors.Await[int](c, "ask", time.Hour) })
	require.Equal(t, messages.Verdict_VERDICT_ACK, verdictIn(t, how))
	require.Equal(t, []messages.Outcome{parked, parked, completed}, l.outcomes())
}

// What ends the activation while the store answers ends it: nothing more acts, nothing is called for ever.
func TestWhatComesBetween(t *testing.T) {
	for name, c := range map[string]struct {
		cause   error
		verdict messages.Verdict
		want    []messages.Outcome
	}{
		"a drain":       {actors.ErrDraining, messages.Verdict_VERDICT_DROP, []messages.Outcome{parked, interrupted}},
		"a cancel":      {actors.ErrCancelled, messages.Verdict_VERDICT_ACK, []messages.Outcome{parked, cancelled}},
		"another owner": {actors.ErrLeaseLost, messages.Verdict_VERDICT_DROP, []messages.Outcome{parked, interrupted}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			l, calls, paid := &ledger{}, 0, 0
			send(t, l, "ask", 1)
			l.after = func(_ actors.Commit, answer error) error { cancel(c.cause); return answer }
			how := serveOn(t, ctx, l, func(cx *actors.Context, _ actors.Raw) (int, error) {
				calls++
				if n, err := actors.Await[int](cx, "ask", time.Hour); err != nil {
					return n, err
				}
				return actors.Step(cx, "pay", func(actors.StepContext) (int, error) { paid++; return 1, nil })
			})
			require.Equal(t, c.verdict, verdictIn(t, how))
			require.Equal(t, c.want, l.outcomes())
			require.LessOrEqual(t, calls, 2)
			require.Zero(t, paid)
		})
	}
}

// A panic of the second call is a crash like any other.
func TestResumeAndPanic(t *testing.T) {
	l := &ledger{}
	send(t, l, "ask", 1)
	how := serveOn(t, t.Context(), l, func(c *actors.Context, _ actors.Raw) (int, error) {
		if _, err := actors.Await[int](c, "ask", time.Hour); err != nil {
			return 0, err
		}
		panic("no change")
	})
	require.Contains(t, how.(crashed).text, "no change")
}

// A store that says "over" where the handler finds nothing, and a handler that asks for something else each time: crashes,
// which are counted and come back after a pause.
func TestResumeWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		broken bool
		wait   func(calls int) string
	}{
		"the store is wrong":      {true, func(int) string { return "wait" }},
		"names are random":        {false, func(calls int) string { return fmt.Sprint("wait-", calls) }},
		"names are random, twice": {true, func(calls int) string { return fmt.Sprint("wait-", calls) }},
	} {
		t.Run(name, func(t *testing.T) {
			l, calls := &ledger{}, 0
			if c.broken {
				l.after = func(actors.Commit, error) error { return actors.ErrResume }
			} else {
				send(t, l, "m", 1)
			}
			how := serveOn(t, t.Context(), l, func(cx *actors.Context, _ actors.Raw) (int, error) {
				calls++
				return 0, actors.First(cx, c.wait(calls), time.Hour, actors.Expect[int]("m"))
			})
			require.Contains(t, how.(crashed).text, "the handler met none of those that it had waited for")
			require.Equal(t, 2, calls)
		})
	}
}

// A trial lasts until the unit really ends.
func TestResumeOnTrial(t *testing.T) {
	l := &ledger{}
	send(t, l, "ask", 1)
	n := newNode(t, &trialStore{l}, newCourt())
	n.cfg.Agents = actors.Agents{"suspect": actors.Func(func(c *actors.Context, _ actors.Raw) (int, error) {
		got, err := actors.Await[int](c, "ask", time.Hour)
		n.cfg.court.mu.Lock()
		defer n.cfg.court.mu.Unlock()
		if !n.cfg.court.trying {
			return 0, actors.Reject(errors.New("the trial is over"))
		}
		return got, err
	})}
	require.Equal(t, messages.Verdict_VERDICT_ACK, n.activation("suspect").run(t, t.Context()))
	require.Equal(t, []messages.Outcome{parked, completed}, l.outcomes())
}

// trialStore lets its unit run on trial only.
type trialStore struct{ *ledger }

func (s *trialStore) Begin(ctx context.Context, req actors.BeginRequest) (actors.Begun, error) {
	if !req.Trial {
		return actors.Begun{Answer: actors.Later}, nil
	}
	b, err := s.ledger.Begin(ctx, req)
	b.Trial = true
	return b, err
}

// A plain protoactor actor cannot wait.
func TestAPlainActorCannotPark(t *testing.T) {
	v := verdictOf(&messages.Finished{Outcome: parked}, 10)
	require.Equal(t, messages.Outcome_OUTCOME_REJECTED, v.Outcome)
	require.Equal(t, messages.Reason_REASON_MISUSE, v.Reason)
	require.Contains(t, v.Error, "cannot wait")
}
