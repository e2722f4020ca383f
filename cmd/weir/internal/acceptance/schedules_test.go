package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

// scheduled is a schedule as `weir schedule list --json` shows it.
type scheduled struct {
	Name   string     `json:"name"`
	State  string     `json:"state"`
	When   string     `json:"when"`
	Next   *time.Time `json:"next"`
	Last   *time.Time `json:"last"`
	Fired  int64      `json:"fired"`
	Missed int64      `json:"missed"`
	Broken string     `json:"broken"`
}

func (s *site) schedules() map[string]scheduled {
	s.t.Helper()
	out, err := s.weir("schedule list", "--json")
	require.NoError(s.t, err)
	var list struct {
		Schedules []scheduled `json:"schedules"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(out), &list))
	all := map[string]scheduled{}
	for _, one := range list.Schedules {
		all[one.Name] = one
	}
	return all
}

// scheduleFile writes a file for `weir worker --schedules`.
func (s *site) scheduleFile(lines ...string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "schedules.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte("schedules:\n  - "+strings.Join(lines, "\n  - ")+"\n"), 0o600))
	return path
}

// effects lists the task ids whose effect happened, and how often.
func (s *site) effects() map[string]int64 {
	s.t.Helper()
	keys, err := s.rdb.Keys(s.t.Context(), "effect:*:effect").Result()
	require.NoError(s.t, err)
	all := map[string]int64{}
	for _, key := range keys {
		n, err := s.rdb.Get(s.t.Context(), key).Int64()
		require.NoError(s.t, err)
		all[messages.Unescape(strings.TrimSuffix(strings.TrimPrefix(key, "effect:"), ":effect"))] = n
	}
	return all
}

// Three nodes declare a tick each second; one of them is killed every few seconds, and the server once. Each tick has one
// task, and each task one effect.
func TestOneRunATickWhileProcessesDie(t *testing.T) {
	s := newSite(t, 2*time.Second, redistest.AOF("always"))
	file := s.scheduleFile(`{name: tick, cron: "* * * * * *", missed: all, task: {type: effect, payload: {crash: none}}}`)
	f := s.fleet(3, true, "--schedules", file)
	s.await(waitLong, "it ticks", func() bool { return s.schedules()["tick"].Fired > 0 })
	began, span := time.Now(), pick(15*time.Second, 60*time.Second)
	restarted := false
	for kill := 0; time.Since(began) < span; kill++ {
		time.Sleep(pick(2500*time.Millisecond, 5*time.Second))
		require.NoError(t, f.broken())
		if !restarted && time.Since(began) > span/2 {
			restarted = true
			require.NoError(t, s.srv.Kill())
			require.NoError(t, s.srv.Start())
		}
		require.NoError(t, f.kill(kill%3))
	}
	var stopped scheduled
	s.await(waitLong, "it is paused", func() bool {
		_, err := s.weir("schedule pause", "tick")
		return err == nil
	})
	stopped = s.schedules()["tick"]
	s.await(waitLong, "every tick's task has had its effect", func() bool { return len(s.effects()) == int(stopped.Fired) })
	var ids []string
	for id, n := range s.effects() {
		require.EqualValues(t, 1, n, "effects of %s", id)
		ids = append(ids, id)
	}
	s.await(waitLong, "each of them has succeeded", func() bool { return allAre(s.states(ids), "SUCCEEDED") })
	f.stop(t)

	slices.Sort(ids)
	first, err := time.Parse("tick@"+time.RFC3339, ids[0])
	require.NoError(t, err)
	for i, id := range ids {
		require.Equal(t, "tick@"+first.Add(time.Duration(i)*time.Second).Format(time.RFC3339), id, "tick %d", i)
	}
	require.GreaterOrEqual(t, len(ids), int(span/time.Second))
	require.Equal(t, stopped.Last.Format(time.RFC3339), strings.TrimPrefix(ids[len(ids)-1], "tick@"))
	// Whatever became of entries: so many were ever added to the public stream.
	info, err := s.rdb.XInfoStream(t.Context(), s.stream).Result()
	require.NoError(t, err)
	require.EqualValues(t, len(ids), info.EntriesAdded)
	require.Empty(t, s.letters())
	t.Logf("%d ticks in %v over %d process deaths and a kill of the server: one task and one effect each; %d tasks were running when their node died",
		len(ids), time.Since(began).Round(time.Second), f.count(), sum(s.fields(ids, "deaths")))
}

// Each deployment brings another pattern: only the last one is next, and only it fires.
func TestRedeploysThatChangeThePattern(t *testing.T) {
	s := newSite(t, 2*time.Second)
	deployments := pick(5, 20)
	var old *process
	for i := range deployments {
		p := s.worker(fmt.Sprint("v", i), "--schedules", s.scheduleFile(fmt.Sprintf(`{name: s, cron: "%d 3 1 1 *", task: {type: noop}}`, i)))
		s.await(waitLong, "it is declared", func() bool { return s.schedules()["s"].When == fmt.Sprintf("%d 3 1 1 *", i) })
		if old != nil {
			require.NoError(t, old.signal(os.Interrupt))
			<-old.gone
		}
		old = p
	}
	all := s.schedules()
	require.Len(t, all, 1)
	require.Equal(t, fmt.Sprintf("03:%02d", deployments-1), all["s"].Next.Format("15:04"))
	next, err := s.rdb.ZCard(t.Context(), s.keys(s.group).Schedules()).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, next)

	// The one before stays: the last start wins.
	s.worker("last", "--schedules", s.scheduleFile(`{name: s, cron: "* * * * * *", task: {type: noop}}`))
	s.await(waitLong, "the last pattern fires", func() bool { return s.schedules()["s"].Fired >= 3 })
	require.Equal(t, "* * * * * *", s.schedules()["s"].When)
}

// A weekly tick comes although its nodes were killed and started again around it.
func TestAWeeklyTickSurvivesRestarts(t *testing.T) {
	s := newSite(t, 2*time.Second)
	now, err := s.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	tick := now.UTC().Add(12 * time.Second).Truncate(time.Second)
	file := s.scheduleFile(fmt.Sprintf(`{name: weekly, cron: "%d %d %d * * %d", missed: one, task: {type: effect, payload: {crash: none}}}`,
		tick.Second(), tick.Minute(), tick.Hour(), tick.Weekday()))
	lives := 0
	for time.Now().Before(tick.Add(-2 * time.Second)) {
		lives++
		p := s.worker(fmt.Sprint("w", lives), "--schedules", file)
		s.await(waitLong, "it is declared", func() bool { return s.schedules()["weekly"].Next != nil })
		require.NoError(t, p.signal(os.Kill))
		<-p.gone
	}
	require.Equal(t, tick, *s.schedules()["weekly"].Next)
	time.Sleep(time.Until(tick.Add(2 * time.Second))) // nobody is up at its time
	s.worker("late", "--schedules", file)
	s.await(waitLong, "the task of the tick has run", func() bool { return s.effects()["weekly@"+tick.Format(time.RFC3339)] == 1 })
	after := s.schedules()["weekly"]
	require.Equal(t, tick.AddDate(0, 0, 7), *after.Next)
	require.EqualValues(t, 1, after.Fired)
	t.Logf("a weekly tick ran %v late after %d restarts", time.Since(tick).Round(100*time.Millisecond), lives)
}

// A broken zone among ten: nine fire, the worker is ready, and everybody can see which one is broken.
func TestABrokenScheduleAmongTen(t *testing.T) {
	s := newSite(t, 2*time.Second)
	lines := []string{`{name: broken, cron: "* * * * * *", zone: Europe/Atlantis, task: {type: noop}}`}
	for i := range 9 {
		lines = append(lines, fmt.Sprintf(`{name: good-%d, cron: "* * * * * *", zone: Europe/Berlin, task: {type: noop}}`, i))
	}
	p := s.worker("w1", "--schedules", s.scheduleFile(lines...), "--health", "127.0.0.1:0")
	health := watchHealth(t, p)
	s.await(waitLong, "nine fire", func() bool {
		firing := 0
		for _, one := range s.schedules() {
			if one.Fired >= 3 {
				firing++
			}
		}
		return firing == 9
	})
	s.await(waitLong, "it is ready", func() bool { ready, _ := health.ready(); return ready })
	require.Contains(t, s.schedules()["broken"].Broken, "Europe/Atlantis")
	require.Equal(t, 1, p.logged("a schedule cannot be used", "broken", "Europe/Atlantis"))
}
