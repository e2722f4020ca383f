package actors_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that writes agents or submits tasks links messages, protobuf, a hash and the standard library: no actor
// library, no Redis client, no telemetry.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for pkg := range strings.Lines(string(out)) {
		pkg = strings.TrimSpace(pkg)
		allowed := pkg == "github.com/weir-run/weir/actors" || pkg == "github.com/weir-run/weir/messages" ||
			strings.HasPrefix(pkg, "google.golang.org/protobuf/") || strings.HasPrefix(pkg, "github.com/cespare/xxhash/")
		require.True(t, allowed, "actors links %s", pkg)
	}
}
