package actors_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// What the examples share: a task "order-42" whose checkpoints stay from one activation to the next, as in a store.
var exampleStore = &memory{}

// show runs one activation and prints its verdict.
func show(agents actors.Agents, entryType, payload string) {
	agent, handler, _ := agents.Find(entryType)
	task := &messages.Task{TaskId: "order-42", Type: entryType, Payload: []byte(payload)}
	v := actors.Activate(context.Background(), &actors.Job{
		Agent: agent, Handler: handler, Task: task, Store: exampleStore, Begun: actors.Begun{Steps: len(exampleStore.steps) > 0},
	})
	outcome := strings.TrimPrefix(v.Outcome.String(), "OUTCOME_")
	switch v.Outcome {
	case completed:
		fmt.Println(outcome, string(v.Result))
		exampleStore.steps = nil // the next example is another task
	case parked:
		fmt.Println(outcome, v.Error)
		exampleStore.steps = nil
	default:
		fmt.Println(outcome, v.Error)
	}
}

var exampleDesk = &desk{unit: func() (*actors.UnitRecord, error) {
	return &actors.UnitRecord{
		State: messages.State_STATE_SUCCEEDED, ContentType: "application/json", Result: []byte(`{"Text":"because"}`),
	}, nil
}}
