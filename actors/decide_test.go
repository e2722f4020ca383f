package actors_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func TestDecide(t *testing.T) {
	policy := actors.RetryPolicy{Max: 3, Base: time.Second, Cap: 5 * time.Second, Factor: 2, MaxElapsed: time.Hour}
	two := 2
	budget := actors.Budget{Retry: policy}
	failure := actors.Verdict{Outcome: retry, Charge: messages.Charge_CHARGE_FAILURE, Error: "boom"}
	with := func(v actors.Verdict, charge messages.Charge, after time.Duration) actors.Verdict {
		v.Charge, v.After = charge, after
		return v
	}
	for name, c := range map[string]struct {
		v      actors.Verdict
		l      actors.Ledger
		b      actors.Budget
		age    time.Duration
		after  time.Duration
		detail string // not empty: rejected, spent
	}{
		"first failure":              {v: failure, b: budget, after: time.Second},
		"second doubles":             {v: failure, l: actors.Ledger{Failures: 1}, b: budget, after: 2 * time.Second},
		"third":                      {v: failure, l: actors.Ledger{Failures: 2}, b: budget, after: 4 * time.Second},
		"fourth is the last":         {v: failure, l: actors.Ledger{Failures: 3}, b: budget, detail: "4 failures where 3 are allowed; the last: boom"},
		"capped":                     {v: failure, l: actors.Ledger{Failures: 5}, b: actors.Budget{Retry: actors.RetryPolicy{Max: 9, Cap: 5 * time.Second}}, after: 5 * time.Second},
		"no retries":                 {v: failure, b: actors.Budget{}, detail: "1 failures where 0 are allowed; the last: boom"},
		"the handler says when":      {v: with(failure, messages.Charge_CHARGE_FAILURE, time.Minute), b: budget, after: time.Minute},
		"it does not say how often":  {v: with(failure, messages.Charge_CHARGE_FAILURE, time.Minute), l: actors.Ledger{Failures: 3}, b: budget, detail: "4 failures where 3 are allowed; the last: boom"},
		"other classes do not count": {v: failure, l: actors.Ledger{Crashes: 9, Timeouts: 9, Deaths: 9, Waits: 99, Interruptions: 99}, b: budget, after: time.Second},
		"too old":                    {v: failure, b: budget, age: time.Hour, detail: "gave up 1h0m0s after its first attempt (MaxElapsed 1h0m0s); the last error: boom"},
		"crash":                      {v: with(failure, messages.Charge_CHARGE_CRASH, 0), l: actors.Ledger{Failures: 99, Crashes: 1}, b: budget, after: 2 * time.Second},
		"crashes are capped at 10":   {v: with(failure, messages.Charge_CHARGE_CRASH, 0), l: actors.Ledger{Crashes: 10}, b: budget, detail: "11 crashes where 10 are allowed; the last: boom"},
		"or by option":               {v: with(failure, messages.Charge_CHARGE_CRASH, 0), l: actors.Ledger{Crashes: 2}, b: actors.Budget{Retry: policy, Crashes: &two}, detail: "3 crashes where 2 are allowed; the last: boom"},
		"timeouts follow Max":        {v: with(failure, messages.Charge_CHARGE_TIMEOUT, 0), l: actors.Ledger{Timeouts: 3}, b: budget, detail: "4 timeouts where 3 are allowed; the last: boom"},
		"timeout":                    {v: with(failure, messages.Charge_CHARGE_TIMEOUT, 0), l: actors.Ledger{Timeouts: 2}, b: budget, after: 4 * time.Second},
		"waits are free":             {v: with(failure, messages.Charge_CHARGE_WAIT, time.Minute), l: actors.Ledger{Failures: 3, Waits: 1000}, b: budget, age: time.Hour, after: time.Minute},
		"and back off":               {v: with(failure, messages.Charge_CHARGE_WAIT, 0), l: actors.Ledger{Waits: 1}, b: budget, after: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got := actors.Decide(c.v, c.l, c.b, c.age, 1)
			if c.detail != "" {
				require.Equal(t, refused, got.Outcome)
				require.Equal(t, messages.Reason_REASON_BUDGET_SPENT, got.Reason)
				require.Equal(t, c.detail, got.Detail)
				require.Equal(t, c.v.Charge, got.Charge)
				require.Zero(t, got.After)
				return
			}
			require.Equal(t, retry, got.Outcome)
			require.Equal(t, c.after, got.After)
		})
	}
	for _, o := range []messages.Outcome{completed, refused, parked, 0} {
		v := actors.Verdict{Outcome: o}
		require.Equal(t, v, actors.Decide(v, actors.Ledger{Failures: 99}, budget, 0, 1))
	}
}

func TestSpent(t *testing.T) {
	one := 1
	for _, c := range []struct {
		l     actors.Ledger
		b     actors.Budget
		spent bool
	}{
		{actors.Ledger{Crashes: 10}, actors.DefaultBudget(), false},
		{actors.Ledger{Crashes: 11}, actors.DefaultBudget(), true},
		{actors.Ledger{Deaths: 1000}, actors.DefaultBudget(), false},
		{actors.Ledger{Deaths: 1}, actors.Budget{Deaths: &one}, false},
		{actors.Ledger{Deaths: 2}, actors.Budget{Deaths: &one}, true},
	} {
		v, spent := actors.Spent(c.l, c.b)
		require.Equal(t, c.spent, spent)
		require.Equal(t, spent, v.Outcome == refused && v.Reason == messages.Reason_REASON_BUDGET_SPENT && v.Detail != "")
	}
}

// The delay stays within half and whole of the interval, grows with n and never passes the cap.
func TestDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
		p := actors.RetryPolicy{
			Base: base, Cap: base + time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "cap")),
			Factor: rapid.Float64Range(1, 100).Draw(t, "factor"),
		}
		n := rapid.IntRange(1, math.MaxInt32).Draw(t, "n")
		jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
		whole, d := p.Delay(n, 1), p.Delay(n, jitter)
		if whole > p.Cap || whole < 0 || d > whole || d < whole/2-1 || n > 1 && whole < p.Delay(n-1, 1) {
			t.Fatalf("Delay(%d, %v) = %v, whole %v, of %+v", n, jitter, d, whole, p)
		}
	})
	require.Equal(t, 10*time.Minute, actors.DefaultRetry.Delay(1000, 1))
	require.Equal(t, 500*time.Millisecond, actors.DefaultRetry.Delay(1, 0))
}
