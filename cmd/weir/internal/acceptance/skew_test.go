package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// A node whose clock is wrong. Nothing in Weir knows of it: its binary is built with another time.Now, by go build's
// -overlay, that adds the seconds of an environment variable to the wall clock and leaves the monotonic one alone, as a
// machine with a wrong clock does. (faketime replaces functions of libc, which Go does not call.)
const skewEnv = "CLOCK_SKEW"

var skewed struct {
	once sync.Once
	path string
	err  error
}

// skewedBinary is the weir command with a clock that can be set wrong. It costs a build of all packages, once.
func skewedBinary(t *testing.T) string {
	t.Helper()
	weirBinary(t) // it owns the folder
	b := &skewed
	b.once.Do(func() {
		b.path = filepath.Join(binary.dir, "weir-skewed")
		b.err = buildSkewed(b.path)
	})
	if b.err != nil {
		t.Fatalf("build weir with a wrong clock: %v", b.err)
	}
	return b.path
}

func buildSkewed(path string) error {
	original := filepath.Join(runtime.GOROOT(), "src", "time", "time.go") //nolint:staticcheck // the toolchain that built this test builds the binary
	text, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	const reads = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	if strings.Count(string(text), reads) != 1 {
		return errors.New("time.Now reads the clock in another way than it did")
	}
	dir := filepath.Dir(path)
	patched := strings.Replace(string(text), reads, "\tsec, nsec, mono := runtimeNow()\n\tsec += clockSkew\n\tif mono == 0 {", 1)
	skew := `package time

import "syscall"

var clockSkew = readSkew()

func readSkew() (n int64) {
	s, _ := syscall.Getenv("` + skewEnv + `")
	for _, c := range s {
		if c != '-' {
			n = 10*n + int64(c-'0')
		}
	}
	if len(s) > 0 && s[0] == '-' {
		return -n
	}
	return n
}
`
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		original: filepath.Join(dir, "time.go"),
		filepath.Join(filepath.Dir(original), "skew.go"): filepath.Join(dir, "skew.go"),
	}})
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"time.go": patched, "skew.go": skew, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-buildvcs=false", "-o", path,
		"github.com/weir-run/weir/cmd/weir").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// launchSkewed starts a worker whose clock is wrong by so many seconds, without waiting for it.
func (s *site) launchSkewed(name, consumer string, seconds int, extra ...string) (*process, error) {
	cmd := exec.Command(skewedBinary(s.t), s.workerArgs(consumer, extra...)...)
	cmd.Env = environ(fmt.Sprint(skewEnv, "=", seconds))
	return s.spawn(name, cmd)
}
