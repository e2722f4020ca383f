package actors_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// awaits is a handler with a single Await "ask".
func awaits(timeout time.Duration) func(*actors.Context, in) (string, error) {
	return func(c *actors.Context, _ in) (string, error) { return actors.Await[string](c, "ask", timeout) }
}

func TestAwait(t *testing.T) {
	w := newWorld(awaits(time.Hour))
	for range 2 { // the second activation waits for the same
		v := w.life(t)
		require.Equal(t, parked, v.Outcome)
		require.Equal(t, messages.Charge_CHARGE_UNSPECIFIED, v.Charge, "waiting is free")
		require.ErrorIs(t, v.Err, actors.ErrParked)
		require.Equal(t, `waits for message "ask"`, v.Error)
		require.Empty(t, v.Misuses)
		require.Equal(t, []actors.Wait{{
			Name: "ask", Kind: actors.WaitFirst, For: time.Hour, Slots: []actors.Slot{{Message: "ask", Nth: 1}}, Closes: true,
		}}, v.Waits)
	}
	require.NoError(t, w.store.send(t, "ask", "", "yes"))
	require.ErrorIs(t, w.store.send(t, "ask", "", "no"), actors.ErrAnswered)
	for range 2 {
		v := w.life(t)
		require.Equal(t, completed, v.Outcome, v.Error)
		require.JSONEq(t, `"yes"`, string(v.Result))
	}
}

// A message that was there before is found by the commit that would park: the handler goes on at once.
func TestAwaitWhatCameBefore(t *testing.T) {
	w := newWorld(awaits(time.Hour))
	require.NoError(t, w.store.send(t, "ask", "", "early"))
	v := w.life(t)
	require.Equal(t, completed, v.Outcome)
	require.JSONEq(t, `"early"`, string(v.Result))
	require.EqualValues(t, 2, w.number)
}

// No replay moves a deadline, and the message that comes after it is refused.
func TestAwaitTimeout(t *testing.T) {
	w := newWorld(awaits(time.Hour))
	w.life(t)
	w.pass(t, 59*time.Minute)
	w.life(t) // a retry of a sibling, a crash: it asks again
	w.pass(t, time.Minute)
	require.ErrorIs(t, w.store.send(t, "ask", "", "late"), actors.ErrAnswered)
	for range 2 {
		v := w.life(t)
		require.Equal(t, refused, v.Outcome, "another attempt would get the same answer")
		require.Equal(t, messages.Reason_REASON_REJECTED, v.Reason)
		require.Equal(t, messages.Charge_CHARGE_FAILURE, v.Charge, "and not a step that hangs")
		require.ErrorIs(t, v.Err, actors.ErrTimeout)
		require.Equal(t, `await "ask": not within 1h0m0s`, v.Error)
	}
}

func TestTimeouts(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		actors.NoTimeout:                    -1,
		1:                                   time.Millisecond,
		time.Millisecond:                    time.Millisecond,
		time.Second + time.Microsecond:      time.Second + time.Millisecond,
		time.Duration(1<<63 - 1):            1<<63 - 1,
		24 * 365 * 10 * 10 * time.Hour:      24 * 365 * 10 * 10 * time.Hour,
		time.Millisecond - time.Duration(1): time.Millisecond,
	} {
		v := newWorld(awaits(timeout)).life(t)
		require.Equal(t, want, v.Waits[0].For, timeout)
	}
	w := newWorld(awaits(actors.NoTimeout))
	w.life(t)
	w.pass(t, 24*365*100*time.Hour)
	require.Equal(t, parked, w.life(t).Outcome)
}

