package acceptance

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
	"github.com/weir-run/weir/supervision"
)

// luaCall matches calls of one of Weir's scripts in each form that its adapter sends it in.
func luaCall(t *testing.T, file string) func(cmd []string) bool {
	t.Helper()
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", ".."}, path...)...))
		require.NoError(t, err)
		return string(b)
	}
	adapter, name, _ := strings.Cut(file, "/")
	var body, flagged string
	switch adapter {
	case "redisstate":
		body = strings.Replace(read("actors", adapter, name), "-- include task.lua\n", messages.TaskLua, 1)
		body = strings.Replace(read("actors", adapter, "batch.lua"), "-- include the script\n", body, 1)
		flagged = "#!lua flags=allow-oom\n" + body
	case "redisstream":
		body = messages.TaskLua + "\n" + read("streambridge", adapter, "stream.lua") + "\n"
		if name == "tick.lua" || name == "status.lua" {
			body += read("streambridge", adapter, "gate.lua")
		}
		body += read("streambridge", adapter, name)
		flagged = "#!lua flags=allow-oom\n" + body
	}
	shas := map[string]bool{}
	for _, text := range []string{body, flagged} {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
		shas[hex.EncodeToString(sum[:])] = true
	}
	return func(cmd []string) bool {
		if len(cmd) < 2 {
			return false
		}
		switch strings.ToUpper(cmd[0]) {
		case "EVALSHA", "EVALSHA_RO":
			return shas[strings.ToLower(cmd[1])]
		case "EVAL", "EVAL_RO":
			return cmd[1] == body || cmd[1] == flagged
		}
		return false
	}
}

// reading matches a read that brings something: the reply of one that waits in vain is no loss.
func reading(cmd []string) bool { return strings.EqualFold(cmd[0], "XREADGROUP") }

// With each script and command once, its reply is lost: Redis did it, nobody knows. Nothing is lost by that, and nobody is
// charged.
func TestALostReplyCostsNothing(t *testing.T) {
	for _, c := range []struct {
		name  string
		match func(t *testing.T) func(cmd []string) bool
		nth   []int64
	}{
		{"XREADGROUP", func(*testing.T) func([]string) bool { return reading }, []int64{2, 3}},
		{"begin", script("redisstate/begin.lua"), []int64{1, 5}},
		{"steps", script("redisstate/steps.lua"), []int64{1}},
		{"checkpoint", script("redisstate/checkpoint.lua"), []int64{1, 7}},
		{"commit", script("redisstate/commit.lua"), []int64{1, 7}},
		{"XACK", func(*testing.T) func([]string) bool { return redistest.Command("XACK") }, []int64{1, 3}},
		{"submit", script("redisstate/submit.lua"), []int64{1, 9}},
		{"join", script("redisstream/join.lua"), []int64{1}},
		{"tick", script("redisstream/tick.lua"), []int64{1, 3}},
		{"beat", script("redisstream/beat.lua"), []int64{2, 3}},
		{"bury", script("redisstream/bury.lua"), []int64{1}},
		{"move", script("redisstream/move.lua"), []int64{1}},
		{"release", script("redisstream/release.lua"), []int64{1, 2, 3}},
	} {
		for _, nth := range c.nth {
			t.Run(fmt.Sprintf("%s %d", c.name, nth), func(t *testing.T) {
				t.Parallel()
				loseOne(t, c.match(t), nth, c.name == "release" || c.name == "steps")
			})
		}
	}
}

func script(file string) func(t *testing.T) func(cmd []string) bool {
	return func(t *testing.T) func(cmd []string) bool { return luaCall(t, file) }
}

