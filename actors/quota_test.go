package actors_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// till is a QuotaStore that answers what a test has laid out, then lets everybody through.
type till struct {
	waits  []time.Duration
	fail   int
	asked  []actors.Taking
	quiets []time.Duration
}

func (q *till) Take(_ context.Context, t actors.Taking) (time.Duration, error) {
	if q.fail > 0 {
		q.fail--
		return 0, errors.New("no answer")
	}
	q.asked = append(q.asked, t)
	if len(q.waits) == 0 {
		return 0, nil
	}
	wait := q.waits[0]
	q.waits = q.waits[1:]
	return wait, nil
}

func (q *till) Quiet(_ context.Context, _ []actors.Tokens, d time.Duration) error {
	q.quiets = append(q.quiets, d)
	return nil
}

// quotaWorld runs one step, and counts how often its function ran.
func quotaWorld(q *till, ran *int, f func() error, opts ...actors.StepOption) *world {
	w := newWorld(func(c *actors.Context, _ in) (int, error) {
		return actors.Step(c, "call", func(actors.StepContext) (int, error) {
			*ran++
			return *ran, f()
		}, opts...)
	})
	w.job.Quotas = q
	w.job.Rates = map[string]actors.Rate{"gpt": {Tokens: 60, Per: time.Minute}, "words": {Tokens: 1000, Per: time.Minute, Burst: 100}}
	return w
}

func fine() error { return nil }

func TestQuotaIsTakenBeforeTheStepRuns(t *testing.T) {
	q, ran := &till{fail: 2, waits: []time.Duration{300 * time.Millisecond, 20 * time.Millisecond}}, 0
	var waited []time.Duration
	w := quotaWorld(q, &ran, fine, actors.Quota("gpt", 1), actors.Quota("words", 50), actors.Timeout(time.Minute))
	w.job.Wait = func(_ context.Context, d time.Duration) { waited = append(waited, d) }
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_COMPLETED, v.Outcome)
	require.Equal(t, []time.Duration{300 * time.Millisecond, 20 * time.Millisecond}, waited, "short waits, in place")
	require.Len(t, q.asked, 3)
	require.Equal(t, actors.Taking{Effect: "t-1:call", Run: 1<<24 + 1, From: []actors.Tokens{
		{Bucket: "gpt", N: 1, Rate: actors.Rate{Tokens: 60, Per: time.Minute, Burst: 1}},
		{Bucket: "words", N: 50, Rate: actors.Rate{Tokens: 1000, Per: time.Minute, Burst: 100}},
	}}, q.asked[2])
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_COMPLETED, v.Outcome)
	require.Len(t, q.asked, 3, "a step that has its result takes nothing")
}

func TestALaterTurnParks(t *testing.T) {
	q, ran := &till{waits: []time.Duration{90 * time.Second, 700 * time.Millisecond, 0}}, 0
	w := quotaWorld(q, &ran, fine, actors.Quota("gpt", 1), actors.Unrepeatable())
	v := w.activate(t.Context(), `{}`)
	require.ErrorIs(t, v.Err, actors.ErrParked)
	require.Equal(t, messages.Outcome_OUTCOME_RETRY, v.Outcome)
	require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge, "free")
	require.Equal(t, 90*time.Second-750*time.Millisecond, v.After, "a little early: the rest is waited out in place, to the point")
	require.Empty(t, w.store.writes, "nothing has happened that a checkpoint could tell")
	v = w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_COMPLETED, v.Outcome)
	require.Equal(t, 1, ran)
	require.Equal(t, q.asked[0].Effect, q.asked[1].Effect)
	require.NotEqual(t, q.asked[0].Run, q.asked[1].Run)
}

// Short waits add up when a provider goes on asking for a moment.
func TestShortWaitsEndInPlace(t *testing.T) {
	q, ran := &till{}, 0
	for range 100 {
		q.waits = append(q.waits, 999*time.Millisecond)
	}
	v := quotaWorld(q, &ran, fine, actors.Quota("gpt", 1)).activate(t.Context(), `{}`)
	require.ErrorIs(t, v.Err, actors.ErrParked)
	require.Less(t, len(q.asked), 20)
	require.Equal(t, 250*time.Millisecond, v.After)
}

