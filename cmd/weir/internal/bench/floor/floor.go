package floor

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// The shape of V0. Frozen: see the package comment.
const (
	batch    = 128
	readers  = 2
	group    = "floor"
	taskType = "noop"
)

var (
	//go:embed begin.lua
	beginSource string
	//go:embed commit.lua
	commitSource string

	beginScript  = redis.NewScript(beginSource)
	commitScript = redis.NewScript(commitSource)
)

// cleanupTimeout bounds the removal of our keys after a run whose own context may be over.
const cleanupTimeout = 30 * time.Second

// Result is one drained run.
type Result struct {
	// Tasks that were begun, committed and acknowledged.
	Tasks int `json:"tasks"`
	// Elapsed is the time from the first read to the last acknowledgement; filling and cleaning are outside it.
	Elapsed time.Duration `json:"elapsed_ns"`
	// BytesPerTask is how much used_memory grew per task between the first read and the last acknowledgement:
	// the state that a finished task leaves behind, without its stream entry, which was there before. It means
	// something only on a Redis that nobody else writes to.
	BytesPerTask int64 `json:"bytes_per_task"`
}

// Rate is tasks a second, 0 for a run without time.
func (r Result) Rate() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Tasks) / r.Elapsed.Seconds()
}

// Run fills a stream of its own with n tasks, drains it and removes it again.
func Run(ctx context.Context, rdb redis.UniversalClient, n int, payload []byte) (Result, error) {
	stream := fmt.Sprintf("weir:floor:%d", time.Now().UnixNano())
	if err := Fill(ctx, rdb, stream, n, payload); err != nil {
		return Result{}, err
	}
	return Drain(ctx, rdb, stream, n)
}

// Fill adds n entries with the given payload to stream, which must not exist yet. On an error it removes
// what it had added.
func Fill(ctx context.Context, rdb redis.UniversalClient, stream string, n int, payload []byte) (err error) {
	if n < 1 {
		return fmt.Errorf("floor: n (%d) must be at least 1", n)
	}
	known, err := rdb.Exists(ctx, stream).Result()
	if err != nil {
		return fmt.Errorf("floor: look for stream %q: %w", stream, err)
	}
	if known > 0 {
		return fmt.Errorf("floor: stream %q exists already; the floor works on a stream of its own", stream)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clean(ctx, rdb, stream, n))
		}
	}()
	created := strconv.FormatInt(time.Now().UnixMilli(), 10)
	for from := 0; from < n; from += batch {
		pipe := rdb.Pipeline()
		for i := from; i < min(from+batch, n); i++ {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{
				"task_id", taskID(i), "type", taskType, "payload", payload, "created_at", created,
			}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return fmt.Errorf("floor: add %d entries to %q: %w", pipe.Len(), stream, err)
		}
	}
	return nil
}

// Drain begins, commits and acknowledges the n tasks that [Fill] left in stream, and then removes the
// stream and every task's hash, also when it fails. It is an error if not every one of the n tasks was
// committed and acknowledged exactly once.
func Drain(ctx context.Context, rdb redis.UniversalClient, stream string, n int) (res Result, err error) {
	defer func() { err = errors.Join(err, clean(ctx, rdb, stream, n)) }()
	if err := rdb.XGroupCreate(ctx, stream, group, "0").Err(); err != nil {
		return Result{}, fmt.Errorf("floor: create group on %q: %w", stream, err)
	}
	for _, s := range []*redis.Script{beginScript, commitScript} {
		// A pipelined EVALSHA does not recover from NOSCRIPT by itself.
		if err := s.Load(ctx, rdb).Err(); err != nil {
			return Result{}, fmt.Errorf("floor: load script: %w", err)
		}
	}

	before, err := usedMemory(ctx, rdb, stream)
	if err != nil {
		return Result{}, err
	}
	var acked atomic.Int64
	started := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for i := range readers {
		g.Go(func() error {
			r := reader{rdb: rdb, stream: stream, owner: "floor-" + strconv.Itoa(i)}
			return r.drain(gctx, &acked)
		})
	}
	if err := g.Wait(); err != nil {
		return Result{}, err
	}
	res = Result{Tasks: int(acked.Load()), Elapsed: time.Since(started)}
	if res.Tasks != n {
		return res, fmt.Errorf("floor: %d of %d tasks were committed and acknowledged", res.Tasks, n)
	}
	after, err := usedMemory(ctx, rdb, stream)
	if err != nil {
		return res, err
	}
	res.BytesPerTask = (after - before) / int64(n)
	return res, nil
}

