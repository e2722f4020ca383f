package waits

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

func mail(text string) messages.Mail {
	return messages.Mail{ContentType: "text/plain", Payload: []byte(text)}
}

func slots(s ...any) (all []actors.Slot) {
	for i := 0; i < len(s); i += 2 {
		all = append(all, actors.Slot{Message: s[i].(string), Nth: s[i+1].(int)})
	}
	return all
}

// ended says how the wait of that name ended.
func ended(t *testing.T, b *Book, name string) string {
	t.Helper()
	s, ok := b.Step(name)
	if !ok {
		return "open"
	}
	w, err := messages.DecodeWaited(name, s.Value)
	require.NoError(t, err)
	text := ""
	for n := range 3 {
		if m, ok := w.Messages[n]; ok {
			text += fmt.Sprintf("%d:%s ", n, m.Payload)
		}
	}
	if w.Timeout {
		text += "timeout "
	}
	if w.Children != nil {
		text += fmt.Sprint(w.Children)
	}
	return text
}

func TestMessagesFillSlots(t *testing.T) {
	b := &Book{}
	_, over, err := b.Commit(actors.Commit{Waits: []actors.Wait{
		{Name: "one", Kind: actors.WaitFirst, For: time.Hour, Slots: slots("m", 1), Closes: true},
		{Name: "either", Kind: actors.WaitFirst, For: -1, Slots: slots("x", 1, "m", 2)},
		{Name: "both", Kind: actors.WaitAll, For: time.Minute, Slots: slots("m", 2, "m", 1)},
	}})
	require.NoError(t, err)
	require.False(t, over)
	require.NoError(t, b.Send("m", "a", mail("first")))
	require.ErrorIs(t, b.Send("m", "a", mail("again")), actors.ErrAnswered)
	require.ErrorIs(t, b.Send("m", "", mail("no id")), actors.ErrAnswered)
	require.Equal(t, "0:first ", ended(t, b, "one"))
	require.Equal(t, "open", ended(t, b, "either"))
	require.NoError(t, b.Send("m", "b", mail("second")))
	require.Equal(t, "1:second ", ended(t, b, "either"))
	require.Equal(t, "0:second 1:first ", ended(t, b, "both"))
	require.NoError(t, b.Send("x", "", mail("later")))
	require.Equal(t, "1:second ", ended(t, b, "either"), "what is over stays")
	require.Empty(t, b.Waits())
	_, ok := b.Next()
	require.False(t, ok)
}

// A time that is over shuts the slots of its wait, and what waits for them has nothing to hope for; unless another wait was
// there before.
func TestTimesThatAreOver(t *testing.T) {
	commit := func(b *Book, w ...actors.Wait) (over bool) {
		_, over, err := b.Commit(actors.Commit{Waits: w})
		require.NoError(t, err)
		return over
	}
	await := actors.Wait{Name: "m", Kind: actors.WaitFirst, For: time.Hour, Slots: slots("m", 1), Closes: true}
	b := &Book{}
	commit(b, await)
	require.NoError(t, b.Advance(b.Now.Add(59*time.Minute)))
	commit(b, await)
	require.Equal(t, "open", ended(t, b, "m"))
	require.NoError(t, b.Advance(b.Now.Add(time.Minute)))
	require.Equal(t, "timeout ", ended(t, b, "m"), "nothing moves a deadline")
	require.ErrorIs(t, b.Send("m", "late", mail("late")), actors.ErrAnswered)
	require.True(t, commit(b, actors.Wait{Name: "all", Kind: actors.WaitAll, For: -1, Slots: slots("m", 1, "n", 1)}))
	require.Equal(t, "timeout ", ended(t, b, "all"))
	require.False(t, commit(b, actors.Wait{Name: "first", Kind: actors.WaitFirst, For: -1, Slots: slots("m", 1, "n", 1)}))
	require.NoError(t, b.Send("n", "", mail("n")))
	require.Equal(t, "1:n ", ended(t, b, "first"))

	b = &Book{}
	commit(b, await, actors.Wait{Name: "hopes", Kind: actors.WaitFirst, For: -1, Slots: slots("m", 1)})
	require.NoError(t, b.Advance(b.Now.Add(time.Hour)))
	require.Equal(t, "timeout ", ended(t, b, "m"))
	require.NoError(t, b.Send("m", "", mail("late")))
	require.Equal(t, "0:late ", ended(t, b, "hopes"))
	require.Equal(t, "timeout ", ended(t, b, "m"))
}

func TestJoins(t *testing.T) {
	spawn := func(names ...string) (all []actors.Spawning) {
		for _, n := range names {
			all = append(all, actors.Spawning{Name: n, Task: actors.Submission{ID: "p/" + n}})
		}
		return all
	}
	b := &Book{}
	kids := []string{"a", "b", "c"}
	started, over, err := b.Commit(actors.Commit{Spawns: spawn(kids...), Waits: []actors.Wait{
		{Name: "all", Kind: actors.WaitJoin, For: -1, Children: kids, KeepGoing: true},
		{Name: "strict", Kind: actors.WaitJoin, For: -1, Children: kids},
		{Name: "two", Kind: actors.WaitJoin, For: -1, Children: kids, Need: 2, KeepGoing: true},
		{Name: "late", Kind: actors.WaitJoin, For: time.Hour, Children: kids, KeepGoing: true},
	}})
	require.NoError(t, err)
	require.False(t, over)
	require.Len(t, started, 3)
	again, _, err := b.Commit(actors.Commit{Spawns: spawn(kids...)})
	require.NoError(t, err)
	require.Empty(t, again)
	require.NoError(t, b.End("c", "", nil, ""))
	require.NoError(t, b.Advance(b.Now.Add(time.Hour)))
	require.Equal(t, "timeout [c]", ended(t, b, "late"))
	require.NoError(t, b.End("a", "", nil, "FAILED why"))
	require.Equal(t, "[a c]", ended(t, b, "strict"))
	require.Equal(t, "open", ended(t, b, "two"))
	require.NoError(t, b.End("b", "", nil, ""))
	require.Empty(t, ended(t, b, "two"), "all of them")
	require.Empty(t, ended(t, b, "all"))
}