// A message that does not decode is the handler's to deal with, and final when it does not.
func TestMessageThatDoesNotDecode(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (approval, error) {
		return actors.Await[approval](c, "approve", time.Hour)
	})
	w.life(t)
	require.NoError(t, w.store.send(t, "approve", "", actors.Raw{ContentType: "image/png", Bytes: []byte{1}}))
	for range 2 {
		v := w.life(t)
		require.Equal(t, refused, v.Outcome)
		require.Equal(t, messages.Reason_REASON_BAD_PAYLOAD, v.Reason)
		var bad *actors.MessageError
		require.ErrorAs(t, v.Err, &bad)
		require.Equal(t, "approve", bad.Name)
		require.Equal(t, 1, bad.Nth)
		require.Contains(t, v.Error, `"approve": message "approve": content type "image/png" does not fit`)
	}

	w = newWorld(func(c *actors.Context, _ in) (string, error) {
		for n := 1; ; n++ {
			m := actors.Expect[approval]("approve").Nth(n)
			err := actors.First(c, fmt.Sprint("approve-", n), time.Hour, m)
			if _, bad := errors.AsType[*actors.MessageError](err); bad {
				continue
			}
			a, _ := m.Get()
			return a.By, err
		}
	})
	w.life(t)
	require.NoError(t, w.store.send(t, "approve", "1", actors.Raw{ContentType: "application/json", Bytes: []byte("{")}))
	require.Equal(t, parked, w.life(t).Outcome)
	require.NoError(t, w.store.send(t, "approve", "2", approval{By: "ada"}))
	require.JSONEq(t, `"ada"`, string(w.life(t).Result))
}

// Messages decode as payloads do: of any producer, by their content type.
func TestMessagesDecodeAsPayloads(t *testing.T) {
	for name, c := range map[string]struct{ contentType, payload, id string }{
		"binary":     {entryType, "\x12\x031-1", "1-1"},
		"protojson":  {"", `{"id":"1-1"}`, "1-1"},
		"no content": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(c *actors.Context, _ in) (*messages.Entry, error) {
				return actors.Await[*messages.Entry](c, "m", time.Hour)
			})
			w.life(t)
			require.NoError(t, w.store.send(t, "m", "", actors.Raw{ContentType: c.contentType, Bytes: []byte(c.payload)}))
			v := w.life(t)
			require.Equal(t, completed, v.Outcome, v.Error)
			e, err := actors.Decode[*messages.Entry](v.ContentType, v.Result)
			require.NoError(t, err)
			require.Equal(t, c.id, e.GetId())
		})
	}
}

// What First chose stays, whatever comes later; a message that was not chosen is there for another wait.
func TestFirst(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		yes, no := actors.Expect[string]("yes"), actors.Expect[int]("no")
		if err := actors.First(c, "decision", time.Hour, yes, no); err != nil {
			return "", err
		}
		_, isYes := yes.Get()
		n, isNo := no.Get()
		if err := actors.Sleep(c, "think", time.Minute); err != nil {
			return "", err
		}
		return fmt.Sprint(isYes, isNo, n), actors.All(c, "rest", time.Hour, yes)
	})
	v := w.life(t)
	require.Equal(t, `waits in "decision" for first of "yes" "no"`, v.Error)
	require.False(t, v.Waits[0].Closes)
	require.NoError(t, w.store.send(t, "no", "", 7))
	require.NoError(t, w.store.send(t, "yes", "", "y"))
	require.Equal(t, `sleeps for 1m0s in "think"`, w.life(t).Error)
	w.pass(t, time.Minute)
	v = w.life(t)
	require.Equal(t, completed, v.Outcome, v.Error)
	require.JSONEq(t, `"false true 7"`, string(v.Result))
}

func TestAll(t *testing.T) {
	var got []string
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		one, two := actors.Expect[string]("a"), actors.Expect[string]("a").Nth(2)
		err := actors.All(c, "both", time.Hour, one, two)
		got = nil
		for _, m := range []*actors.Message[string]{one, two} {
			if v, ok := m.Get(); ok {
				got = append(got, v)
			}
		}
		return "", err
	})
	require.Equal(t, `waits in "both" for all of "a" "a" (2)`, w.life(t).Error)
	require.NoError(t, w.store.send(t, "a", "1", "first"))
	require.ErrorIs(t, w.store.send(t, "a", "1", "first again"), actors.ErrAnswered)
	require.Equal(t, parked, w.life(t).Outcome)
	require.Empty(t, got)
	require.NoError(t, w.store.send(t, "a", "2", "second"))
	require.Equal(t, completed, w.life(t).Outcome)
	require.Equal(t, []string{"first", "second"}, got)

	w.store = &memory{}
	w.life(t)
	require.NoError(t, w.store.send(t, "a", "1", "alone"))
	w.pass(t, time.Hour)
	require.NoError(t, w.store.send(t, "a", "2", "late"), "others may want it")
	require.ErrorIs(t, w.life(t).Err, actors.ErrTimeout)
	require.Equal(t, []string{"alone"}, got, "as it was when the time was over")
}

