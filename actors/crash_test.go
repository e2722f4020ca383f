package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var errDied = errors.New("the process died")

// Every place at which a process can die, once and twice: before each write, after each write, and right after each
// effect. What is keyed happens exactly once; what is unrepeatable at most once, and in doubt where nobody can know.
func TestCrashAnywhere(t *testing.T) {
	for first := 1; ; first++ {
		died := crashAt(t, first)
		if !died {
			require.Greater(t, first, 12, "every place was tried")
			return
		}
		for second := 1; second < 15; second++ {
			crashAt(t, first, second)
		}
	}
}

// crashAt kills activation i at its places[i]-th place; a place past the end lets it finish. It reports whether the first one
// died.
func crashAt(t *testing.T, places ...int) (died bool) {
	t.Helper()
	at := fmt.Sprintf("died at %v", places)
	sent, paid, left := map[string]int{}, map[string]int{}, 0
	place := func() {
		if left--; left == 0 {
			panic(errDied)
		}
	}
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		plan, err := actors.Step(c, "plan", func(actors.StepContext) (string, error) { place(); return "p", nil })
		if err != nil {
			return "", err
		}
		receipt, err := actors.Step(c, "pay", func(s actors.StepContext) (string, error) {
			paid[s.Key]++
			place()
			return "r", nil
		}, actors.Verify(func(_ context.Context, key string) (string, bool, error) { place(); return "r", paid[key] > 0, nil }))
		if err != nil {
			return "", err
		}
		_, err = actors.Step(c, "mail", func(s actors.StepContext) (actors.None, error) {
			place()
			sent[s.Key]++
			place()
			return nil, nil
		}, actors.Unrepeatable())
		place()
		return plan + receipt, err
	})
	w.store.before = func(messages.Step) error { place(); return nil }
	store := &crashingStore{w.store, place}

	var v actors.Verdict
	for i := range len(places) + 1 {
		left = 0
		if i < len(places) {
			left = places[i]
		}
		var crashed bool
		v, crashed = w.orDie(t, store)
		if i == 0 {
			died = crashed
		}
		if !crashed {
			break
		}
	}
	require.LessOrEqual(t, sent["t-1:mail"], 1, at)
	if v.Outcome == parked {
		require.Contains(t, v.Error, "in doubt: step mail", at)
		require.Equal(t, messages.StepIntent, w.store.step("mail").Status, at)
		return died
	}
	require.Equal(t, completed, v.Outcome, at)
	require.JSONEq(t, `"pr"`, string(v.Result), at)
	require.Equal(t, 1, paid["t-1:pay"], at)
	require.Equal(t, 1, sent["t-1:mail"], at)
	return died
}

// crashingStore dies after a write as well as before it.
type crashingStore struct {
	*memory
	place func()
}

func (s *crashingStore) Checkpoint(ctx context.Context, cp actors.Checkpoint) error {
	err := s.memory.Checkpoint(ctx, cp)
	s.place()
	return err
}

func (w *world) orDie(t *testing.T, store actors.StateStore) (v actors.Verdict, died bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			err, _ := r.(error)
			require.ErrorIs(t, err, errDied)
			died = true
		}
	}()
	w.number++
	return actors.Activate(t.Context(), &actors.Job{
		Agent: w.agent, Task: &messages.Task{TaskId: "t-1", Type: "test", Payload: []byte("{}")}, Store: store,
		Begun: actors.Begun{Answer: actors.Run, Steps: w.store.any(), Fence: actors.Fence{Number: w.number}},
	}), false
}
