package agents

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/actorstest"
	"github.com/weir-run/weir/streambridge/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBuiltin(t *testing.T) {
	all := Builtin(func(int) {}, NewEffects(nil, nil))
	require.NoError(t, all.Validate())
	require.Equal(t, Types, slices.Sorted(maps.Keys(all)))
	require.NotContains(t, Builtin(func(int) {}, nil), "effect")
}

func TestSteps(t *testing.T) {
	x := actorstest.New(t)
	n, ms := 4, 0
	got, err := actorstest.Call(x, steps, stepsMessage{N: &n, SleepMS: &ms})
	require.NoError(t, err)
	require.Equal(t, 4, got)
	require.Len(t, x.Steps(), 4)

	got, err = actorstest.Call(actorstest.New(t), steps, stepsMessage{})
	require.NoError(t, err)
	require.Equal(t, 3, got)

	n = maxSteps + 1
	_, err = actorstest.Call(actorstest.New(t), steps, stepsMessage{N: &n})
	require.ErrorContains(t, err, "n (10001)")
}

func TestSmallOnes(t *testing.T) {
	raw := actors.Raw{ContentType: "x/y", Bytes: []byte{0, 255}}
	got, err := actorstest.Call(actorstest.New(t), echo, raw)
	require.NoError(t, err)
	require.Equal(t, raw, got)
	_, err = actorstest.Call(actorstest.New(t), noop, raw)
	require.NoError(t, err)

	ms := 1
	_, err = actorstest.Call(actorstest.New(t), sleep, sleepMessage{MS: &ms})
	require.NoError(t, err)
	_, err = actorstest.Call(actorstest.New(t), fail, failMessage{})
	require.ErrorContains(t, err, "attempt 1 of 2 that fail")
	times := 0
	n, err := actorstest.Call(actorstest.New(t), fail, failMessage{Times: &times})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Panics(t, func() { _, _ = actorstest.Call(actorstest.New(t), panics, panicMessage{}) })
}

func TestExit(t *testing.T) {
	code := -1
	exits := exiter(func(n int) { code = n }).handle
	_, err := actorstest.Call(actorstest.New(t), exits, exitMessage{})
	require.ErrorIs(t, err, errStillHere)
	require.Equal(t, 137, code)
	bad := 300
	_, err = actorstest.Call(actorstest.New(t), exits, exitMessage{Code: &bad})
	require.ErrorContains(t, err, "code (300)")
}

// A process that dies is a panic here: nothing after it runs.
type death struct{ code int }

func TestEffect(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	for _, crash := range []string{"", crashNone, crashBefore, crashAfter, crashAck} {
		id := redistest.Name(t)
		e := NewEffects(rdb, func(code int) { panic(death{code}) })
		x := actorstest.New(t, actorstest.ID(id))
		var (
			n   int64
			err error
		)
		call := func() { n, err = actorstest.Call(x, e.handle, effectMessage{Crash: crash}) }
		if crash == crashBefore || crash == crashAfter {
			require.PanicsWithValue(t, death{137}, call, crash)
		}
		call()
		require.NoError(t, err, crash)
		require.EqualValues(t, 1, n)
		committed := func() { err = e.Committed(t.Context(), actors.Commit{TaskID: id}) }
		if crash == crashAck {
			require.PanicsWithValue(t, death{137}, committed)
		}
		committed()
		require.NoError(t, err)
		require.Equal(t, "1", rdb.Get(t.Context(), "effect:"+id+":effect").Val(), crash)
	}
	e := NewEffects(rdb, nil)
	_, err := actorstest.Call(actorstest.New(t), e.handle, effectMessage{Crash: "maybe"})
	require.ErrorContains(t, err, `crash ("maybe")`)
}