func TestSleep(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		for _, d := range []time.Duration{0, -time.Hour, time.Hour} {
			if err := actors.Sleep(c, fmt.Sprint("s", d), d); err != nil {
				return "", err
			}
		}
		return "rested", nil
	})
	v := w.life(t)
	require.Equal(t, parked, v.Outcome)
	require.Equal(t, []actors.Wait{{Name: "s1h0m0s", Kind: actors.WaitFirst, For: time.Hour}}, v.Waits)
	w.pass(t, time.Hour)
	require.Equal(t, completed, w.life(t).Outcome)
}

// Each branch that parks adds what it waits for, and the first of all brings the unit back.
func TestParallelWaits(t *testing.T) {
	ran := map[string]int{}
	w := newWorld(func(c *actors.Context, _ in) ([]string, error) {
		return actors.Parallel(c, 4, []string{"person", "other", "tool", "slow"}, func(c *actors.Context, k string) (string, error) {
			switch k {
			case "tool":
				return actors.Step(c, k, func(actors.StepContext) (string, error) { ran[k]++; return "ok", nil })
			case "slow":
				return actors.Step(c, k, func(s actors.StepContext) (string, error) {
					if s.Attempt == 1 {
						return "", actors.Retry(time.Minute, errBank)
					}
					return "slow", nil
				}, actors.Retries(1))
			}
			return actors.Await[string](c, k, time.Hour)
		})
	})
	v := w.life(t)
	require.Equal(t, retry, v.Outcome, "a step has a time of its own")
	require.Equal(t, messages.Charge_CHARGE_WAIT, v.Charge)
	require.Equal(t, time.Minute, v.After)
	require.Len(t, v.Waits, 2)
	v = w.life(t)
	require.Equal(t, parked, v.Outcome)
	require.Len(t, v.Waits, 2)
	require.Contains(t, v.Error, `waits for message "person"; waits for message "other"`)
	require.NoError(t, w.store.send(t, "other", "", "o"))
	v = w.life(t)
	require.Len(t, v.Waits, 1)
	require.NoError(t, w.store.send(t, "person", "", "p"))
	v = w.life(t)
	require.Equal(t, completed, v.Outcome)
	require.JSONEq(t, `["p","o","ok","slow"]`, string(v.Result))
	require.Equal(t, 1, ran["tool"])
	require.Empty(t, v.Misuses)
}

// A step in doubt beside a wait: a person sees the doubt at once, and the wait's time counts.
func TestParallelWaitsAndDoubt(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) ([]string, error) {
		return actors.Parallel(c, 2, []string{"mail", "person"}, func(c *actors.Context, k string) (string, error) {
			if k == "mail" {
				return inDoubt(c, k)
			}
			return actors.Await[string](c, k, time.Hour)
		})
	})
	v := w.life(t)
	require.Equal(t, parked, v.Outcome)
	require.Equal(t, "mail", v.Doubt)
	require.Len(t, v.Waits, 1)
	require.Equal(t, "mail", v.Commit(&messages.Task{}, actors.Fence{}, messages.Ref{}).Doubt)
}

