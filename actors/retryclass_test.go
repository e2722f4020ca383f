package actors_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var (
	errBusy = errors.New("busy")
	errJSON = errors.New("bad JSON")
)

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// classes are the options of most of these tests: two kinds of failures, and a policy for the rest.
func classes() []actors.AgentOption {
	return []actors.AgentOption{
		actors.RetryPolicy{Max: 2, Base: time.Second},
		actors.RetryIf("busy", is(errBusy), actors.RetryPolicy{Max: 5, Base: 10 * time.Second, Factor: 3}),
		actors.RetryIf("json", is(errJSON), actors.RetryPolicy{Max: 1}),
		actors.RetryIf("slow", is(actors.ErrTimeout), actors.RetryPolicy{Max: 1, Base: time.Minute}),
	}
}

// book charges a verdict as a store does.
func book(l *actors.Ledger, v actors.Verdict) {
	switch v.Charge {
	case messages.Charge_CHARGE_FAILURE:
		l.Failures++
	case messages.Charge_CHARGE_TIMEOUT:
		l.Timeouts++
	case messages.Charge_CHARGE_CRASH:
		l.Crashes++
	default:
	}
	if v.Classes != "" {
		l.Classes = v.Classes
	}
}

// Each class counts for itself, in whatever order the failures come.
func TestRetryByClass(t *testing.T) {
	var next error
	w := newWorld(func(*actors.Context, in) (string, error) { return "", fmt.Errorf("wrapped: %w", next) }, classes()...)
	var l actors.Ledger
	fail := func(err error) actors.Verdict {
		next = err
		w.job.Begun.Ledger = l
		v := w.activate(t.Context(), `{}`)
		book(&l, v)
		return v
	}
	for i, want := range []struct {
		err   error
		after time.Duration
	}{
		{errBusy, 10 * time.Second},
		{errBank, time.Second},
		{errBusy, 30 * time.Second},
		{errJSON, time.Second},
		{errBusy, 90 * time.Second},
		{actors.Retry(7*time.Second, errBusy), 7 * time.Second},
		{errBank, 2 * time.Second},
		{errBusy, 10 * time.Minute}, // the Cap
	} {
		v := fail(want.err)
		require.Equal(t, retry, v.Outcome, "%d: %v", i, v.Detail)
		require.Equal(t, want.after, v.After, "%d: %v", i, want.err)
	}
	require.Equal(t, actors.Ledger{Failures: 8, Classes: "busy=5 json=1"}, l)
	for _, c := range []struct {
		err    error
		detail string
	}{
		{errBusy, "6 failures of class busy where 5 are allowed; the last: wrapped: busy"},
		{errJSON, "2 failures of class json where 1 are allowed; the last: wrapped: bad JSON"},
		{errBank, "3 failures where 2 are allowed; the last: wrapped: connection reset"},
	} {
		before := l
		v := fail(c.err)
		require.Equal(t, refused, v.Outcome)
		require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, v.Reason)
		require.True(t, strings.HasPrefix(v.Detail, c.detail), v.Detail)
		l = before
	}
	v := fail(actors.RateLimited(time.Second, errBusy))
	require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge, "free, whatever its class")
	require.Empty(t, v.Classes)
	v = fail(actors.Reject(errBusy))
	require.Equal(t, messages.Reason_REASON_REJECTED, v.Reason)
}

// Timeouts belong to a class too, and have a number of their own.
func TestTimeoutsByClass(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		<-c.Context().Done()
		return "", c.Context().Err()
	}, append(classes(), actors.Timeout(time.Millisecond), actors.MaxTimeouts(0))...)
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, retry, v.Outcome, v.Detail)
	require.Equal(t, messages.Charge_CHARGE_TIMEOUT, v.Charge)
	require.Equal(t, time.Minute, v.After)
	require.EqualValues(t, "slow/timeout=1", v.Classes)
	w.job.Begun.Ledger = actors.Ledger{Timeouts: 1, Classes: v.Classes}
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, refused, v.Outcome)
	require.Contains(t, v.Detail, "2 failures of class slow where 1 are allowed")
}

// Crashes have no error that could be matched.
func TestCrashesHaveNoClass(t *testing.T) {
	b := actors.Budget{Retry: actors.RetryPolicy{Max: 1}, Classes: []actors.RetryClass{{Class: "all", Match: func(error) bool { return true }}}}
	v := actors.Decide(actors.Crashed("boom"), actors.Ledger{}, b, 0, 1)
	require.Equal(t, retry, v.Outcome)
	require.Empty(t, v.Classes)
}

// A plain actor's failure is known by its text alone.
func TestClassOfATextAlone(t *testing.T) {
	b := actors.Budget{Classes: []actors.RetryClass{{Class: "busy", Match: func(err error) bool { return err.Error() == "busy" }, Policy: actors.RetryPolicy{Max: 1}}}}
	v := actors.Decide(actors.Verdict{Outcome: retry, Charge: messages.Charge_CHARGE_FAILURE, Error: "busy"}, actors.Ledger{}, b, 0, 1)
	require.Equal(t, retry, v.Outcome)
	require.EqualValues(t, "busy=1", v.Classes)
}

