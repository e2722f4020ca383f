package actors_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mistakes that the compiler finds: exactly the lines of testdata/bad that carry a number.
func TestDoesNotCompile(t *testing.T) {
	const file = "testdata/bad/bad.go"
	out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "./testdata/bad").CombinedOutput()
	require.Error(t, err)
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`bad\.go:(\d+):`).FindAllStringSubmatch(string(out), -1) {
		found[m[1]] = true
	}
	src, err := os.ReadFile(file)
	require.NoError(t, err)
	numbered := regexp.MustCompile(`// \d+`)
	n := 0
	for i, line := range strings.Split(string(src), "\n") {
		at := numbered.MatchString(line)
		if at {
			n++
		}
		require.Equal(t, at, found[strconv.Itoa(i+1)], "%s:%d: %s\n%s", file, i+1, line, out)
	}
	require.Equal(t, 10, n)
}
