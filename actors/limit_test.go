package actors_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func TestLimitsOfATask(t *testing.T) {
	noop := actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, nil })
	fields := messages.FieldNames{}.WithDefaults()
	task := &messages.Task{
		TaskId: "t-1", Type: "refund/amend", Payload: []byte("raw"), ContentType: "text/plain",
		Fields: []*messages.Field{{Name: []byte("customer"), Value: []byte("a:b")}},
	}
	require.False(t, noop.Limited())
	require.Empty(t, noop.Limits("refund", task, fields))
	byCustomer := actors.Limit(2, func(i actors.Info, m actors.Raw) string {
		require.Equal(t, "t-1", i.TaskID)
		require.Equal(t, "refund/amend", i.Type)
		require.Equal(t, actors.Raw{ContentType: "text/plain", Bytes: []byte("raw")}, m)
		for _, f := range i.Fields {
			if f.Name == "customer" {
				return f.Value
			}
		}
		return ""
	})
	both := noop.With(actors.Limit(100, nil), byCustomer)
	require.True(t, both.Limited())
	require.Equal(t, []actors.Limited{{Name: "k:refund:a%3Ab", Most: 2}, {Name: "t:refund", Most: 100}}, both.Limits("refund", task, fields))
	require.Equal(t, "refund a:b", messages.LimitName("k:refund:a%3Ab"))
	require.Equal(t, "refund", messages.LimitName("t:refund"))
	require.Equal(t, "group", messages.LimitName(messages.GroupLimit()))

	require.Equal(t, []actors.Limited{{Name: "t:refund", Most: 7}}, noop.With(actors.Limit(1, nil), actors.Limit(7, nil)).Limits("refund", task, fields),
		"a later option replaces an earlier one")
	task.Fields[0].Value = []byte("")
	require.Equal(t, []actors.Limited{{Name: "t:refund", Most: 100}}, both.Limits("refund", task, fields), "no key, no limit of it")
	task.Fields[0].Value = []byte(strings.Repeat("x", 10_000))
	require.Less(t, len(both.Limits("refund", task, fields)[0].Name), 100)
}

func TestLimitMisuse(t *testing.T) {
	noop := actors.Func(func(*actors.Context, actors.None) (actors.None, error) { return nil, nil })
	err := noop.With(actors.Limit(0, nil)).Err()
	require.ErrorIs(t, err, actors.ErrMisuse)
	require.ErrorContains(t, err, "Limit(0) must be at least 1")
}
