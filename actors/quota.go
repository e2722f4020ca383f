package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weir-run/weir/messages"
)

// Rate is what a provider allows: Tokens in each Per, for all nodes of the group together.
type Rate struct {
	// Tokens in each Per; at least 1.
	Tokens int
	// Per is the length of the provider's window, such as a minute; more than 0.
	Per time.Duration
	// Burst is how many tokens may go at once after a pause. 0 means 1: the tokens are spread evenly, and no stretch of Per
	// sees more than Tokens. With a larger one it may see Burst − 1 more.
	Burst int
}

// Validate says what cannot work.
func (r Rate) Validate() error {
	if r.Tokens < 1 || r.Per <= 0 || r.Burst < 0 {
		return fmt.Errorf("Tokens (%d) must be at least 1, Per (%v) above 0, Burst (%d) not negative", r.Tokens, r.Per, r.Burst)
	}
	return nil
}

// WithDefaults returns a copy with a Burst.
func (r Rate) WithDefaults() Rate {
	r.Burst = cmp.Or(r.Burst, 1)
	return r
}

// maxSpare bounds what Spare gives away of a long window.
const maxSpare = 2 * time.Second

// Spare is the time that is spread over the tokens of a window beyond its length, two percent of it: calls that set out
// at an even pace do not arrive at one.
func (r Rate) Spare() time.Duration { return min(r.Per/50, maxSpare) }

// Step is the time from one token to the next in ms, a fraction where there are many.
func (r Rate) Step() float64 {
	return float64(r.Per+r.Spare()) / float64(time.Millisecond) / float64(r.Tokens)
}

// Tokens are what an effect takes from one bucket.
type Tokens struct {
	Bucket string
	N      int
	Rate   Rate
}

// Taking asks for tokens for one run of an effect.
type Taking struct {
	// Effect is the effect's key: it has one place in the line, whatever becomes of the activation that asked.
	Effect string
	// Run is another number for each time the effect runs: what one run has taken is not the next one's.
	Run uint64
	// From are the buckets, each once.
	From []Tokens
}

// QuotaStore shares out what providers allow: token buckets that all nodes of a group take from. Adapters: redisstate and
// memstate. Buckets are kept as long as they matter and an hour
// more.
type QuotaStore interface {
	// Take takes tokens from all of the buckets at once and answers 0; or it gives the effect a place in each line and says
	// when its turn comes: ask again then. A place is the effect's own, so that many who wait do not come back at once. Who
	// comes late goes at once where the others' pace allows it, and gets another place where it does not. Asked again
	// before its turn the answer is what is left; asked again by the same run after it took, it is 0 and takes nothing.
	Take(ctx context.Context, t Taking) (time.Duration, error)
	// Quiet keeps everybody from taking of these buckets for so long; then they are empty and fill at their pace. The longest
	// one holds.
	Quiet(ctx context.Context, buckets []Tokens, d time.Duration) error
}

// Quota has the step take n tokens of a bucket each time its function is to run; supervision.Config.Quotas defines the
// buckets. They are the group's: all its nodes together keep within the Rate.
//
// A step whose turn is less than a second away waits in place. For a later one it gives up the activation's place, holds
// nothing and pays no attempt; a crash or a drain meanwhile does not lose its turn. Neither wait counts for its Timeout.
//
// When the function answers RateLimited (see FromHTTP), nobody in the group takes from the step's buckets for that long, and
// the step runs again when its next turn comes: with a Quota that needs no Retries, and is charged to nobody.
//
// A step may have several quotas, such as one of calls and one of model tokens: it runs when all of them allow it. On a
// node whose Config.Quotas lacks the bucket the step fails without running, which the task's budget tries again: another
// node may have it. See NeedsQuota.
func Quota(bucket string, n int) StepOption {
	return stepOption(func(s *stepSettings) error {
		err := bucketName(bucket)
		switch {
		case err != nil:
			return fmt.Errorf("Quota(%.80q, %d): %w", bucket, n, err)
		case n < 1:
			return fmt.Errorf("Quota(%.80q, %d) must take at least 1 token", bucket, n)
		case slices.ContainsFunc(s.quotas, func(t Tokens) bool { return t.Bucket == bucket }):
			return fmt.Errorf("Quota(%.80q, %d): the step has that quota already", bucket, n)
		}
		s.quotas = append(s.quotas, Tokens{Bucket: bucket, N: n})
		return nil
	})
}

