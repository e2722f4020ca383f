package supervision

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASubscriberThatIsTooSlowMissesEventsAndHoldsUpNobody(t *testing.T) {
	var h hub
	release, seen := make(chan struct{}), make(chan Event, 2*eventQueue)
	stop := h.subscribe(func(e Event) { <-release; seen <- e })
	require.True(t, h.wanted())
	for range eventQueue + 100 {
		h.publish(TaskBegan{TaskID: "a"})
	}
	require.GreaterOrEqual(t, h.dropped.Load(), int64(99), "one may be in the subscriber's hands")
	close(release)
	stop()
	stop()
	require.False(t, h.wanted())
	h.close()
	h.subscribe(func(Event) { t.Error("after the end") })
	h.publish(TaskBegan{})
}

func TestCloseHandsOverWhatWasPublished(t *testing.T) {
	var h hub
	var got []string
	h.subscribe(func(e Event) { got = append(got, e.Name()) })
	h.publish(TaskBegan{})
	h.publish(TaskEnded{})
	h.publish(AgentCrashed{})
	h.close()
	require.Equal(t, []string{"task_began", "task_ended", "agent_crashed"}, got)
}
