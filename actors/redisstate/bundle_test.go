package redisstate

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/redistest"
)

// odd answers in every way that a script can.
const odd = `
local what = ARGV[1]
redis.call('SET', KEYS[1], what)
if what == 'own' then return {KEYS[1], KEYS[2], #KEYS, ARGV[2] or 'none', #ARGV} end
if what == 'nothing' then return end
if what == 'false' then return false end
if what == 'true' then return true end
if what == 'list' then return {1, {'2'}, 'three'} end
if what == 'status' then return redis.status_reply('FINE') end
if what == 'returned' then return redis.error_reply('SORRY no') end
if what == 'met' then return redis.call('HGET', KEYS[1], 'x') end
if what == 'raised' then error({err = 'SORRY no'}) end
if what == 'full' then error({err = 'OOM no'}) end
if what == 'refused' then return redis.error_reply('NOPERM no') end
if what == 'text' then error('WRONGTYPE as before 7.0', 0) end -- as redis.call raises it there
if what == 'broken' then return nothing.there end
return redis.call('GET', KEYS[1])
`

// What a call is answered with is what the script would answer alone.
func TestBundledRepliesAreEachCallsOwn(t *testing.T) {
	srv := redistest.Shared(t)
	lane := &lane{batcher: &New(srv.Client()).batch}
	sc := newScript(odd, "")
	name := redistest.Name(t)
	want := []struct {
		args  []string
		reply any
		err   string
	}{
		{[]string{"own"}, []any{name + "0", "{x}", int64(2), "none", int64(1)}, ""},
		{[]string{"own", "a", ""}, []any{name + "1", "{x}", int64(2), "a", int64(3)}, ""},
		{[]string{"nothing"}, nil, ""},
		{[]string{"false"}, nil, ""},
		{[]string{"true"}, int64(1), ""},
		{[]string{"list"}, []any{int64(1), []any{"2"}, "three"}, ""},
		{[]string{"status"}, "FINE", ""},
		{[]string{"returned"}, nil, "SORRY no"},
		{[]string{"met"}, nil, "WRONGTYPE Operation against"},
		{[]string{"raised"}, nil, "SORRY no"},
		{[]string{"full"}, nil, "OOM no"}, // go-redis has types of its own for these two
		{[]string{"refused"}, nil, "NOPERM no"},
		{[]string{"text"}, nil, "WRONGTYPE as before 7.0"},
		{[]string{"broken"}, nil, "ERR user_script:"},
		{strings.Split("many"+strings.Repeat(",x", 9000), ","), nil, "too many results to unpack"},
		{[]string{"last"}, "last", ""},
	}
	for _, flags := range []bool{false, true} {
		var all []*call
		for i, w := range want {
			all = append(all, newCall(sc, []string{fmt.Sprint(name, i), "{x}"}, w.args))
		}
		require.Empty(t, lane.exec(t.Context(), slices.Clone(all), flags, true))
		for i, w := range want {
			<-all[i].done
			if w.err == "" {
				require.NoError(t, all[i].err, "%.20q", w.args)
				require.Equal(t, w.reply, all[i].reply, "%.20q", w.args)
				continue
			}
			require.ErrorContains(t, all[i].err, w.err, "%.20q", w.args)
			require.True(t, isReply(all[i].err))
			require.Regexp(t, `^[A-Z]+ `, all[i].err.Error(), "a code stands in front")
		}
	}
}

