package memstate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/memstate"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

// Redis is the judge: whatever nodes and clients do to schedules, memory answers the same, and the promise holds: a tick
// has at most one task, and what is next never goes back within a definition.
func TestSchedulesInMemoryAnswerAsRedisDoes(t *testing.T) {
	client := redistest.Shared(t).Client()
	rapid.Check(t, func(t *rapid.T) {
		server := memstream.NewServer()
		names := messages.Names{Stream: redistest.Name(tb{t})}.WithDefaults()
		states := []actors.State{memstate.New(server.Stream()), redisstate.New(client)}
		for _, s := range states {
			require.NoError(t, s.Bind(names))
		}
		defer func() {
			for _, s := range states {
				require.NoError(t, s.Close())
			}
		}()
		for range rapid.IntRange(1, 50).Draw(t, "moves") {
			what, do := drawSchedule(t)
			got := do(states[0].(actors.ScheduleDesk))
			require.Equal(t, do(states[1].(actors.ScheduleDesk)), got, "%s", what)
			require.Equal(t, showSchedules(t, states[1].(actors.ScheduleDesk)), showSchedules(t, states[0].(actors.ScheduleDesk)), "after %s", what)
		}
		entries, err := client.XRange(context.Background(), names.Stream, "-", "+").Result()
		require.NoError(t, err)
		seen := map[any]bool{}
		for _, e := range entries {
			id := e.Values["task_id"]
			require.False(t, seen[id], "%v was submitted twice", id)
			seen[id] = true
		}
	})
}

// Ticks are minutes of a past year, and one that is never reached.
func pastTick(n int) time.Time { return time.Date(2020, 1, 1, 0, n, 0, 0, time.UTC) }

func drawSchedule(t *rapid.T) (string, func(actors.ScheduleDesk) any) {
	ctx := context.Background()
	name := rapid.SampledFrom([]string{"a", "b:%"}).Draw(t, "name")
	hash := rapid.SampledFrom([]string{"h1", "h2"}).Draw(t, "hash")
	node := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "node")
	n := rapid.IntRange(0, 6).Draw(t, "tick")
	next := pastTick(n)
	switch rapid.IntRange(0, 9).Draw(t, "far") {
	case 0:
		next = time.Time{}
	case 1:
		next = time.Date(2120, 1, 1, 0, n, 0, 0, time.UTC)
	}
	kind := rapid.SampledFrom([]string{
		"declare", "declare", "add", "keep", "broken", "fire", "fire", "fire", "fire", "pass", "pause", "resume", "remove", "due",
	}).Draw(t, "move")
	runs := rapid.IntRange(1, 2).Draw(t, "runs")
	overlap := actors.ScheduleOverlap(rapid.IntRange(0, 2).Draw(t, "overlap"))
	full := rapid.IntRange(0, 9).Draw(t, "full") == 0
	guess := rapid.IntRange(0, 3).Draw(t, "guess") == 0
	what := fmt.Sprint(kind, " ", name, " ", hash, " ", node, " ", n)
	return what, func(d actors.ScheduleDesk) any {
		hash, runs := hash, runs // each side's own
		decl := actors.ScheduleDeclaration{
			Name: name, Definition: []byte("definition " + hash), Hash: hash, Next: next, InCode: kind != "add",
			Start: kind == "declare" || kind == "broken", TTL: time.Hour,
		}
		switch kind {
		case "broken":
			decl.Definition, decl.Hash, decl.Broken = nil, "", "no such zone"
			fallthrough
		case "declare", "add", "keep":
			got, err := d.DeclareSchedule(ctx, decl)
			return fmt.Sprint(got, failure(err))
		case "fire", "pass":
			tick := pastTick(n)
			list, err := d.Schedules(ctx, name)
			require.NoError(t, err)
			if !guess && len(list.Schedules) == 1 {
				tick, hash = list.Schedules[0].Next, list.Schedules[0].Hash
			}
			f := actors.ScheduleFire{
				Name: name, Hash: hash, Tick: tick, Next: tick.Add(time.Duration(runs) * time.Minute), Incarnation: node,
				Overlap: overlap, TTL: time.Hour,
			}
			if next.IsZero() {
				f.Next = next
			}
			if kind == "pass" {
				f.Vetoed, f.Missed, f.Why = int64(n%2), int64(n), "why"
				runs = 0
			}
			for i := range runs {
				at := tick.Add(time.Duration(i) * time.Minute)
				f.Runs = append(f.Runs, actors.ScheduleRun{Tick: at, Task: actors.Submission{
					ID: name + "@" + at.Format(time.RFC3339), Fields: []messages.Pair{
						{Name: "task_id", Value: name + "@" + at.Format(time.RFC3339)}, {Name: "type", Value: "x"},
					},
				}})
				if full {
					f.Runs[0].Task.MaxLen = 1
				}
			}
			got, err := d.FireSchedule(ctx, f)
			again, err2 := d.FireSchedule(ctx, f)
			require.NoError(t, err2)
			require.Equal(t, got, again, "repeated")
			return fmt.Sprintf("%+v %s", got, failure(err))
		case "pause":
			return failure(d.PauseSchedule(ctx, name))
		case "resume":
			return failure(d.ResumeSchedule(ctx, name, hash, next))
		case "remove":
			code, err := d.RemoveSchedule(ctx, name)
			return fmt.Sprint(code, failure(err))
		default:
			due, err := d.DueSchedules(ctx, actors.ScheduleQuery{Hashes: []string{hash}, Limit: runs})
			due.Now = time.Time{}
			return fmt.Sprintf("%+v %s", due, failure(err))
		}
	}
}

func showSchedules(t *rapid.T, d actors.ScheduleDesk) string {
	list, err := d.Schedules(context.Background())
	require.NoError(t, err)
	list.Now = time.Time{}
	for i := range list.Schedules {
		list.Schedules[i].Declared = time.Time{}
	}
	return fmt.Sprintf("%+v", list)
}
