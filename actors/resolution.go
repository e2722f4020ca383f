package actors

import (
	"context"
	"fmt"
	"mime"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// Resolution is what a person says of a step whose effect is in doubt.
type Resolution struct {
	ID, Unit string
	// Step is the name of the step that is in doubt; see UnitRecord.Doubt.
	Step string
	How  Resolving
	// ContentType and Result are what the step gives the handler, for ResolveDone, as Encode writes them. Neither: nil, or the
	// zero value.
	ContentType string
	Result      []byte
	// Reason is for people. By says who decided; both stand in the timeline.
	Reason, By string
	// TTL is how long the dead letter and the record of a unit that has failed are kept. 0 means 30 days, negative for ever.
	TTL time.Duration
}

// Resolving is how a doubt is settled.
type Resolving int

const (
	// ResolveDone: the effect happened. The step is not run again; its result is the one that is given.
	ResolveDone Resolving = iota + 1
	// ResolveRerun: the effect did not happen, or may happen again. The step runs again, as if it never had.
	ResolveRerun
	// ResolveFail ends the unit as FAILED, with a dead letter. Retried from there it is in doubt again.
	ResolveFail
)

// String is the word that the timeline has.
func (h Resolving) String() string {
	switch h {
	case ResolveDone:
		return "done"
	case ResolveRerun:
		return "rerun"
	case ResolveFail:
		return "fail"
	default:
		return fmt.Sprintf("resolving %d", int(h))
	}
}

// Check says what no store could do; the error wraps ErrInvalid.
func (r Resolution) Check() error {
	_, _, err := mime.ParseMediaType(r.ContentType)
	switch {
	case r.Step == "":
		return fmt.Errorf("resolve: the step is not named: %w", ErrInvalid)
	case r.How < ResolveDone || r.How > ResolveFail:
		return fmt.Errorf("resolve: %v: %w", r.How, ErrInvalid)
	case r.How != ResolveDone && (r.ContentType != "" || len(r.Result) > 0):
		return fmt.Errorf("resolve: a result goes with done, not with %v: %w", r.How, ErrInvalid)
	case r.ContentType != "" && (err != nil || strings.ContainsAny(r.ContentType, "\r\n")):
		return fmt.Errorf("resolve: content type %.80q: %w", r.ContentType, ErrInvalid)
	}
	return nil
}

// NoDoubtError refuses a Resolution of what is not in doubt.
type NoDoubtError struct {
	ID, Unit, Step string
	// State of the unit. Doubt is the step that it is in doubt on, if any.
	State messages.State
	Doubt string
}

func (e *NoDoubtError) Error() string {
	name := fmt.Sprintf("task %q", e.ID)
	if e.Unit != "" {
		name = fmt.Sprintf("unit %q of task %q", e.Unit, e.ID)
	}
	if e.Doubt != "" {
		return fmt.Sprintf("%s is in doubt on step %q, not on %q", name, e.Doubt, e.Step)
	}
	return fmt.Sprintf("%s is not in doubt on step %q: it is %s", name, e.Step, StateName(e.State))
}

// ResolveDone settles a step that is in doubt: its effect happened. The handler goes on and gets the result, as if the step
// had returned it; nil for none. See UnitRecord.Doubt and Client.Tasks for what is in doubt.
//
// *NoDoubtError: the unit is not in doubt on that step, or not any more. ErrNoTask as for Status. ErrMisuse: the result
// cannot be kept. After an error without an answer call it again.
func (t *Task) ResolveDone(ctx context.Context, step string, result any, reason string) error {
	var kept stored
	if result != nil {
		var err error
		if kept, err = encode(result); err != nil {
			return fmt.Errorf("resolve: result: %w", err)
		}
		if len(kept.data) > t.c.maxPayload {
			return fmt.Errorf("resolve: %w", tooLarge("the result", len(kept.data), t.c.maxPayload))
		}
	}
	return t.resolve(ctx, Resolution{Step: step, How: ResolveDone, ContentType: kept.contentType, Result: kept.data, Reason: reason})
}

// ResolveRerun settles a step that is in doubt: it runs again. Errors as for ResolveDone.
func (t *Task) ResolveRerun(ctx context.Context, step, reason string) error {
	return t.resolve(ctx, Resolution{Step: step, How: ResolveRerun, Reason: reason})
}

// ResolveFail gives up a unit one of whose steps is in doubt: it is FAILED, with a dead letter. Errors as for ResolveDone.
func (t *Task) ResolveFail(ctx context.Context, step, reason string) error {
	return t.resolve(ctx, Resolution{Step: step, How: ResolveFail, Reason: reason})
}

func (t *Task) resolve(ctx context.Context, r Resolution) error {
	r.ID, r.Unit, r.By = t.ID, t.Unit, t.c.names.Consumer
	if err := t.c.ops.Resolve(ctx, r); err != nil {
		return fmt.Errorf("resolve: %w", err)
	}
	return nil
}
