package messages_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
)

func TestReasonName(t *testing.T) {
	require.Empty(t, messages.ReasonName(messages.Reason_REASON_UNSPECIFIED))
	require.Equal(t, "budget_spent", messages.ReasonName(messages.Reason_REASON_BUDGET_SPENT))
	names := messages.ReasonNames()
	require.Len(t, names, len(messages.Reason_name)-1)
	require.Contains(t, names, "undecodable")
}

func TestStepStatusHasResult(t *testing.T) {
	for status, want := range map[messages.StepStatus]bool{
		messages.StepDone: true, messages.StepFound: true, messages.StepIntent: false, messages.StepRetrying: false, messages.StepSpent: false,
	} {
		require.Equal(t, want, status.HasResult(), status)
		kept, err := messages.DecodeStep("s", messages.EncodeStep(messages.Step{Status: status, Attempts: 1}))
		require.NoError(t, err)
		require.Equal(t, status, kept.Status)
	}
}
