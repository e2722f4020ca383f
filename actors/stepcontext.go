package actors

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-run/weir/messages"
)

// StepContext is what a step's function works with. It is a context.Context: it ends with the step's Timeout, and when
// Context.Context does. Contexts derived from it carry it along; see StepFrom.
type StepContext struct {
	context.Context
	// Name of the step.
	Name string
	// Key names this effect for the world outside: hand it over as an idempotency key. The same in every attempt. It is
	// Key(task id, unit, name); where the entry's own id stands for a task id, "<stream>/" stands before that, because two
	// streams may have entries with one id.
	Key string
	// Attempt counts the step's tries that Weir knows of, this one included: 1 on the first.
	Attempt int

	act   *activation
	order int
}

// stepKey is where contexts carry a stepValue.
type stepKey struct{}

type stepValue struct {
	act  *activation
	step *StepContext // nil in the handler's own context
}

// StepFrom finds the step that a context belongs to, however often it was derived.
func StepFrom(ctx context.Context) (s StepContext, ok bool) {
	v, _ := ctx.Value(stepKey{}).(*stepValue)
	if v == nil || v.step == nil {
		return StepContext{}, false
	}
	s = *v.step
	s.Context = ctx
	return s, true
}

// chunkTries is how many tries of a step one activation can have before the order of its chunks repeats.
const chunkTries = 1000

func newStepContext(ctx context.Context, a *activation, name string, attempt, try int) StepContext {
	t := a.job.Task
	s := StepContext{
		Name: name, Key: messages.EffectKey(a.job.effectID(), t.GetUnit(), name), Attempt: attempt, act: a,
		order: int(a.job.Begun.Fence.Number)*chunkTries + min(try, chunkTries-1),
	}
	v := &stepValue{act: a, step: &s}
	s.Context = context.WithValue(ctx, stepKey{}, v)
	return s
}

// effectID is what the keys of a task's effects start with.
func (j *Job) effectID() string {
	id := j.Task.GetTaskId()
	if stream := j.stream(); stream != "" && id == j.Task.GetOrigin() {
		return stream + "/" + id
	}
	return id
}

// Publish shows a piece of the result to those who Follow the task, such as a token of a model's answer. It is a best
// effort for people who watch: pieces may be lost when the server is away, and a step that runs again publishes again,
// under a higher Chunk.Attempt. Only the step's result is kept.
func (s StepContext) Publish(data []byte) {
	a := s.act
	if a == nil || a.job.Desk == nil || len(data) == 0 || len(data) > a.maxResult() || s.Err() != nil {
		return
	}
	now := time.Now()
	if now.UnixNano() < a.muteUntil.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(s, publishWait)
	defer cancel()
	chunk := Chunk{Attempt: s.order, Step: s.Name, Data: data}
	if err := a.job.Desk.Publish(ctx, a.job.Task.GetTaskId(), chunk); err != nil {
		a.muteUntil.Store(now.Add(publishMute).UnixNano())
	}
}

const (
	publishWait = time.Second
	publishMute = 2 * time.Second
)

// SlogHandler wraps a host's slog handler so that lines logged with a context of a handler or of a step, or derived from
// one, carry task_id, type and, within a step, step, step_key and attempt.
func SlogHandler(h slog.Handler) slog.Handler { return &stepHandler{h} }

type stepHandler struct{ slog.Handler }

func (h *stepHandler) Handle(ctx context.Context, r slog.Record) error {
	if v, _ := ctx.Value(stepKey{}).(*stepValue); v != nil {
		t := v.act.job.Task
		r = r.Clone()
		r.AddAttrs(slog.String("task_id", t.GetTaskId()), slog.String("type", t.GetType()))
		if t.GetUnit() != "" {
			r.AddAttrs(slog.String("unit", t.GetUnit()))
		}
		if s := v.step; s != nil {
			r.AddAttrs(slog.String("step", s.Name), slog.String("step_key", s.Key), slog.Int("attempt", s.Attempt))
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *stepHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &stepHandler{h.Handler.WithAttrs(attrs)}
}

func (h *stepHandler) WithGroup(name string) slog.Handler {
	return &stepHandler{h.Handler.WithGroup(name)}
}

// replayHandler is silent below WARN until the first step really runs.
type replayHandler struct {
	slog.Handler
	live *atomic.Bool
}

func (h *replayHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return (level >= slog.LevelWarn || h.live.Load()) && h.Handler.Enabled(ctx, level)
}

func (h *replayHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &replayHandler{h.Handler.WithAttrs(attrs), h.live}
}

func (h *replayHandler) WithGroup(name string) slog.Handler {
	return &replayHandler{h.Handler.WithGroup(name), h.live}
}

// warner lets one warning a minute through for an agent.
type warner struct{ next atomic.Int64 }

func (w *warner) warn(log *slog.Logger, t *messages.Task, misuses []string) {
	now := time.Now().UnixNano()
	next := w.next.Load()
	if log == nil || now < next || !w.next.CompareAndSwap(next, now+int64(time.Minute)) {
		return
	}
	log.Warn("the agent misuses the API", "task_id", t.GetTaskId(), "type", t.GetType(), "misuse", misuses[0], "more", len(misuses)-1)
}
