package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/streambridge/redistest"
)

// bleve starts its analysis workers when the package is loaded, and they never end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func TestTriageInMemory(t *testing.T) {
	out := triageWith(t, nil)
	require.Len(t, out, 150, "a heading, and a line for each of 149 reports")
	require.Contains(t, out[0], "INTENT")
}

// The second run finds every report done, and says the same.
func TestTriageOnRedisTwice(t *testing.T) {
	srv := redistest.Start(t)
	env := map[string]string{"REDIS_URL": srv.URL()}
	first := triageWith(t, env)
	require.Len(t, first, 150)
	require.Equal(t, first, triageWith(t, env))
}

func triageWith(t *testing.T, env map[string]string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out, func(name string) string { return env[name] }))
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}