// reader is one of the two loops. Its owner is also its consumer name.
type reader struct {
	rdb    redis.UniversalClient
	stream string
	owner  string
}

// drain ends when the stream holds nothing that was not delivered: everything was there before it began.
func (r reader) drain(ctx context.Context, acked *atomic.Int64) error {
	for {
		res, err := r.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: group, Consumer: r.owner, Streams: []string{r.stream, ">"},
			Count: batch, Block: -1, // −1: do not block at all
		}).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("floor: read up to %d entries: %w", batch, err)
		}
		n, err := r.work(ctx, res[0].Messages)
		if err != nil {
			return err
		}
		acked.Add(n)
	}
}

// work takes one batch through begin, commit and XACK, and says how many were acknowledged.
func (r reader) work(ctx context.Context, entries []redis.XMessage) (int64, error) {
	pipe := r.rdb.Pipeline()
	begun := make([]*redis.Cmd, len(entries))
	for i, e := range entries {
		begun[i] = beginScript.EvalSha(ctx, pipe, []string{taskKey(r.stream, field(e, "task_id"))},
			r.owner, field(e, "type"), field(e, "payload"), field(e, "created_at"))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("floor: begin %d tasks: %w", len(entries), err)
	}

	pipe = r.rdb.Pipeline()
	committed := make([]*redis.Cmd, len(entries))
	for i, e := range entries {
		answer, err := begun[i].Slice()
		if err != nil || len(answer) != 3 || answer[0] != "run" {
			return 0, fmt.Errorf("floor: begin of entry %s answered %v: %w", e.ID, answer, err)
		}
		committed[i] = commitScript.EvalSha(ctx, pipe, []string{taskKey(r.stream, field(e, "task_id"))},
			r.owner, answer[1], "SUCCEEDED", "")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("floor: commit %d tasks: %w", len(entries), err)
	}

	ids := make([]string, 0, len(entries))
	for i, e := range entries {
		if ok, err := committed[i].Bool(); err != nil || !ok {
			return 0, fmt.Errorf("floor: commit of entry %s was refused: %w", e.ID, err)
		}
		ids = append(ids, e.ID)
	}
	n, err := r.rdb.XAck(ctx, r.stream, group, ids...).Result()
	if err != nil {
		return 0, fmt.Errorf("floor: ack %d entries: %w", len(ids), err)
	}
	return n, nil
}

// usedMemory asks the node that holds stream.
func usedMemory(ctx context.Context, rdb redis.UniversalClient, stream string) (int64, error) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, stream)
		if err != nil {
			return 0, fmt.Errorf("floor: find the node of stream %q: %w", stream, err)
		}
		rdb = node
	}
	info, err := rdb.Info(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("floor: ask for memory: %w", err)
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errors.New("floor: INFO memory has no used_memory")
}

// clean removes the stream and the hashes of its n tasks, even when ctx is over.
func clean(ctx context.Context, rdb redis.UniversalClient, stream string, n int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	const chunk = 1000
	keys := append(make([]string, 0, chunk+1), stream)
	for i := range n {
		keys = append(keys, taskKey(stream, taskID(i)))
		if len(keys) >= chunk || i == n-1 {
			if err := rdb.Unlink(ctx, keys...).Err(); err != nil {
				return fmt.Errorf("floor: remove %d keys of %q: %w", len(keys), stream, err)
			}
			keys = keys[:0]
		}
	}
	return nil
}

func taskID(i int) string { return fmt.Sprintf("task-%08d", i) }

// taskKey tags the key with the stream's full name: a stream without braces hashes as a whole, so stream
// and hashes are in one slot and every command here works on a cluster.
func taskKey(stream, id string) string { return "{" + stream + "}:floor:task:" + id }

func field(e redis.XMessage, name string) string {
	s, _ := e.Values[name].(string)
	return s
}
