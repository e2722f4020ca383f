package supervision_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A library must not make its users carry what only the command and the examples need.
func TestWhatTheLibrariesLink(t *testing.T) {
	linked := func(packages ...string) []string {
		cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)...)
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	const weir = "github.com/weir-run/weir/"
	libraries := linked(weir+"actors/...", weir+"streambridge/...", weir+"supervision/...", weir+"messages/...")
	require.Contains(t, libraries, "github.com/asynkron/protoactor-go/actor", "the list is real")
	for _, path := range libraries {
		for _, banned := range []string{"spf13/", "openai/", "blevesearch/", weir + "cmd", weir + "examples"} {
			require.NotContains(t, path, banned)
		}
		for _, banned := range []string{"protoactor-go/cluster", "protoactor-go/persistence", "protoactor-go/remote"} {
			require.NotContains(t, path, banned, "they lose or double work")
		}
	}
	for _, path := range linked(weir+"actors", weir+"actors/redisstate") {
		require.NotContains(t, path, "protoactor-go", "a program that only submits links no actors")
		require.NotContains(t, path, "opentelemetry")
	}
}