// A class has a MaxElapsed of its own.
func TestMaxElapsedOfAClass(t *testing.T) {
	b := actors.Budget{
		Retry:   actors.RetryPolicy{Max: 9, MaxElapsed: time.Minute},
		Classes: []actors.RetryClass{{Class: "busy", Match: is(errBusy), Policy: actors.RetryPolicy{Max: 9, MaxElapsed: time.Hour}}},
	}
	failure := actors.Verdict{Outcome: retry, Charge: messages.Charge_CHARGE_FAILURE, Err: errBusy}
	require.Equal(t, retry, actors.Decide(failure, actors.Ledger{}, b, 2*time.Minute, 1).Outcome)
	require.Equal(t, refused, actors.Decide(failure, actors.Ledger{}, b, time.Hour, 1).Outcome)
	failure.Err = errBank
	require.Equal(t, refused, actors.Decide(failure, actors.Ledger{}, b, 2*time.Minute, 1).Outcome)
}

// A step counts by class too, also over activations; what is in no class is the handler's business where the step has no
// other budget.
func TestStepRetriesByClass(t *testing.T) {
	fails := []error{errBusy, errJSON, errBusy, errBusy}
	ran := 0
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		return actors.Step(c, "s", func(actors.StepContext) (string, error) {
			ran++
			if ran <= len(fails) {
				return "", fails[ran-1]
			}
			return "at last", nil
		},
			actors.RetryIf("busy", is(errBusy), actors.RetryPolicy{Max: 3, Base: 10 * time.Second}),
			actors.RetryIf("json", is(errJSON), actors.RetryPolicy{Max: 1, Base: 5 * time.Second}))
	})
	for _, after := range []time.Duration{10 * time.Second, 5 * time.Second, 20 * time.Second, 40 * time.Second} {
		v := w.activate(t.Context(), `{}`)
		require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge, "the step counts for itself")
		require.Equal(t, after, v.After)
	}
	require.True(t, strings.HasSuffix(string(w.store.step("s").Value), " busy=3 json=1"), "%s", w.store.step("s").Value)
	fails = append(fails, errJSON)
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, v.Reason)
	var spent *actors.StepError
	require.ErrorAs(t, v.Err, &spent)
	require.Equal(t, 5, spent.Attempts)
	require.ErrorIs(t, spent.Err, errJSON)

	ran, fails = 0, []error{errBank}
	w.store = &memory{}
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Charge_CHARGE_FAILURE, v.Charge, "the handler returned it, and the task is charged")
	require.ErrorIs(t, v.Err, errBank)
}

// The step's other retries are not charged for what belongs to a class.
func TestStepRetriesBesideClasses(t *testing.T) {
	fails := []error{errBusy, errBusy, errBank, errBusy, errBank}
	ran := 0
	w := newWorld(one(func(actors.StepContext) (string, error) {
		if ran++; ran <= len(fails) {
			return "", fails[ran-1]
		}
		return "at last", nil
	}, actors.RetryPolicy{Max: 2, Base: time.Millisecond}, actors.RetryIf("busy", is(errBusy), actors.RetryPolicy{Max: 3, Base: time.Millisecond})))
	require.Equal(t, completed, w.activate(t.Context(), `{}`).Outcome)
	ran, w.store = 0, &memory{}
	fails = append(fails, errBank)
	require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, w.activate(t.Context(), `{}`).Reason)
}

func TestRetryIfRefuses(t *testing.T) {
	all := func(error) bool { return true }
	many := []actors.AgentOption{}
	for i := range 17 {
		many = append(many, actors.RetryIf(fmt.Sprint("c", i), all, actors.RetryPolicy{}))
	}
	for want, opts := range map[string][]actors.AgentOption{
		"letters, digits":   {actors.RetryIf("", all, actors.RetryPolicy{})},
		"1 to 32 letters":   {actors.RetryIf(strings.Repeat("x", 33), all, actors.RetryPolicy{})},
		"'-' and '_'":       {actors.RetryIf("a b", all, actors.RetryPolicy{})},
		"no function":       {actors.RetryIf("a", nil, actors.RetryPolicy{})},
		"comes twice":       {actors.RetryIf("a", all, actors.RetryPolicy{}), actors.RetryIf("a", all, actors.RetryPolicy{})},
		"Max (-1) must not": {actors.RetryIf("a", all, actors.RetryPolicy{Max: -1})},
		"more than 16":      many,
	} {
		agents := actors.Agents{"a": actors.Func(func(*actors.Context, in) (string, error) { return "", nil }).With(opts...)}
		err := agents.Validate()
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "RetryIf")
	}
	w := newWorld(one(func(actors.StepContext) (string, error) { return "", nil }, actors.RetryIf("a", nil, actors.RetryPolicy{})))
	require.ErrorIs(t, w.activate(t.Context(), `{}`).Err, actors.ErrMisuse)
}

func TestErrorClassesReadAndWrite(t *testing.T) {
	l := actors.Ledger{Failures: 2, Classes: "bad_json=1 overload=3 overload/timeout=1"}
	b, err := json.Marshal(l)
	require.NoError(t, err)
	require.Contains(t, string(b), `"classes":{"bad_json":1,"overload":3,"overload/timeout":1}`)
	b, err = json.Marshal(actors.Ledger{})
	require.NoError(t, err)
	require.NotContains(t, string(b), "classes")
	require.Empty(t, actors.ErrorClasses("rubbish =1 x= x=y -=0 a=-1").Map()["x"])
}
