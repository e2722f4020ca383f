package redisstate

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxBundle is how many calls the server works off in one go, without a look at its other clients: a third of a millisecond
// for begins and commits of the plain kind, two or three for retries.
const maxBundle = 64

// call is one call of a script on its way. It is its lane's, unless it waits or flies: then it is the sweeper's too.
type call struct {
	script *script
	keys   int             // how many of args are keys
	args   []string        // keys, then arguments
	size   int             // bytes of args
	ctx    context.Context // of who waits
	sweeps int             // that it has seen
	swept  bool            // who waits was told so; the server's reply is nobody's
	done   chan struct{}   // gets one value with the reply
	reply  any
	err    error
}

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
	*c = call{args: c.args[:0], done: c.done}
	calls.Put(c)
}

// finish answers the call, unless a sweep has.
func (c *call) finish(reply any, err error) {
	if !c.swept {
		c.reply, c.err = reply, err
		c.done <- struct{}{}
	}
}

// sweep answers a call whose caller has given up, or that has waited too long. It says whether that was done, ever.
func (c *call) sweep() bool {
	c.sweeps++
	err := context.Cause(c.ctx)
	if err == nil && c.sweeps > int(replyTimeout/sweepEvery) {
		err = errNoReply
	}
	if err != nil && !c.swept {
		c.swept, c.err = true, err
		c.done <- struct{}{}
	}
	return c.swept
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

// bundle makes the command for calls of one script.
func (l *lane) bundle(ctx context.Context, calls []*call, flags, texts bool) *bundle {
	form, keys, from := calls[0].script.form(flags), calls[0].keys, len(l.args)
	if texts {
		l.args = append(l.args, "eval", form.source)
	} else {
		l.args = append(l.args, "evalsha", form.sha)
	}
	l.args = append(l.args, len(calls)*keys)
	for _, c := range calls {
		for i := range c.args[:keys] {
			l.args = append(l.args, &c.args[i]) // by address: a string in an interface is a piece of garbage
		}
	}
	l.args[from+firstKey] = calls[0].args[0] // where a cluster's client reads the slot
	l.args = append(l.args, len(calls))
	for _, c := range calls {
		l.args = append(l.args, len(c.args)-keys)
		for i := keys; i < len(c.args); i++ {
			l.args = append(l.args, &c.args[i])
		}
	}
	b := &bundle{redis.NewCmd(ctx, l.args[from:]...), calls}
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

// exec sends the calls, neighbours of one script together, and returns those whose script the server does not know. The
// sweeper may look at the same slice: its order stays.
func (l *lane) exec(ctx context.Context, batch []*call, flags, texts bool) (unknown []*call) {
	pipe := l.rdb.Pipeline()
	var bundles []*bundle
	for len(batch) > 0 {
		n := 1
		for n < min(len(batch), maxBundle) && batch[n].like(batch[0]) == 0 {
			n++
		}
		bundle := l.bundle(ctx, batch[:n], flags, texts)
		_ = pipe.Process(ctx, bundle) // only queues
		bundles, batch = append(bundles, bundle), batch[n:]
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	l.fly(nil)
	clear(l.args) // a lane that rests holds on to nobody's results
	l.args = l.args[:0]
	for _, bundle := range bundles {
		if !bundle.finish() {
			unknown = append(unknown, bundle.calls...)
		}
	}
	return unknown
}
