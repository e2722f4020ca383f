package actors

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"
)

// RetryPolicy says how often, and after what delay, a failure is tried again. It is an option of both: of an agent for
// its tasks, and of a step.
type RetryPolicy struct {
	// Max is how many retries follow the first attempt. It is literal: 0 means none.
	Max int
	// Base is the delay before the first retry; 0 means 1 s.
	Base time.Duration
	// Cap is the longest delay; 0 means 10 min.
	Cap time.Duration
	// Factor multiplies the delay from one retry to the next; 0 means 2.
	Factor float64
	// MaxElapsed ends the retries that long after the unit, or the step, began for the first time; 0 means never.
	MaxElapsed time.Duration
}

// DefaultRetry is what an agent does without options: 10 retries, 1 s to 10 min apart.
var DefaultRetry = RetryPolicy{Max: 10}

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Base = cmp.Or(p.Base, time.Second)
	p.Cap = cmp.Or(p.Cap, max(10*time.Minute, p.Base))
	p.Factor = cmp.Or(p.Factor, 2)
	return p
}

func (p RetryPolicy) validate() error {
	var errs []error
	if p.Max < 0 {
		errs = append(errs, fmt.Errorf("RetryPolicy.Max (%d) must not be negative", p.Max))
	}
	if p.Base < 0 || p.Cap < 0 || p.MaxElapsed < 0 {
		errs = append(errs, fmt.Errorf("RetryPolicy.Base (%v), Cap (%v) and MaxElapsed (%v) must not be negative", p.Base, p.Cap, p.MaxElapsed))
	}
	if d := p.withDefaults(); d.Cap < d.Base {
		errs = append(errs, fmt.Errorf("RetryPolicy.Cap (%v) must be at least Base (%v)", d.Cap, d.Base))
	}
	if p.Factor != 0 && !(p.Factor >= 1 && p.Factor <= 100) {
		errs = append(errs, fmt.Errorf("RetryPolicy.Factor (%v) must be between 1 and 100", p.Factor))
	}
	return errors.Join(errs...)
}

// Delay is the time before retry n (from 1). jitter, from 0 to 1, picks a point in the upper half of the interval, so
// that what failed together does not come back together.
func (p RetryPolicy) Delay(n int, jitter float64) time.Duration {
	p = p.withDefaults()
	d := min(float64(p.Base)*math.Pow(p.Factor, float64(max(n, 1)-1)), float64(p.Cap))
	return time.Duration(d/2 + d/2*jitter)
}

// spent says whether the failure number n (from 1) is the last, elapsed after the beginning.
func (p RetryPolicy) spent(n int64, elapsed time.Duration) bool {
	return n > int64(p.Max) || p.late(elapsed)
}

// late says whether the time for retries is over.
func (p RetryPolicy) late(elapsed time.Duration) bool {
	return p.MaxElapsed > 0 && elapsed >= p.MaxElapsed
}
