package agentactor

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weir-run/weir/actors"
)

// resumed is what the store said of a unit that was to wait: one of its waits is over. The handler that is called again has
// to meet one of them.
type resumed struct {
	waits map[string]bool
	met   atomic.Bool
}

// replayed hears which names the handler was answered without running.
func (r *resumed) replayed(name string) {
	if r.waits[name] {
		r.met.Store(true)
	}
}

// resume prepares another call of the handler under the same fence. A store that says over and over that a wait has ended,
// while the handler finds none that has, would have it called for ever: that is a crash, which is loud, comes back after a
// pause, and is counted.
//
//go:noinline
func (a *activation) resume(ctx context.Context) (crash string) {
	if r := a.resumed; r != nil && !r.met.Load() {
		return fmt.Sprintf("called again because one of its waits was over, the handler met none of those that it had waited for, and waits "+
			"again (%s): do its waits' names follow from its message and its steps?", a.verdict.Error)
	}
	a.resumed = &resumed{waits: map[string]bool{}}
	for _, w := range a.verdict.Waits {
		a.resumed.waits[w.Name] = true
	}
	a.begun.Steps = true
	a.verdict = actors.Verdict{}
	return a.prepare(ctx)
}
