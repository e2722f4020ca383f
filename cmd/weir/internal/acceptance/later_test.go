package acceptance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// later is a task that is due at a time, by Redis's clock.
type later struct {
	id  string
	due int64 // ms
}

// submitLater submits tasks that are due one after the other over the span: by a delay, at a time, and as a producer's own
// entry that names its time, in turn. The server's own time counts for all of them.
func (s *site) submitLater(n int, from, span time.Duration) (all []later) {
	s.t.Helper()
	at := func(i int) time.Duration { return from + span*time.Duration(i)/time.Duration(n) }
	began, err := s.rdb.Time(s.t.Context()).Result()
	require.NoError(s.t, err)
	var lines strings.Builder
	enc := json.NewEncoder(&lines)
	raw := s.rdb.Pipeline()
	for i := range n {
		id := fmt.Sprint([]string{"delay-", "at-", "raw-"}[i%3], i)
		due := began.Add(at(i)).Truncate(time.Millisecond)
		t := map[string]any{"id": id, "type": "effect", "payload": map[string]string{"crash": "none"}}
		switch i % 3 {
		case 0:
			t["delay"] = at(i).String()
			require.NoError(s.t, enc.Encode(t))
		case 1:
			t["at"] = due.Format(time.RFC3339Nano)
			require.NoError(s.t, enc.Encode(t))
		default:
			raw.XAdd(s.t.Context(), xadd(s.stream, "task_id", id, "type", "effect", "payload", `{"crash":"none"}`, "due", strconv.FormatInt(due.UnixMilli(), 10)))
		}
		all = append(all, later{id, due.UnixMilli()})
	}
	file := s.t.TempDir() + "/later.jsonl"
	require.NoError(s.t, os.WriteFile(file, []byte(lines.String()), 0o600))
	_, err = s.weir("submit", "--file", file, "--max-backlog", "-1")
	require.NoError(s.t, err)
	_, err = raw.Exec(s.t.Context())
	require.NoError(s.t, err)
	// A delay counts from when the server got it.
	due, err := s.rdb.ZRangeWithScores(s.t.Context(), s.keys(s.group).Delayed(), 0, -1).Result()
	require.NoError(s.t, err)
	score := map[string]int64{}
	for _, z := range due {
		score[z.Member.(string)] = int64(z.Score)
	}
	for i := range all {
		switch ms := score[all[i].id+":"]; i % 3 {
		case 0:
			require.Greater(s.t, ms, all[i].due, "a delay from later on ends later")
			all[i].due = ms
		case 1:
			require.Equal(s.t, all[i].due, ms)
		}
	}
	return all
}

// Tasks that are due one after the other, while the nodes that should let them run are killed all the time, several at
// once, and no two of their clocks agree: each runs once, none early by the server's clock, none is lost.
func TestDelayedTasksRunOnceAndNeverEarly(t *testing.T) {
	s := newSite(t, pick(time.Second, 2*time.Second))
	count, span, kills := pick(600, 10_000), pick(8*time.Second, 60*time.Second), pick(20, 200)
	launch := s.launch
	weirBinary(t) // it takes a while
	if *full {
		skewedBinary(t)
		launch = func(name, consumer string, extra ...string) (*process, error) {
			return s.launchSkewed(name, consumer, []int{-120, 120, -7, 60}[rand.IntN(4)], extra...)
		}
	}
	all := s.submitLater(count, pick(2*time.Second, 5*time.Second), span)
	const places = 4
	f := s.fleetOf(places, true, launch)
	began := time.Now()
	end := began.Add(span + 2*time.Second)
	for round := 1; f.count() < kills; round++ {
		time.Sleep(max(100*time.Millisecond, time.Until(end)/time.Duration(kills-f.count())))
		require.NoError(t, f.broken())
		victims := f.running()
		if round%10 != 0 && len(victims) > 0 { // every tenth time nobody is left
			victims = []*process{victims[rand.IntN(len(victims))]}
		}
		for _, p := range victims {
			require.NoError(t, p.signal(os.Kill))
			<-p.gone
		}
		if round%20 == 0 {
			require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err())
		}
	}
	var names []string
	for _, l := range all {
		names = append(names, l.id)
	}
	s.await(waitLong, "all have run", func() bool { return allAre(s.states(names), "SUCCEEDED") })
	took := time.Since(began)
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
	f.stop(t)

	require.Empty(t, s.wrongEffects(names, 1), "effects that did not happen exactly once")
	require.Empty(t, s.letters())
	st, err := s.status()
	require.NoError(t, err)
	require.Equal(t, int64(count), st.States["SUCCEEDED"])
	require.Zero(t, st.States["SCHEDULED"]+st.Delayed+st.Due, "%+v", st)
	s.checkTimes(all)
	added := s.added()
	require.EqualValues(t, count, added, "entries that the public stream ever got: one a task")
	t.Logf("%d tasks due over %v, all done after %v, over %d process deaths; %d of them ran while their node died",
		count, span, took.Round(time.Millisecond), f.count(), len(names)-tally(s.fields(names, "deaths"))[""])
}

// checkTimes compares the first begin of each task with its time, both by the server's clock.
func (s *site) checkTimes(all []later) {
	s.t.Helper()
	var names []string
	for _, l := range all {
		names = append(names, l.id)
	}
	began, created := s.fields(names, "began"), s.fields(names, "created")
	var late []time.Duration
	early := 0
	for i, l := range all {
		first := began[i]
		if created[i] != "" {
			first = created[i] // it began more than once
		}
		ms, err := strconv.ParseInt(first, 10, 64)
		require.NoError(s.t, err, l.id)
		if ms < l.due {
			early++
			s.t.Errorf("%s began %d ms early", l.id, l.due-ms)
		}
		late = append(late, time.Duration(ms-l.due)*time.Millisecond)
	}
	require.Zero(s.t, early)
	slices.Sort(late)
	s.t.Logf("begun after their time: half of them %v, 99%% %v, all %v", late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
}

// added is how many entries the public stream was ever given.
func (s *site) added() int64 {
	s.t.Helper()
	info, err := s.rdb.XInfoStream(s.t.Context(), s.stream).Result()
	require.NoError(s.t, err)
	return info.EntriesAdded
}

// Retries that wait are held by nobody: the process that failed is gone, and whoever is there when they are due goes on.
func TestRetriesAreHeldByNoProcess(t *testing.T) {
	s := newSite(t, time.Second)
	count := pick(200, 5000)
	names := ids("f", count)
	var tasks []task
	for _, id := range names {
		tasks = append(tasks, task{ID: id, Type: "fail", Payload: map[string]int{"times": 1, "after_ms": 5000}})
	}
	first := s.worker("first")
	s.submit(tasks...)
	s.await(waitLong, "all wait for their retry", func() bool { return allAre(s.states(names), "RETRYING") })
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })
	due, err := s.rdb.ZCard(t.Context(), s.keys(s.group).Due()).Result()
	require.NoError(t, err)
	require.EqualValues(t, count, due)
	require.NoError(t, first.signal(os.Kill))
	<-first.gone
	require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err())
	s.worker("second")
	took := s.await(waitLong, "all have run again", func() bool { return allAre(s.states(names), "SUCCEEDED") })
	require.True(t, allAre(s.fields(names, "failures"), "1"))
	require.True(t, allAre(s.fields(names, "deaths"), ""), "none of them ran when its node died")
	t.Logf("%d retries outlived their process; the last of them was over %v after the next one was there", count, took.Round(time.Millisecond))
}
