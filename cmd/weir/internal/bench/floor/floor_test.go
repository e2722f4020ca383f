package floor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/weir-run/weir/streambridge/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFrozen(t *testing.T) {
	// The floor is never tuned. If this fails, put it back as it was; a better floor is a package of its own.
	for source, want := range map[string]string{
		beginSource:  "7077442297924d076ac16f20447be049abe2447e7385e01112e0b502d287efa1",
		commitSource: "d629caa0e0eac6433726a98abeb8fabb19714a1d0d56bc71c75d3f57c845e9ab",
	} {
		sum := sha256.Sum256([]byte(source))
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("a frozen script changed: sha256 %s, was %s:\n%s", got, want, source)
		}
	}
	if batch != 128 || readers != 2 {
		t.Errorf("batch %d and readers %d are frozen at 128 and 2", batch, readers)
	}
}

func TestRunDrainsEveryTaskAndLeavesNothing(t *testing.T) {
	rdb := redistest.Start(t).Client() // its memory is looked at
	const n = 10_007                   // not a multiple of the batch, so that the last one is short
	res, err := Run(t.Context(), rdb, n, bytes.Repeat([]byte{'x'}, 200))
	if err != nil {
		t.Fatal(err)
	}
	if res.Tasks != n || res.Elapsed <= 0 || res.Rate() <= 0 {
		t.Errorf("a run of %d tasks gave %+v", n, res)
	}
	// 1,079 B was measured over a long run; connections and hash tables that grow by doubling blur a short one.
	if res.BytesPerTask < 900 || res.BytesPerTask > 1300 {
		t.Errorf("%d bytes a task, want about 1,079", res.BytesPerTask)
	}
	wantEmpty(t, rdb)
}

func TestWorkCommitsBeforeItAcknowledges(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	payload := make([]byte, 256) // every byte value survives the copy
	for i := range payload {
		payload[i] = byte(i)
	}
	must(t, Fill(ctx, rdb, "s", 3, payload))
	must(t, rdb.XGroupCreate(ctx, "s", group, "0").Err())
	for _, s := range []*redis.Script{beginScript, commitScript} {
		must(t, s.Load(ctx, rdb).Err())
	}
	r := reader{rdb: rdb, stream: "s", owner: "o"}
	res, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: r.owner, Streams: []string{"s", ">"}, Count: 2, Block: -1,
	}).Result()
	must(t, err)
	n, err := r.work(ctx, res[0].Messages)
	must(t, err)
	if n != 2 {
		t.Errorf("%d acknowledged, want 2", n)
	}

	h := rdb.HGetAll(ctx, taskKey("s", taskID(0))).Val()
	for field, want := range map[string]string{
		"state": "SUCCEEDED", "owner": "o", "fence": "1", "attempts": "1", "type": taskType, "payload": string(payload),
	} {
		if h[field] != want {
			t.Errorf("%s = %q, want %q", field, h[field], want)
		}
	}
	if h["created"] == "" || h["updated"] == "" {
		t.Errorf("created %q and updated %q must be set", h["created"], h["updated"])
	}
	if p := rdb.XPending(ctx, "s", group).Val(); p.Count != 0 {
		t.Errorf("%d entries pending, want 0", p.Count)
	}
	if rdb.Exists(ctx, taskKey("s", taskID(2))).Val() != 0 {
		t.Error("the third task was begun without having been read")
	}

	// A finished task is not begun again: the batch fails loudly, it does not count twice.
	if _, err = r.work(ctx, res[0].Messages); err == nil || !strings.Contains(err.Error(), "done") {
		t.Errorf("the same batch again: %v, want an error that says done", err)
	}
}

func TestCommitRefusesAStaleFence(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	key := []string{taskKey("s", "a")}
	begin := func(owner string) any {
		answer, err := beginScript.Run(ctx, rdb, key, owner, taskType, "p", "1").Slice()
		must(t, err)
		if answer[0] != "run" {
			t.Fatalf("begin answered %v", answer)
		}
		return answer[1]
	}
	commit := func(owner string, fence any, want bool) {
		t.Helper()
		ok, err := commitScript.Run(ctx, rdb, key, owner, fence, "SUCCEEDED", "r").Bool()
		must(t, err)
		if ok != want {
			t.Errorf("commit by %s with fence %v: %v, want %v", owner, fence, ok, want)
		}
	}
	old := begin("first")
	fresh := begin("second")
	commit("first", old, false)   // it lost the task
	commit("first", fresh, false) // a fence belongs to its owner
	if s := rdb.HGet(ctx, key[0], "state").Val(); s != "RUNNING" {
		t.Errorf("state %s after refused commits, want RUNNING", s)
	}
	commit("second", fresh, true)
	if r := rdb.HGet(ctx, key[0], "result").Val(); r != "r" {
		t.Errorf("result %q, want r", r)
	}
}

func TestFailuresCleanUp(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	must(t, rdb.Set(ctx, "mine", "1", 0).Err())
	wantErr(t, Fill(ctx, rdb, "mine", 10, nil), "exists already")
	wantErr(t, Fill(ctx, rdb, "s", 0, nil), "at least 1")
	if rdb.GetDel(ctx, "mine").Val() != "1" {
		t.Error("what was there before is not the floor's to remove")
	}

	must(t, Fill(ctx, rdb, "s", 300, []byte("x")))
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Drain(over, rdb, "s", 300); !errors.Is(err, context.Canceled) {
		t.Errorf("drain without time: %v, want %v", err, context.Canceled)
	}
	wantEmpty(t, rdb)

	// More tasks promised than the stream holds: an honest count instead of a rate.
	must(t, Fill(ctx, rdb, "s", 5, []byte("x")))
	_, err := Drain(ctx, rdb, "s", 6)
	wantErr(t, err, "5 of 6")
	wantEmpty(t, rdb)
}

func TestWake(t *testing.T) {
	rdb := redistest.Start(t).Client()
	lat, err := Wake(t.Context(), rdb, 50)
	must(t, err)
	if lat.N != 50 || lat.P50 <= 0 || lat.P50 > lat.P99 || lat.P99 > lat.Max {
		t.Errorf("50 wakes gave %+v", lat)
	}
	wantEmpty(t, rdb)

	_, err = Wake(t.Context(), rdb, 0)
	wantErr(t, err, "at least 1")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = Wake(over, rdb, 5); !errors.Is(err, context.Canceled) {
		t.Errorf("wake without time: %v, want %v", err, context.Canceled)
	}
}

func TestSummarize(t *testing.T) {
	var hundred []time.Duration
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	for _, tc := range []struct {
		samples []time.Duration
		want    Latency
	}{
		{nil, Latency{}},
		{[]time.Duration{7}, Latency{N: 1, P50: 7, P90: 7, P99: 7, Max: 7}},
		{hundred, Latency{N: 100, P50: 50, P90: 90, P99: 99, Max: 100}},
	} {
		if got := Summarize(tc.samples); got != tc.want {
			t.Errorf("%d samples gave %+v, want %+v", len(tc.samples), got, tc.want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want one that says %q", err, part)
	}
}

func wantEmpty(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	must(t, err)
	if len(keys) > 0 {
		t.Errorf("%d keys left, the first is %q", len(keys), keys[0])
	}
}
