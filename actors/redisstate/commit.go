package redisstate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Checkpoint stores one step of a running unit; see actors.StateStore.
func (s *State) Checkpoint(ctx context.Context, cp actors.Checkpoint) error {
	b, err := s.binding()
	if err != nil {
		return err
	}
	err = s.fenced(ctx, checkpointScript, []string{b.keys.Task(cp.TaskID)},
		run(cp.Fence.Incarnation, cp.Fence.Activation), strconv.FormatUint(cp.Fence.Number, 10), unitPrefix(cp.Unit),
		"step:"+messages.Escape(cp.Step.Name), string(messages.EncodeStep(cp.Step)))
	if err != nil {
		return fmt.Errorf("store step %.80q of task %.80q: %w", cp.Step.Name, cp.TaskID, err)
	}
	return nil
}

// Commit ends an activation; see actors.StateStore. A TTL or DeadTTL that is not positive keeps the record or the letter
// for ever.
//
// A Retry whose entry has lost its body, with no copy anywhere, can never run again: it is written as FAILED with a dead
// letter that says so, and Commit succeeds.
func (s *State) Commit(ctx context.Context, c actors.Commit) error {
	b, err := s.binding()
	if err != nil {
		return err
	}
	state, ok := outcomeStates[c.Outcome]
	if !ok {
		return fmt.Errorf("commit task %.80q: outcome %v has no state", c.TaskID, c.Outcome)
	}
	waits, err := packWaits(c.Waits)
	if err != nil {
		return fmt.Errorf("commit task %.80q: %w", c.TaskID, err)
	}
	args := []string{
		b.keys.Prefix, run(c.Fence.Incarnation, c.Fence.Activation), strconv.FormatUint(c.Fence.Number, 10),
		c.Entry.ID, number(ttlMS(c.TTL)), c.ContentType, string(c.Result),
	}
	if c.Outcome != messages.Outcome_OUTCOME_COMPLETED || c.Index || c.Unit != "" {
		dead, index, class := c.DeadTTL, "0", ""
		if dead <= 0 {
			dead = forever
		}
		if c.Index {
			index = "1"
		}
		if c.Outcome == messages.Outcome_OUTCOME_RETRY || c.Outcome == messages.Outcome_OUTCOME_REJECTED {
			class = ledgerFields[c.Charge]
			if c.Classes != "" {
				class += " " + string(c.Classes)
			}
		}
		args = append(args, unitPrefix(c.Unit), state, index, c.Type, b.group, class,
			number(max(0, c.After.Milliseconds())), clip(c.Error), reasonName(c.Reason), clip(c.Detail), number(dead.Milliseconds()))
		parked := c.Outcome == messages.Outcome_OUTCOME_PARKED
		if !parked {
			c.Doubt = ""
		}
		if !parked && c.Outcome != messages.Outcome_OUTCOME_RETRY {
			waits = ""
		}
		if waits != "" || c.Doubt != "" {
			args = append(args, waits, c.Doubt)
		}
	}
	if err := s.fenced(ctx, commitScript, []string{b.keys.Task(c.TaskID), c.Entry.Stream}, args...); err != nil {
		return fmt.Errorf("commit %s of task %.80q: %w", state, c.TaskID, err)
	}
	return nil
}

// packWaits writes the waits of a commit for its script: escaped name, then "<ms or -1> <wait>", in turn.
func packWaits(waits []actors.Wait) (string, error) {
	var fields []messages.Pair
	for _, w := range waits {
		stored, err := w.Stored()
		if err != nil {
			return "", err
		}
		ms := int64(-1)
		if w.For >= 0 {
			ms = w.For.Milliseconds()
		}
		fields = append(fields, messages.Pair{
			Name: messages.Escape(w.Name), Value: strconv.FormatInt(ms, 10) + " " + messages.EncodeWait(stored),
		})
	}
	return messages.PackFields(fields), nil
}

// fenced runs a script that answers 0 when the fence is old, and 2 when there is nothing to wait for.
func (s *State) fenced(ctx context.Context, sc *script, keys []string, args ...string) error {
	reply, err := s.batch.do(ctx, sc, keys, args...)
	switch {
	case err != nil:
		return err
	case reply == int64(2):
		return actors.ErrResume
	case reply != int64(1):
		return actors.ErrLeaseLost
	}
	return nil
}

// outcomeStates are the states that an outcome leads to.
var outcomeStates = map[messages.Outcome]string{
	messages.Outcome_OUTCOME_COMPLETED:   "SUCCEEDED",
	messages.Outcome_OUTCOME_RETRY:       "RETRYING",
	messages.Outcome_OUTCOME_PARKED:      "WAITING",
	messages.Outcome_OUTCOME_REJECTED:    "FAILED",
	messages.Outcome_OUTCOME_CANCELLED:   "CANCELLED",
	messages.Outcome_OUTCOME_INTERRUPTED: "PENDING",
}

// ledgerFields are the counters that a charge adds to. An interruption is counted with its outcome.
var ledgerFields = map[messages.Charge]string{
	messages.Charge_CHARGE_FAILURE: "failures",
	messages.Charge_CHARGE_CRASH:   "crashes",
	messages.Charge_CHARGE_DEATH:   "deaths",
	messages.Charge_CHARGE_TIMEOUT: "timeouts",
	messages.Charge_CHARGE_WAIT:    "waits",
}

func stateFrom(name string) messages.State {
	return messages.State(messages.State_value["STATE_"+name])
}

func reasonName(r messages.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

func reasonFrom(name string) messages.Reason {
	return messages.Reason(messages.Reason_value["REASON_"+name])
}

// Steps loads the unit's checkpoints in the order of their begin; see actors.StateStore.
func (s *State) Steps(ctx context.Context, taskID, unit string) ([]messages.Step, error) {
	b, err := s.binding()
	if err != nil {
		return nil, err
	}
	reply, err := s.batch.do(ctx, stepsScript, []string{b.keys.Task(taskID)}, unitPrefix(unit)+"step:")
	if err != nil {
		return nil, fmt.Errorf("load the steps of task %.80q: %w", taskID, err)
	}
	pairs := asList(reply)
	steps := make([]messages.Step, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		field, _ := pairs[i].(string)
		value, _ := pairs[i+1].(string)
		step, err := messages.DecodeStep(messages.Unescape(field), []byte(value))
		if err != nil {
			return nil, fmt.Errorf("load the steps of task %.80q: %w", taskID, err)
		}
		steps = append(steps, step)
	}
	sortSteps(steps)
	return steps, nil
}

// msTime reads a time in Unix ms; the zero time where there is none.
func msTime(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