// NeedsQuota names buckets that the agent's steps take from: a runtime whose Config.Quotas lacks one of them refuses to
// start, which is better than its steps failing one by one.
func NeedsQuota(buckets ...string) AgentOption {
	return agentOption(func(s *settings) error {
		for _, b := range buckets {
			if err := bucketName(b); err != nil {
				return fmt.Errorf("NeedsQuota(%.80q): %w", b, err)
			}
		}
		s.buckets = slices.Clone(buckets)
		return nil
	})
}

// Buckets are what NeedsQuota named.
func (a Agent) Buckets() []string { return slices.Clone(a.set.buckets) }

const maxBucketName = 256

func bucketName(name string) error {
	switch {
	case name == "":
		return errors.New("a bucket needs a name")
	case len(name) > maxBucketName:
		return fmt.Errorf("a bucket's name of %d bytes must have at most %d", len(name), maxBucketName)
	case !utf8.ValidString(name):
		return errors.New("a bucket's name must be UTF-8")
	}
	return nil
}

// ValidateQuotas names every bucket that cannot be, and why.
func ValidateQuotas(quotas map[string]Rate) error {
	var errs []error
	for name, rate := range quotas {
		if err := errors.Join(bucketName(name), rate.Validate()); err != nil {
			errs = append(errs, fmt.Errorf("quota %.80q: %w", name, err))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// A step that parks for its turn comes back early by quotaLead and waits the rest in place: what brings it back looks once a
// second, and a late turn is one that somebody else could have had.
const (
	quotaLead    = 750 * time.Millisecond
	quotaSoonest = 250 * time.Millisecond
)

// define gives the step's quotas the rates of this node.
func (e *effect) define() error {
	if e.act.job.Quotas == nil {
		e.opts.quotas = nil
	}
	for i := range e.opts.quotas {
		t := &e.opts.quotas[i]
		rate, ok := e.act.job.Rates[t.Bucket]
		if !ok {
			return fmt.Errorf("step %q: the quota %q is not defined on this node: add it to its Config.Quotas", e.name, t.Bucket)
		}
		t.Rate = rate.WithDefaults()
	}
	return nil
}

// take waits until the step may run; an error ends the activation.
func (e *effect) take() error {
	if len(e.opts.quotas) == 0 {
		return nil
	}
	t := Taking{Effect: e.effectKey(), Run: e.act.job.Begun.Fence.Number<<24 + uint64(e.try), From: e.opts.quotas}
	for n := 0; ; n++ {
		var wait time.Duration
		err := e.act.insist(func(ctx context.Context) (err error) {
			wait, err = e.act.job.Quotas.Take(ctx, t)
			return err
		})
		switch {
		case err != nil:
			return e.act.latchTo(err)
		case wait <= 0:
			return nil
		case wait >= shortDelay || n+e.waits > maxWaitsInPlace:
			return e.line(wait)
		}
		if e.act.pause(wait); e.over() != nil {
			return e.over()
		}
	}
}

// line parks until the step's turn is near.
func (e *effect) line(wait time.Duration) error {
	why := fmt.Sprintf("step %q waits %v for its quota", e.name, wait.Round(time.Millisecond))
	if e.intent || e.refused != nil {
		// It has not happened: without this an intent would put the next activation in doubt.
		cause := e.refused
		if cause == nil {
			cause = errors.New(why)
		}
		if err := e.retrying(cause); err != nil {
			return err
		}
	}
	return e.c.park(&parking{after: max(wait-quotaLead, quotaSoonest), why: why})
}

// limited quiets the step's buckets for everyone, as the provider asked.
func (e *effect) limited(after time.Duration) error {
	if after == 0 {
		after = e.act.job.Agent.set.budget.Retry.Delay(e.waits, e.act.jitter())
	}
	err := e.act.insist(func(ctx context.Context) error { return e.act.job.Quotas.Quiet(ctx, e.opts.quotas, after) })
	if err != nil {
		return e.act.latchTo(err)
	}
	if f := e.act.job.OnQuiet; f != nil {
		for _, t := range e.opts.quotas {
			f(t.Bucket, after)
		}
	}
	return nil
}

func (e *effect) effectKey() string {
	return messages.EffectKey(e.act.job.effectID(), e.act.job.Task.GetUnit(), e.name)
}