// ledgerAgents count what they do in Redis, past the proxy; their steps are keyed and can be looked up.
func (s *site) ledgerAgents(release <-chan struct{}) actors.Agents {
	find := func(ctx context.Context, key string) (int64, bool, error) {
		n, err := s.rdb.Get(ctx, "effect:"+key).Int64()
		if err != nil {
			n = 0
		}
		return n, n > 0, nil
	}
	return actors.Agents{
		"effects": actors.Func(func(c *actors.Context, _ actors.Raw) (int64, error) {
			var sum int64
			for i := range 3 {
				n, err := actors.Step(c, fmt.Sprint("s", i), func(sc actors.StepContext) (int64, error) {
					return s.rdb.Incr(sc, "effect:"+sc.Key).Result()
				}, actors.Verify(find))
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		}),
		"again": actors.Func(func(c *actors.Context, _ actors.Raw) (int64, error) {
			if c.Info().Attempt == 1 {
				return 0, actors.Retry(100*time.Millisecond, errors.New("once more"))
			}
			return int64(c.Info().Attempt), nil
		}),
		"slow": actors.Func(func(c *actors.Context, _ actors.Raw) (string, error) {
			first, err := actors.Step(c, "first", func(actors.StepContext) (string, error) { return "done", nil })
			if err != nil {
				return "", err
			}
			select {
			case <-release:
				return first, nil
			case <-c.Context().Done():
				return "", context.Cause(c.Context())
			}
		}),
		"rejects": actors.Func(func(*actors.Context, actors.Raw) (string, error) { return "", actors.Reject(errors.New("no")) }),
	}
}

// from matches what the n-th match of match does, counted from 1, and all that follow: the first one that the server knows
// the script of is lost.
func from(n int64, match func(cmd []string) bool) func(cmd []string) bool {
	var seen atomic.Int64
	return func(cmd []string) bool { return match(cmd) && seen.Add(1) >= n }
}

// node runs a node in this process until the test ends, and returns a function that drains it before. A start that fails,
// as it does where the reply of its first heartbeat is lost, is tried again, as whoever runs a process does.
func (s *site) node(rdb *redis.Client, consumer string, agents actors.Agents) (*supervision.Runtime, func()) {
	s.t.Helper()
	var rt *supervision.Runtime
	ended := make(chan error, 1)
	for starts := 1; ; starts++ {
		var err error
		rt, err = supervision.New(supervision.Config{
			Stream: redisstream.New(rdb), State: redisstate.New(rdb), Agents: agents,
			Names: actors.Names{Stream: s.stream, Group: s.group, Consumer: consumer},
			Lease: s.lease, Beat: s.lease / 5, Tick: s.lease / 5, Grace: 100 * time.Millisecond, Logger: hclog.NewNullLogger(),
		})
		require.NoError(s.t, err)
		go func() { ended <- rt.Run(context.Background()) }()
		failed := false
		s.await(waitLong, consumer+" is ready", func() bool {
			select {
			case err = <-ended:
				failed = true
			default:
			}
			return failed || rt.Ready() == nil
		})
		if !failed {
			break
		}
		require.Less(s.t, starts, 3, "%v", err)
		s.t.Logf("%s did not start: %v", consumer, err)
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(s.t, rt.Drain(ctx))
		require.NoError(s.t, <-ended)
	}
	s.t.Cleanup(stop)
	return rt, stop
}

func loseOne(t *testing.T, match func([]string) bool, nth int64, draining bool) {
	s := newSite(t, 1500*time.Millisecond)
	wire := redistest.StartProxy(t, s.srv.Addr())
	rdb := s.srv.NewClient(redistest.Via(wire))
	t.Cleanup(func() { rdb.Close() })
	release := make(chan struct{})
	agents := s.ledgerAgents(release)
	all := s.ledgerAgents(release)
	delete(agents, "rejects") // the first node moves these to the second
	lost := wire.LoseReply(from(nth, match))
	rt1, stop1 := s.node(rdb, "n1", agents)
	client := rt1.Client()
	submit := func(typ, id, payload string) *actors.Task {
		for {
			task, err := client.Submit(t.Context(), actors.NewTask{
				ID: id, Type: typ, Payload: actors.Raw{ContentType: "application/json", Bytes: []byte(payload)},
			})
			if err == nil {
				return task
			}
			require.NotErrorIs(t, err, actors.ErrConflict) // a lost reply: the same id again, as documented
		}
	}
	var tasks, slow []*actors.Task
	for _, id := range ids("e", 10) {
		tasks = append(tasks, submit("effects", id, `{}`))
	}
	for _, id := range ids("a", 3) {
		tasks = append(tasks, submit("again", id, `{}`))
	}
	for _, id := range ids("s", 5) {
		slow = append(slow, submit("slow", id, `{}`))
	}
	rejected := submit("rejects", "r", `{}`)
	require.NoError(t, s.rdb.XAdd(t.Context(), xadd(s.stream, "garbage", "in")).Err()) // buried undecoded
	rt2, _ := s.node(rdb, "n2", all)

	result := func(task *actors.Task) error {
		ctx, cancel := context.WithTimeout(t.Context(), waitLong)
		defer cancel()
		_, err := actors.Result[actors.Raw](ctx, task)
		return err
	}
	for _, task := range tasks {
		require.NoError(t, result(task), task.ID)
	}
	var failed *actors.TaskError
	require.ErrorAs(t, result(rejected), &failed)
	names := ids("s", 5)
	s.await(waitLong, "the slow ones run", func() bool { return allAre(s.states(names), "RUNNING") })
	// Some beats and ticks later n1 drains with work in its hands.
	if !draining { // some calls come with a drain, or after it
		select {
		case <-lost:
		case <-time.After(waitLong):
			t.Fatal("the reply was never lost: the script is not called, or its text is put together in another way")
		}
	}
	stop1()
	s.await(waitLong, "the slow ones run on n2", func() bool { return s.owned(names, rt2.Node().Incarnation) })
	select {
	case <-lost:
	case <-time.After(waitLong):
		t.Fatal("the reply was never lost")
	}
	close(release)
	for _, task := range slow {
		require.NoError(t, result(task), task.ID)
	}
	s.await(waitLong, "nothing is pending", func() bool { return s.pending() == 0 })

	for _, id := range ids("e", 10) {
		for i := range 3 {
			n, err := s.rdb.Get(t.Context(), fmt.Sprintf("effect:%s:s%d", id, i)).Int()
			require.NoError(t, err)
			require.Equal(t, 1, n, "effect %d of %s", i, id)
		}
	}
	everyone := append(ids("e", 10), names...)
	for _, class := range []string{"failures", "crashes", "timeouts", "deaths", "blamed"} {
		require.Zero(t, sum(s.fields(everyone, class)), "%s charged", class)
	}
	require.Equal(t, 3, sum(s.fields(ids("a", 3), "failures")), "one failure each that they asked for")
	interrupted := sum(s.fields(names, "interruptions"))
	require.LessOrEqual(t, interrupted, 5, "one drain interrupts each once")
	letters := tally(nil)
	for _, l := range s.letters() {
		letters[l.Reason]++
	}
	require.Equal(t, map[string]int{"undecodable": 1, "rejected": 1}, letters)
	t.Logf("lost 1 reply; effects once, nothing charged; interruptions %d of 5", interrupted)
}
