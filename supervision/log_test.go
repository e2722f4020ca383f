package supervision

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

func TestSlogCarriesLevelsNamesAndPairs(t *testing.T) {
	var b bytes.Buffer
	l := Slog(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo}))).Named("weir").With("node", "n1").Named("bridge")
	l.Info("reading", "count", 3)
	l.Debug("not this")
	require.Contains(t, b.String(), `level=INFO msg=reading`)
	require.Contains(t, b.String(), "node=n1 logger=weir.bridge count=3")
	require.NotContains(t, b.String(), "not this")
	require.Equal(t, hclog.Info, l.GetLevel())
	require.Equal(t, []any{"node", "n1"}, l.ImpliedArgs())
	l.SetLevel(hclog.Error)
	require.False(t, l.IsWarn())
	l.StandardLogger(nil).Print("from the standard library")
	require.Contains(t, b.String(), "from the standard library")
	require.False(t, Slog(nil).IsError(), "no logger is silence")
}

func TestAuthorsLogGoesToHclog(t *testing.T) {
	var b bytes.Buffer
	l := newHostLog(hclog.New(&hclog.LoggerOptions{Output: &b, Level: hclog.Info, JSONFormat: true}))
	l.With("task_id", "a").WithGroup("g").Info("seen", "bytes", 4)
	l.Debug("not this")
	require.Contains(t, b.String(), `"task_id":"a"`)
	require.Contains(t, b.String(), `"g.bytes":4`)
	require.NotContains(t, b.String(), "not this")
}

// protoactor prints what it cannot deliver, payload and all, at INFO.
func TestAnUndeliverableMessageIsNotPrinted(t *testing.T) {
	var b bytes.Buffer
	system := newSystem(hclog.New(&hclog.LoggerOptions{Output: &b, Level: hclog.Trace}))
	pid := system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
	stopped := make(chan struct{})
	system.Root.Spawn(actor.PropsFromFunc(func(c actor.Context) {
		switch c.Message().(type) {
		case *actor.Started:
			c.Watch(pid)
			c.Stop(pid)
		case *actor.Terminated:
			close(stopped)
			c.Stop(c.Self())
		}
	}))
	receive(t, stopped)
	system.Root.Send(pid, &secret{"hunter2"})
	require.Contains(t, b.String(), "[DEBUG]")
	require.Contains(t, b.String(), "supervision.secret")
	require.NotContains(t, b.String(), "hunter2")
	require.NotContains(t, b.String(), "[INFO]")
}

type secret struct{ Word string }