func TestAProvidersPauseIsEverybodys(t *testing.T) {
	limited := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}}
	for name, opts := range map[string][]actors.StepOption{
		"plain": nil, "with retries": {actors.Retries(0)}, "unrepeatable": {actors.Unrepeatable()},
		"keyed": {actors.Verify(func(context.Context, string) (int, bool, error) { return 0, false, nil })},
	} {
		t.Run(name, func(t *testing.T) {
			q, ran := &till{waits: []time.Duration{0, 40 * time.Second}}, 0
			refuse := true
			w := quotaWorld(q, &ran, func() error {
				if refuse {
					return actors.FromHTTP(limited, nil)
				}
				return nil
			}, append(opts, actors.Quota("gpt", 1))...)
			var told []time.Duration
			w.job.OnQuiet = func(bucket string, d time.Duration) {
				require.Equal(t, "gpt", bucket)
				told = append(told, d)
			}
			v := w.activate(t.Context(), `{}`)
			require.ErrorIs(t, v.Err, actors.ErrParked, "%v", v.Err)
			require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge)
			require.Equal(t, 40*time.Second-750*time.Millisecond, v.After, "its own turn after the pause, not the end of the pause")
			require.Equal(t, []time.Duration{30 * time.Second}, q.quiets)
			require.Equal(t, q.quiets, told)
			require.Equal(t, messages.StepRetrying, w.store.step("call").Status)
			require.Contains(t, w.store.step("call").Error, "429")
			require.Zero(t, w.store.step("call").Attempts, "free")
			refuse = false
			v = w.activate(t.Context(), `{}`)
			require.Equal(t, messages.Outcome_OUTCOME_COMPLETED, v.Outcome, "%v", v.Err)
			require.Equal(t, 2, ran)
		})
	}
}

// A pause without a length gets one from the retry policy.
func TestAPauseWithoutALength(t *testing.T) {
	q, ran := &till{}, 0
	v := quotaWorld(q, &ran, func() error {
		if ran == 1 {
			return actors.RateLimited(0, errors.New("busy"))
		}
		return nil
	}, actors.Quota("gpt", 1)).activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_COMPLETED, v.Outcome)
	require.Equal(t, []time.Duration{time.Second}, q.quiets)
}

func TestPausesEndWithMaxElapsed(t *testing.T) {
	q, ran := &till{}, 0
	w := quotaWorld(q, &ran, func() error { return actors.RateLimited(time.Minute, errors.New("busy")) },
		actors.RetryPolicy{Max: 3, MaxElapsed: time.Nanosecond}, actors.Quota("gpt", 1))
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_REJECTED, v.Outcome)
	require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, v.Reason)
}

// A node without the bucket fails the step, not the task: another node may have it.
func TestAnUnknownQuota(t *testing.T) {
	q, ran := &till{}, 0
	v := quotaWorld(q, &ran, fine, actors.Quota("gtp", 1), actors.Retries(3)).activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_RETRY, v.Outcome)
	require.Equal(t, messages.Charge_CHARGE_FAILURE, v.Charge)
	require.ErrorContains(t, v.Err, `the quota "gtp" is not defined on this node`)
	require.Zero(t, ran)
}

// In a test of a handler nobody shares anything out.
func TestNoQuotaStore(t *testing.T) {
	q, ran := &till{}, 0
	w := quotaWorld(q, &ran, fine, actors.Quota("any", 1))
	w.job.Quotas = nil
	v := w.activate(t.Context(), `{}`)
	require.Equal(t, messages.Outcome_OUTCOME_COMPLETED, v.Outcome)
	require.Equal(t, 1, ran)
}

func TestQuotaMisuse(t *testing.T) {
	for says, opts := range map[string][]actors.StepOption{
		"a bucket needs a name":    {actors.Quota("", 1)},
		"at least 1 token":         {actors.Quota("gpt", 0)},
		"has that quota already":   {actors.Quota("gpt", 1), actors.Quota("gpt", 2)},
		"bucket's name must be UT": {actors.Quota("\xff", 1)},
	} {
		q, ran := &till{}, 0
		v := quotaWorld(q, &ran, fine, opts...).activate(t.Context(), `{}`)
		require.ErrorIs(t, v.Err, actors.ErrMisuse)
		require.ErrorContains(t, v.Err, says)
		require.Zero(t, ran)
	}
	require.ErrorContains(t, actors.Func(func(*actors.Context, in) (int, error) { return 0, nil }).With(actors.NeedsQuota("")).Err(), "needs a name")
	require.ErrorContains(t, actors.ValidateQuotas(map[string]actors.Rate{"a": {}, "b": {Tokens: 1, Per: 1}}), `quota "a": Tokens (0) must be at least 1`)
}

// No stretch of a window sees more than its tokens, with room for calls that set out at an even pace and arrive unevenly.
func TestRateStep(t *testing.T) {
	require.InDelta(t, 1020, actors.Rate{Tokens: 60, Per: time.Minute}.Step(), 0.01)
	require.InDelta(t, 3602000.0/1000, actors.Rate{Tokens: 1000, Per: time.Hour}.Step(), 0.01)
}
