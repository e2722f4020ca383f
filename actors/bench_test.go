package actors_test

import (
	"testing"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// What the author's API costs a task that does nothing, and one of three steps on a store that costs nothing.
func BenchmarkActivate(b *testing.B) {
	noop := actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, nil })
	echo := actors.Func(func(_ *actors.Context, m actors.Raw) (actors.Raw, error) { return m, nil })
	steps := actors.Func(func(c *actors.Context, _ actors.None) (n int, err error) {
		for _, name := range []string{"a", "b", "c"} {
			n, err = actors.Step(c, name, func(actors.StepContext) (int, error) { return n + 1, nil })
			if err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	for name, agent := range map[string]actors.Agent{"noop": noop, "echo": echo, "three steps": steps} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			task := &messages.Task{TaskId: "t", Type: "a", Payload: make([]byte, 200)}
			for b.Loop() {
				v := actors.Activate(b.Context(), &actors.Job{Agent: agent, Task: task, Store: &memory{}})
				if v.Outcome != completed {
					b.Fatal(v.Error)
				}
			}
		})
	}
}
