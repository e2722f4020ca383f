package statetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

// hourly allows one token in so many minutes: no test lasts until the next one.
func hourly(tokens, burst int) actors.Rate {
	return actors.Rate{Tokens: tokens, Per: time.Hour, Burst: burst}
}

// taker is an effect that takes of buckets.
type taker struct {
	*rig
	actors.Taking
}

func (r *rig) taker(effect string, run uint64, from ...actors.Tokens) taker {
	return taker{r, actors.Taking{Effect: effect, Run: run, From: from}}
}

func (k taker) take() time.Duration {
	k.t.Helper()
	wait, err := k.State.Take(k.t.Context(), k.Taking)
	require.NoError(k.t, err)
	return wait
}

// about is how exactly a wait can be said while the test runs.
const about = 20 * time.Second

func (r *rig) near(want, got time.Duration) {
	r.t.Helper()
	require.InDelta(r.t, want.Minutes(), got.Minutes(), about.Minutes())
}

var quotaCases = map[string]func(*testing.T, *rig){
	"after its burst a bucket gives one token at a time, and to each who waits a turn of its own": func(t *testing.T, r *rig) {
		b := actors.Tokens{Bucket: "b{}:%", N: 1, Rate: hourly(60, 3)}
		for i := range 3 {
			require.Zero(t, r.taker(fmt.Sprint("e", i), 1, b).take())
		}
		step := time.Duration(b.Rate.Step() * float64(time.Millisecond))
		for i := range 5 {
			r.near(time.Duration(i+1)*step, r.taker(fmt.Sprint("late", i), 1, b).take())
		}
		r.near(2*step, r.taker("late1", 1, b).take())
		r.near(2*step, r.taker("late1", 7, b).take()) // the place is the effect's, whatever activation asks
	},
	"asked again, what was taken is not taken twice": func(t *testing.T, r *rig) {
		b := actors.Tokens{Bucket: "b", N: 1, Rate: hourly(60, 2)}
		for range 3 {
			require.Zero(t, r.taker("e", 1, b).take(), "the same run: a lost reply")
		}
		require.Zero(t, r.taker("e", 2, b).take(), "another run takes another token")
		require.NotZero(t, r.taker("e", 3, b).take())
		require.Zero(t, r.taker("e", 2, b).take())
	},
	"who takes many waits for many, and others after it": func(t *testing.T, r *rig) {
		many, one := actors.Tokens{Bucket: "b", N: 10, Rate: hourly(60, 5)}, actors.Tokens{Bucket: "b", N: 1, Rate: hourly(60, 5)}
		require.Zero(t, r.taker("big", 1, many).take(), "more than the burst goes when the bucket is full")
		step := time.Duration(one.Rate.Step() * float64(time.Millisecond))
		r.near(6*step, r.taker("small", 1, one).take())
		r.near(16*step-5*step, r.taker("big2", 1, actors.Tokens{Bucket: "b", N: 5, Rate: one.Rate}).take())
	},
	"a place in the line comes true": func(t *testing.T, r *rig) {
		b := actors.Tokens{Bucket: "b", N: 1, Rate: actors.Rate{Tokens: 20, Per: time.Second}}
		require.Zero(t, r.taker("first", 1, b).take())
		began := time.Now()
		var waits []time.Duration
		for i := range 10 {
			waits = append(waits, r.taker(fmt.Sprint(i), 1, b).take())
		}
		require.True(t, slices.IsSorted(waits))
		for i, wait := range waits {
			k := r.taker(fmt.Sprint(i), 2, b)
			for time.Since(began) < wait {
				<-time.After(time.Millisecond)
			}
			for left := k.take(); left > 0; left = k.take() {
				<-time.After(left)
			}
		}
		require.GreaterOrEqual(t, time.Since(began), 10*50*time.Millisecond)
	},
	"who comes late goes at once, a crowd of them does not": func(t *testing.T, r *rig) {
		b := actors.Tokens{Bucket: "b", N: 1, Rate: actors.Rate{Tokens: 5, Per: 500 * time.Millisecond}}
		require.Zero(t, r.taker("first", 1, b).take())
		for i := range 5 {
			require.NotZero(t, r.taker(fmt.Sprint(i), 1, b).take())
		}
		<-time.After(700 * time.Millisecond) // everybody's turn is over
		began := time.Now()
		atOnce := 0
		for i := range 5 {
			if r.taker(fmt.Sprint(i), 2, b).take() == 0 {
				atOnce++
			}
		}
		require.Positive(t, atOnce)
		require.LessOrEqual(t, atOnce, 2+int(time.Since(began)/(100*time.Millisecond)))
	},
	"buckets are taken from together or not at all": func(t *testing.T, r *rig) {
		calls, words := actors.Tokens{Bucket: "calls", N: 1, Rate: hourly(60, 2)}, actors.Tokens{Bucket: "words", N: 100, Rate: hourly(600, 100)}
		require.Zero(t, r.taker("a", 1, calls, words).take())
		step := time.Duration(words.Rate.Step() * float64(time.Millisecond))
		r.near(100*step, r.taker("b", 1, calls, words).take())
		r.near(100*step, r.taker("b", 1, calls, words).take())
		require.NotZero(t, r.taker("c", 1, calls).take(), "b has the place of the second call")
	},
	"a provider that asks for a pause gets it from everybody": func(t *testing.T, r *rig) {
		b := actors.Tokens{Bucket: "b", N: 1, Rate: hourly(60, 10)}
		step := time.Duration(b.Rate.Step() * float64(time.Millisecond))
		require.Zero(t, r.taker("a", 1, b).take())
		from := []actors.Tokens{b, {Bucket: "other", N: 1, Rate: b.Rate}}
		require.NoError(t, r.Other.Quiet(t.Context(), from, time.Hour))
		require.NoError(t, r.State.Quiet(t.Context(), from, time.Minute), "the longest holds")
		r.near(time.Hour, r.taker("c", 1, b).take())
		r.near(time.Hour+step, r.taker("d", 1, b).take())
		r.near(time.Hour, r.taker("c", 1, b).take())
		r.near(time.Hour, r.taker("e", 1, from[1]).take())
		<-time.After(2 * time.Millisecond)
		require.NoError(t, r.State.Quiet(t.Context(), from, time.Hour), "another node heard of it a moment later")
		r.near(time.Hour, r.taker("c", 1, b).take())
		r.near(time.Hour+step, r.taker("d", 1, b).take())
		require.NoError(t, r.State.Quiet(t.Context(), from, 2*time.Hour))
		r.near(2*time.Hour, r.taker("c", 1, b).take())
		require.NoError(t, r.State.Quiet(t.Context(), nil, time.Hour))
	},
	"nodes that ask at once get turns of their own": func(t *testing.T, r *rig) {
		b := actors.Tokens{Bucket: "b", N: 1, Rate: hourly(60, 1)}
		var mu sync.Mutex
		var all sync.WaitGroup
		var waits []time.Duration
		for i := range 40 {
			all.Go(func() {
				store := r.State
				if i%2 == 1 {
					store = r.Other
				}
				wait, err := store.Take(t.Context(), actors.Taking{Effect: fmt.Sprint(i), Run: 1, From: []actors.Tokens{b}})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				waits = append(waits, wait)
			})
		}
		all.Wait()
		slices.Sort(waits)
		require.Zero(t, waits[0])
		step := time.Duration(b.Rate.Step() * float64(time.Millisecond))
		for i, wait := range waits {
			r.near(time.Duration(i)*step, wait)
		}
	},
}
