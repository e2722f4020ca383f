package acceptance

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	binaryFlag = flag.String("weir", "", "test this weir binary instead of building one")
	full       = flag.Bool("full", os.Getenv("WEIR_ACCEPTANCE_FULL") != "", "run with the counts and times that the promises name")
)

func TestMain(m *testing.M) {
	if os.Getenv(probeEnv) != "" {
		os.Exit(probeMain())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if binary.dir != "" {
			if err := os.RemoveAll(binary.dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		os.Exit(code)
	}))
}

// pick is the number for the size at hand.
func pick[T int | time.Duration](regular, whole T) T {
	if *full {
		return whole
	}
	return regular
}

// binary is the weir command, built once by the first test that needs it.
var binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func weirBinary(t *testing.T) string {
	t.Helper()
	b := &binary
	b.once.Do(func() {
		if *binaryFlag != "" {
			b.path = *binaryFlag
			return
		}
		// The binary outlives the test that happens to build it.
		if b.dir, b.err = os.MkdirTemp("", "weir-acceptance-"); b.err != nil { //nolint:usetesting // see above
			return
		}
		b.path = filepath.Join(b.dir, "weir")
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", b.path, "github.com/weir-run/weir/cmd/weir").CombinedOutput()
		if err != nil {
			b.err = errors.Join(err, errors.New(string(out)))
		}
	})
	if b.err != nil {
		t.Fatalf("build weir: %v", b.err)
	}
	return b.path
}
