package actors

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-run/weir/messages"
)

// RetryIf gives the failures that match, those of one kind, a RetryPolicy of their own: how often they are retried, after
// what delay and for how long. Each class counts for itself, and what is charged to one is not charged to the
// RetryPolicy that holds for the rest:
//
//	agent.With(
//		actors.RetryPolicy{Max: 3},
//		actors.RetryIf("overload", isOverload, actors.RetryPolicy{Max: 50, Base: 10 * time.Second}),
//		actors.RetryIf("bad_json", isBadJSON, actors.RetryPolicy{Max: 1}),
//	)
//
// Of several, the first that matches counts. match sees the error after Classify, with all that it wraps; attempts that
// timed out (errors.Is ErrTimeout) are asked for too. What the error protocol settles is not: Reject, RateLimited, a spent
// step. Retry(after, err) says when, and the class how often.
//
// class names the count, which is kept with the task: letters, digits, '-' and '_', at most 32 of them. Renamed, it begins
// anew.
//
// On a step it gives the failures that match a budget of the step's own, as Retries does for all of them.
func RetryIf(class string, match func(error) bool, p RetryPolicy) Option {
	return retryIf{RetryClass{Class: class, Match: match, Policy: p.withDefaults()}, p.validate()}
}

// RetryClass is a kind of failures with a budget of its own; see RetryIf.
type RetryClass struct {
	Class  string
	Match  func(error) bool
	Policy RetryPolicy
}

type retryIf struct {
	RetryClass
	invalid error
}

func (r retryIf) agentOption(s *settings) (err error) {
	s.budget.Classes, err = r.addTo(s.budget.Classes)
	return err
}

func (r retryIf) stepOption(s *stepSettings) (err error) {
	s.classes, err = r.addTo(s.classes)
	return err
}

func (r retryIf) addTo(all []RetryClass) ([]RetryClass, error) {
	var problem error
	switch {
	case r.Class == "" || len(r.Class) > maxClassName || strings.Trim(r.Class, classLetters) != "":
		problem = fmt.Errorf("the class must be 1 to %d letters, digits, '-' and '_'", maxClassName)
	case r.Match == nil:
		problem = errors.New("it has no function")
	case slices.ContainsFunc(all, func(c RetryClass) bool { return c.Class == r.Class }):
		problem = errors.New("the class comes twice")
	case len(all) == maxClasses:
		problem = fmt.Errorf("more than %d classes", maxClasses)
	default:
		problem = r.invalid
	}
	if problem != nil {
		return nil, fmt.Errorf("RetryIf(%q): %w", r.Class, problem)
	}
	return append(slices.Clip(all), r.RetryClass), nil
}

const (
	classLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	maxClassName = 32
	maxClasses   = 16
)

// classFor is the class that a failure belongs to, nil for none.
func classFor(all []RetryClass, err error) *RetryClass {
	for i := range all {
		if all[i].Match(err) {
			return &all[i]
		}
	}
	return nil
}

// ErrorClasses are failures by class, as they are kept: "bad_json=1 overload=3 overload/timeout=1", in order. Timeouts are
// counted apart, because the ledger has a number of its own for them.
type ErrorClasses string

// onTimeout ends the name of the timeouts of a class.
const onTimeout = "/timeout"

// each calls f for every count. What cannot be read counts nothing.
func (c ErrorClasses) each(f func(name string, n int64)) {
	for part := range strings.FieldsSeq(string(c)) {
		name, number, _ := strings.Cut(part, "=")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 {
			f(name, n)
		}
	}
}

// Map is the counts by name.
func (c ErrorClasses) Map() map[string]int64 {
	counts := map[string]int64{}
	c.each(func(name string, n int64) { counts[name] = n })
	return counts
}

// of is how many failures a class has had, timeouts included.
func (c ErrorClasses) of(class string) (n int64) {
	c.each(func(name string, m int64) {
		if strings.TrimSuffix(name, onTimeout) == class {
			n += m
		}
	})
	return n
}

// charged is how many failures, or timeouts, belong to any class.
func (c ErrorClasses) charged(charge messages.Charge) (n int64) {
	c.each(func(name string, m int64) {
		if strings.HasSuffix(name, onTimeout) == (charge == messages.Charge_CHARGE_TIMEOUT) {
			n += m
		}
	})
	return n
}

// with counts one failure more.
func (c ErrorClasses) with(class string, charge messages.Charge) ErrorClasses {
	if charge == messages.Charge_CHARGE_TIMEOUT {
		class += onTimeout
	}
	counts := c.Map()
	counts[class]++
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(counts)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(name + "=" + strconv.FormatInt(counts[name], 10))
	}
	return ErrorClasses(b.String())
}

// MarshalJSON writes them as an object.
func (c ErrorClasses) MarshalJSON() ([]byte, error) { return json.Marshal(c.Map()) }
