package supervision

import (
	"context"
	"fmt"
	"io"
	"log" //nolint:depguard // hclog.Logger has methods that return one
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"
)

// Slog makes an hclog.Logger that writes to a host's slog logger, so that a service has one log.
// hclog's Trace becomes slog's Debug − 4. SetLevel raises the level of this logger only.
func Slog(l *slog.Logger) hclog.Logger {
	if l == nil {
		return hclog.NewNullLogger()
	}
	s := &slogger{to: l}
	s.level.Store(int32(hclog.NoLevel))
	return s
}

type slogger struct {
	to      *slog.Logger
	name    string
	implied []any
	level   atomic.Int32
}

var _ hclog.Logger = (*slogger)(nil)

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Trace:
		return slog.LevelDebug - 4
	case hclog.Debug:
		return slog.LevelDebug
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	case hclog.Off:
		return slog.LevelError + 1000
	case hclog.NoLevel, hclog.Info:
	}
	return slog.LevelInfo
}

func (s *slogger) enabled(l hclog.Level) bool {
	set := hclog.Level(s.level.Load())
	return (set == hclog.NoLevel || l >= set) && s.to.Enabled(context.Background(), slogLevel(l))
}

func (s *slogger) Log(level hclog.Level, msg string, args ...any) {
	if s.enabled(level) {
		s.to.Log(context.Background(), slogLevel(level), msg, args...)
	}
}

func (s *slogger) Trace(msg string, args ...any) { s.Log(hclog.Trace, msg, args...) }
func (s *slogger) Debug(msg string, args ...any) { s.Log(hclog.Debug, msg, args...) }
func (s *slogger) Info(msg string, args ...any)  { s.Log(hclog.Info, msg, args...) }
func (s *slogger) Warn(msg string, args ...any)  { s.Log(hclog.Warn, msg, args...) }
func (s *slogger) Error(msg string, args ...any) { s.Log(hclog.Error, msg, args...) }

func (s *slogger) IsTrace() bool { return s.enabled(hclog.Trace) }
func (s *slogger) IsDebug() bool { return s.enabled(hclog.Debug) }
func (s *slogger) IsInfo() bool  { return s.enabled(hclog.Info) }
func (s *slogger) IsWarn() bool  { return s.enabled(hclog.Warn) }
func (s *slogger) IsError() bool { return s.enabled(hclog.Error) }

func (s *slogger) ImpliedArgs() []any { return s.implied }
func (s *slogger) Name() string       { return s.name }

func (s *slogger) With(args ...any) hclog.Logger {
	return s.child(s.name, s.to.With(args...), append(append([]any{}, s.implied...), args...))
}

func (s *slogger) Named(name string) hclog.Logger {
	if s.name != "" {
		name = s.name + "." + name
	}
	return s.ResetNamed(name)
}

func (s *slogger) ResetNamed(name string) hclog.Logger {
	return s.child(name, s.to.With("logger", name), s.implied)
}

func (s *slogger) child(name string, to *slog.Logger, implied []any) *slogger {
	c := &slogger{to: to, name: name, implied: implied}
	c.level.Store(s.level.Load())
	return c
}

func (s *slogger) SetLevel(l hclog.Level) { s.level.Store(int32(l)) }

func (s *slogger) GetLevel() hclog.Level {
	if l := hclog.Level(s.level.Load()); l != hclog.NoLevel {
		return l
	}
	for _, l := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn, hclog.Error} {
		if s.enabled(l) {
			return l
		}
	}
	return hclog.Off
}

func (s *slogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(s.to.Handler(), slog.LevelInfo)
}

func (s *slogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return s.StandardLogger(o).Writer()
}

// handler makes a slog.Handler over hclog: for protoactor's own log and for authors' Context.Log.
type handler struct {
	to    hclog.Logger
	group string
}

func (h handler) Enabled(_ context.Context, l slog.Level) bool {
	switch {
	case l >= slog.LevelError:
		return h.to.IsError()
	case l >= slog.LevelWarn:
		return h.to.IsWarn()
	case l >= slog.LevelInfo:
		return h.to.IsInfo()
	case l >= slog.LevelDebug:
		return h.to.IsDebug()
	}
	return h.to.IsTrace()
}

func (h handler) Handle(_ context.Context, r slog.Record) error {
	args := make([]any, 0, 2*r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		args = append(args, h.group+a.Key, a.Value.Resolve().Any())
		return true
	})
	level := hclog.Trace
	switch {
	case r.Level >= slog.LevelError:
		level = hclog.Error
	case r.Level >= slog.LevelWarn:
		level = hclog.Warn
	case r.Level >= slog.LevelInfo:
		level = hclog.Info
	case r.Level >= slog.LevelDebug:
		level = hclog.Debug
	}
	h.to.Log(level, r.Message, args...)
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	args := make([]any, 0, 2*len(attrs))
	for _, a := range attrs {
		args = append(args, h.group+a.Key, a.Value.Resolve().Any())
	}
	return handler{to: h.to.With(args...), group: h.group}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{to: h.to, group: h.group + name + "."}
}

// quiet is the handler of protoactor's own log: everything one level lower, and never a message, only its type.
// protoactor prints the payload of what it cannot deliver at INFO.
type quiet struct{ handler }

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool { return q.handler.Enabled(ctx, l-4) }

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level-4, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "message" || a.Key == "reason" || a.Key == "exception" {
			a = slog.String(a.Key+"_type", fmt.Sprintf("%T", a.Value.Any()))
		}
		out.AddAttrs(a)
		return true
	})
	return q.handler.Handle(ctx, out)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quiet{q.handler.WithAttrs(attrs).(handler)}
}

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.handler.WithGroup(name).(handler)} }

// newSystem makes an actor system whose log goes to ours. It is never shut down: its Shutdown closes a channel that
// nothing of ours waits on, and a second call panics. Its actors are stopped one by one instead.
func newSystem(l hclog.Logger) *actor.ActorSystem {
	return actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
			return slog.New(quiet{handler{to: l.Named("protoactor")}})
		}),
		// Its throttle of dead-letter lines holds a goroutine for this long, which nothing can stop.
		actor.WithDeadLetterThrottleInterval(10*time.Millisecond),
	)
}