// A branch that failed for good does not end a sibling's wait; one that a retry can heal does.
func TestParallelWaitsAndFails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want messages.Outcome
	}{
		"final":    {actors.Reject(errBank), parked},
		"healable": {errBank, retry},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(func(cx *actors.Context, _ in) ([]string, error) {
				return actors.Parallel(cx, 2, []string{"bad", "person"}, func(cx *actors.Context, k string) (string, error) {
					if k == "bad" {
						return "", c.err
					}
					return actors.Await[string](cx, k, time.Hour)
				})
			})
			v := w.life(t)
			require.Equal(t, c.want, v.Outcome)
			require.Equal(t, c.want == parked, len(v.Waits) == 1)
		})
	}
}

// A name that was a step's in an earlier version of the code, or the other way round, sets the unit aside.
func TestCheckpointOfAnotherKind(t *testing.T) {
	step := func(c *actors.Context, _ in) (string, error) {
		return actors.Step(c, "x", func(actors.StepContext) (string, error) { return "ran", nil })
	}
	for name, c := range map[string]struct {
		status messages.StepStatus
		h      func(*actors.Context, in) (string, error)
	}{
		"a step, now a wait":  {messages.StepDone, func(c *actors.Context, _ in) (string, error) { return actors.Await[string](c, "x", time.Hour) }},
		"a wait, now a step":  {messages.StepWaited, step},
		"a child, now a step": {messages.StepSpawned, step},
		"a wait, now a child": {messages.StepWaited, func(c *actors.Context, _ in) (string, error) {
			actors.Spawn[string](c, "x", actors.NewTask{Type: "a"})
			return "", nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(c.h)
			w.store.preset(messages.Step{Name: "x", Status: c.status})
			v := w.activate(t.Context(), `{}`)
			require.Equal(t, refused, v.Outcome)
			require.Equal(t, messages.Reason_REASON_BAD_STATE, v.Reason)
			require.Contains(t, v.Error, "what was it in an earlier version")
		})
	}
	w := newWorld(awaits(time.Hour))
	w.store.preset(messages.Step{Name: "ask", Status: messages.StepWaited, Value: []byte("7:broken")})
	require.Equal(t, messages.Reason_REASON_BAD_STATE, w.activate(t.Context(), `{}`).Reason)
}

// What follows a wait runs for the first time when it is answered: its lines are written.
func TestLogAfterAWait(t *testing.T) {
	var b bytes.Buffer
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		_, err := actors.Step(c, "plan", func(actors.StepContext) (string, error) { return "", nil })
		if err != nil {
			return "", err
		}
		c.Log().Info("planned")
		for _, name := range []string{"one", "two"} {
			if _, err := actors.Await[string](c, name, time.Hour); err != nil {
				return "", err
			}
			c.Log().Info("answered " + name)
		}
		return "", nil
	})
	w.job.Logger = slog.New(slog.NewTextHandler(&b, nil))
	w.life(t)
	require.NoError(t, w.store.send(t, "one", "", ""))
	w.life(t)
	require.NoError(t, w.store.send(t, "two", "", ""))
	w.life(t)
	for _, line := range []string{"planned", "answered one", "answered two"} {
		require.Equal(t, 1, strings.Count(b.String(), line), line)
	}
}

// Waits are told to the runtime when they are answered, as steps are.
func TestOnReplayOfWaits(t *testing.T) {
	var told []string
	w := newWorld(awaits(time.Hour))
	w.job.OnReplay = func(name string) { told = append(told, name) }
	w.life(t)
	require.Empty(t, told)
	require.NoError(t, w.store.send(t, "ask", "", "yes"))
	w.life(t)
	require.Equal(t, []string{"ask"}, told)
}

// What another wait's end has shut is over at once, also where there is no time.
func TestAwaitWhatIsShut(t *testing.T) {
	w := newWorld(func(c *actors.Context, _ in) (string, error) {
		if _, err := actors.Await[string](c, "ask", time.Hour); !errors.Is(err, actors.ErrTimeout) {
			return "", err
		}
		return "", actors.First(c, "again", actors.NoTimeout, actors.Expect[string]("ask"))
	})
	w.life(t)
	w.pass(t, time.Hour)
	v := w.life(t)
	require.ErrorIs(t, v.Err, actors.ErrTimeout)
	require.Equal(t, `first "again": the time of another wait for its message was over`, v.Error)
}
