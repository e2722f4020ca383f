package redisstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// maxBundle is how many calls the server works off in one go, without a look at its other clients: a third of a millisecond
// for begins and commits of the plain kind, two or three for retries.
const maxBundle = 64

// call is one call of a script on its way.
type call struct {
	script *script
	keys   int      // how many of args are keys
	args   []string // keys, then arguments
	size   int      // bytes of args
	taken  atomic.Int32
	done   chan struct{} // gets one value with the reply
	reply  any
	err    error
}

const (
	callWaits = iota
	callSent
	callAbandoned
)

// calls are used again once their caller has the reply: each would otherwise be the largest piece of garbage of a task.
var calls = sync.Pool{New: func() any { return &call{args: make([]string, 0, 16), done: make(chan struct{}, 1)} }}

func newCall(s *script, keys, args []string) *call {
	c := calls.Get().(*call)
	c.script, c.keys = s, len(keys)
	c.args = append(append(c.args, keys...), args...)
	for _, a := range c.args {
		c.size += len(a)
	}
	return c
}

func (c *call) recycle() {
	clear(c.args)
	c.script, c.args, c.size, c.reply, c.err = nil, c.args[:0], 0, nil, nil
	c.taken.Store(callWaits)
	calls.Put(c)
}

func (c *call) finish(reply any, err error) {
	c.reply, c.err = reply, err
	c.done <- struct{}{}
}

// like orders calls so that those that can share a bundle stand together.
func (c *call) like(d *call) int {
	return cmp.Or(cmp.Compare(c.script.plain.sha, d.script.plain.sha), cmp.Compare(c.keys, d.keys))
}

// bundle is one run of batch.lua for calls of one script.
type bundle struct {
	*redis.Cmd
	calls []*call
}

// NoRetry tells go-redis not to send it a second time by itself: who called decides.
func (*bundle) NoRetry() bool { return true }

const firstKey = 3

func newBundle(ctx context.Context, calls []*call, flags, texts bool) *bundle {
	form := calls[0].script.form(flags)
	args := make([]any, 0, 4+len(calls)*(len(calls[0].args)+2))
	if texts {
		args = append(args, "eval", form.source)
	} else {
		args = append(args, "evalsha", form.sha)
	}
	args = append(args, len(calls)*calls[0].keys)
	for _, c := range calls {
		for i := range c.keys {
			args = append(args, &c.args[i]) // by address: a string in an interface is a piece of garbage
		}
	}
	args[firstKey] = calls[0].args[0] // where a cluster's client reads the slot
	args = append(args, len(calls))
	for _, c := range calls {
		args = append(args, len(c.args)-c.keys)
		for i := c.keys; i < len(c.args); i++ {
			args = append(args, &c.args[i])
		}
	}
	b := &bundle{redis.NewCmd(ctx, args...), calls}
	b.SetFirstKeyPos(firstKey)
	return b
}

// scriptError is what a call met on the server.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// RedisError makes it an error of the server's for go-redis, which so tells its code.
func (scriptError) RedisError() {}

// finish gives each call its reply; it returns false when the server does not know the script.
func (b *bundle) finish() bool {
	lists, err := b.Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	var replies, errs []any
	if err == nil && len(lists) == 2 {
		replies, errs = asList(lists[0]), asList(lists[1])
	}
	if err == nil && len(replies) != len(b.calls) {
		err = fmt.Errorf("%d replies to %d calls", len(replies), len(b.calls))
	}
	for i, c := range b.calls {
		switch {
		case err != nil:
			c.finish(nil, err)
		case len(errs) > 1 && errs[0] == int64(i+1):
			text, _ := errs[1].(string)
			c.finish(nil, scriptError(text))
			errs = errs[2:]
		default:
			c.finish(replies[i], nil)
		}
	}
	return true
}

// exec sends the calls, those of one script together, and returns those whose script the server does not know.
func (b *batcher) exec(ctx context.Context, batch []*call, flags, texts bool) (unknown []*call) {
	slices.SortStableFunc(batch, (*call).like)
	pipe := b.rdb.Pipeline()
	var bundles []*bundle
	for len(batch) > 0 {
		n := 1
		for n < min(len(batch), maxBundle) && batch[n].like(batch[0]) == 0 {
			n++
		}
		bundle := newBundle(ctx, batch[:n], flags, texts)
		_ = pipe.Process(ctx, bundle) // only queues
		bundles, batch = append(bundles, bundle), batch[n:]
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, bundle := range bundles {
		if !bundle.finish() {
			unknown = append(unknown, bundle.calls...)
		}
	}
	return unknown
}