// Calls are sorted by their scripts, keep their order within, and are not too many for one run.
func TestCallsAreBundled(t *testing.T) {
	rdb := redistest.Shared(t).NewClient()
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	lane := &lane{batcher: &New(rdb).batch}
	push := newScript("return redis.call('RPUSH', KEYS[1], ARGV[1])", "")
	two := newScript("return redis.call('RPUSH', KEYS[2], ARGV[1])", "")
	name := redistest.Name(t)
	a, b := name+"{x}a", name+"{x}b"
	seen := &watch{}
	rdb.AddHook(seen)
	const n = 2*maxBundle + 10
	var all []*call
	for i := range n {
		all = append(all, newCall(push, []string{a}, []string{fmt.Sprint(i)}))
		if i < 5 {
			all = append(all, newCall(two, []string{a, b}, []string{fmt.Sprint(i)}), newCall(push, []string{a, b}, []string{fmt.Sprint(n + i)}))
		}
	}
	slices.SortStableFunc(all, (*call).like) // as a lane takes them
	require.Empty(t, lane.exec(t.Context(), all, false, true))
	require.Equal(t, 5, seen.longest, "three runs with one key, one with two, one of the other script")
	got, err := rdb.LRange(t.Context(), a, 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, got, n+5)
	for i := range n {
		require.Equal(t, fmt.Sprint(i), got[i])
	}
	got, err = rdb.LRange(t.Context(), b, 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, got)
	for _, c := range all {
		<-c.done
		require.NoError(t, c.err)
	}
}

// All calls of one run see one time.
func TestOneTimeForABundle(t *testing.T) {
	srv := redistest.Shared(t)
	lane := &lane{batcher: &New(srv.Client()).batch}
	sc := newScript("local from = stamp()\nfor i = 1, 20000 do redis.call('PING') end\nreturn {from, stamp()}", "")
	all := []*call{newCall(sc, []string{"a"}, nil), newCall(sc, []string{"a"}, nil)}
	require.Empty(t, lane.exec(t.Context(), all, false, true))
	first := all[0].reply
	require.Regexp(t, `^1[0-9]{12}$`, asList(first)[0])
	require.Equal(t, asList(first)[0], asList(first)[1])
	require.Equal(t, first, all[1].reply)
}

// A script's own names from before the functions of task.lua must not be theirs: it would go on with a function.
func TestScriptsKeepTheirNames(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^local (?:function )?([a-z_, ]+)`)
	names := func(lua string) (all []string) {
		for _, m := range declared.FindAllStringSubmatch(lua, -1) {
			all = append(all, strings.Split(strings.TrimSpace(m[1]), ", ")...)
		}
		return all
	}
	theirs := names(messages.TaskLua)
	require.Contains(t, theirs, "now_ms")
	files, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		before, _, _ := strings.Cut(string(text), includeTask)
		for _, name := range append(names(before), names(batchLua)...) {
			if strings.Contains(string(text), includeTask) {
				require.NotContains(t, theirs, name, file)
			}
		}
	}
}

// A master that became a replica is left: its address may lead to the new master by now.
func TestAReplicaIsLeft(t *testing.T) {
	srv := redistest.Start(t)
	w := newWorld(t, srv.Client())
	rdb := srv.NewClient(func(o *redis.Options) { o.PoolSize = 1 })
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := w.state(t, rdb)
	ctx := t.Context()
	connection := func() int64 {
		pipe := rdb.Pipeline() // pipelines have connections of their own
		id := pipe.ClientID(ctx)
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
		return id.Val()
	}
	req, b := begun(t, w, s, "a")
	next := request(t, w, "b")
	require.NoError(t, srv.Client().ReplicaOf(ctx, "127.0.0.1", "1").Err())
	for what, call := range map[string]func() error{
		"begin":  func() error { _, err := s.Begin(ctx, next); return err },
		"commit": func() error { return s.Commit(ctx, completion(req, b, "ok")) },
	} {
		before := connection()
		err := call()
		require.True(t, redis.HasErrorPrefix(err, "READONLY"), "%s: %v", what, err)
		require.Greater(t, connection(), before, what)
	}
	require.NoError(t, srv.Client().ReplicaOf(ctx, "NO", "ONE").Err())
	require.NoError(t, s.Commit(ctx, completion(req, b, "ok")))
	_, err := s.Begin(ctx, next)
	require.NoError(t, err)
}
