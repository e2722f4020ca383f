package actors_test

import (
	"context"
	"fmt"
	"strings"
	"time"

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
		Agent: agent, Handler: handler, Task: task, Store: exampleStore, Begun: actors.Begun{Steps: exampleStore.any()},
	})
	outcome := strings.TrimPrefix(v.Outcome.String(), "OUTCOME_")
	_, _, _ = exampleStore.book.Commit(v.Commit(task, actors.Fence{}, messages.Ref{}))
	switch v.Outcome {
	case completed:
		fmt.Println(strings.TrimSpace(outcome + " " + string(v.Result)))
		exampleStore = &memory{} // the next example is another task
	case parked:
		fmt.Println(outcome, v.Error)
		if len(v.Waits) == 0 {
			exampleStore = &memory{}
		}
	default:
		fmt.Println(outcome, v.Error)
	}
	for _, s := range v.Spawns {
		fmt.Println("spawned", s.Task.ID)
	}
	for _, e := range v.Emits {
		fmt.Println("emitted", e.Task.ID, "to", e.Stream)
	}
}

// answer sends the task a message of its own.
func answer(name string, v any) {
	contentType, payload, _ := actors.Encode(v)
	_ = exampleStore.book.Send(name, fmt.Sprint(v), messages.Mail{ContentType: contentType, Payload: payload})
}

// pass lets time pass.
func pass(d time.Duration) { _ = exampleStore.book.Advance(exampleStore.book.Now.Add(d)) }

// childEnds ends a child with a result.
func childEnds(name string, v any) {
	contentType, payload, _ := actors.Encode(v)
	_ = exampleStore.book.End(name, contentType, payload, "")
}

var exampleDesk = &desk{unit: func() (*actors.UnitRecord, error) {
	return &actors.UnitRecord{
		State: messages.State_STATE_SUCCEEDED, ContentType: "application/json", Result: []byte(`{"Text":"because"}`),
	}, nil
}}
