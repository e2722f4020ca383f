package actors

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
)

// Budget is what an agent's options allow its tasks to fail, by class. Interruptions and waits are free.
type Budget struct {
	// Retry holds for failures, and its delays for every class.
	Retry RetryPolicy
	// Classes are kinds of failures and timeouts with a budget of their own; the first that matches counts.
	Classes []RetryClass
	// Crashes, Deaths and Timeouts are the most of a class that a unit may have; nil means the default: 10 crashes, any
	// number of deaths, as many timeouts as Retry.Max.
	Crashes, Deaths, Timeouts *int
}

const defaultCrashes = 10

// DefaultBudget is the budget of an agent without options.
func DefaultBudget() Budget { return Budget{Retry: DefaultRetry.withDefaults()} }

func (b Budget) crashes() int64  { return orDefault(b.Crashes, defaultCrashes) }
func (b Budget) timeouts() int64 { return orDefault(b.Timeouts, b.Retry.Max) }

func orDefault(n *int, or int) int64 {
	if n == nil {
		n = &or
	}
	return int64(*n)
}

// Decide settles a retry under the unit's ledger (as it was before this verdict) and budget: it stays OUTCOME_RETRY and
// After says when, or the class is spent and it becomes OUTCOME_REJECTED with REASON_BUDGET_SPENT. age is the time since the
// unit's first begin, jitter a random number from 0 to 1. Other outcomes, and waits, are returned as they are, except
// that a wait without a time gets one. Pure.
func Decide(v Verdict, l Ledger, b Budget, age time.Duration, jitter float64) Verdict {
	if v.Outcome != messages.Outcome_OUTCOME_RETRY {
		return v
	}
	var had, most int64
	var class string
	switch v.Charge {
	case messages.Charge_CHARGE_WAIT:
		if v.After == 0 {
			v.After = b.Retry.Delay(clampInt(l.Waits+1), jitter)
		}
		return v
	case messages.Charge_CHARGE_INTERRUPTION:
		return v
	case messages.Charge_CHARGE_CRASH:
		had, most, class = l.Crashes, b.crashes(), "crashes"
	case messages.Charge_CHARGE_TIMEOUT:
		had, most, class = l.Timeouts-l.Classes.charged(v.Charge), b.timeouts(), "timeouts"
	default:
		v.Charge = messages.Charge_CHARGE_FAILURE
		had, most, class = l.Failures-l.Classes.charged(v.Charge), int64(b.Retry.Max), "failures"
	}
	retry := b.Retry
	if c := v.class(b); c != nil {
		had, most, class, retry = l.Classes.of(c.Class), int64(c.Policy.Max), "failures of class "+c.Class, c.Policy
		v.Classes = l.Classes.with(c.Class, v.Charge)
	}
	switch elapsed := retry.MaxElapsed; {
	case had+1 > most:
		return spend(v, fmt.Sprintf("%d %s where %d are allowed; the last: %s", had+1, class, most, v.Error))
	case elapsed > 0 && age >= elapsed:
		return spend(v, fmt.Sprintf("gave up %v after its first attempt (MaxElapsed %v); the last error: %s", age.Round(time.Second), elapsed, v.Error))
	}
	if v.After == 0 {
		v.After = retry.Delay(clampInt(had+1), jitter)
	}
	return v
}

// class is the class of a verdict's error, nil for none and for crashes.
func (v Verdict) class(b Budget) *RetryClass {
	if len(b.Classes) == 0 || v.Charge == messages.Charge_CHARGE_CRASH {
		return nil
	}
	err := v.Err
	if err == nil {
		err = errors.New(v.Error) // a plain actor's
	}
	return classFor(b.Classes, err)
}

// Spent says whether a unit must not even be begun again: what its crashes and deaths (booked by Begin) leave of its budget.
func Spent(l Ledger, b Budget) (Verdict, bool) {
	v := Verdict{Charge: messages.Charge_CHARGE_UNSPECIFIED}
	switch {
	case l.Crashes > b.crashes():
		v.Error = fmt.Sprintf("%d crashes where %d are allowed", l.Crashes, b.crashes())
	case b.Deaths != nil && l.Deaths > int64(*b.Deaths):
		v.Error = fmt.Sprintf("its process died %d times while it ran, where %d are allowed", l.Deaths, *b.Deaths)
	default:
		return Verdict{}, false
	}
	return spend(v, v.Error), true
}

func spend(v Verdict, detail string) Verdict {
	v.Outcome, v.After = messages.Outcome_OUTCOME_REJECTED, 0
	v.Reason, v.Detail = messages.Reason_REASON_BUDGET_SPENT, detail
	return v
}

func clampInt(n int64) int { return int(min(n, 1000)) }
