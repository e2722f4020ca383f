package streambridge

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
)

// buryBatch is how many dead letters one call asks for at most: each is a script that carries the entry's bytes.
const buryBatch = 64

// errand is a dead letter to write, or an entry to give to the nodes of another agent.
type errand struct {
	letter *Burial
	agent  string
	held   Held
}

// burier sets entries aside and moves them, and tries until it is done. Until then they stay pending with us.
type burier struct {
	stream  Stream
	box     *outbox[errand]
	post    func(event)
	monitor *monitor
	timeout time.Duration
}

func (b *burier) run(ctx context.Context) {
	wait := newBackoff()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.box.some:
		}
		for more := true; more; {
			failed := b.batch(ctx, b.box.take(buryBatch))
			more = b.box.back(failed...)
			switch {
			case ctx.Err() != nil:
				return
			case len(failed) > 0 && !wait.pause(ctx):
				return
			case len(failed) == 0:
				wait.reset()
			}
		}
	}
}

// batch does what it can, kind by kind, and returns what failed.
func (b *burier) batch(ctx context.Context, all []errand) (failed []errand) {
	groups, order := map[string][]errand{}, []string{}
	for _, e := range all {
		if groups[e.agent] == nil {
			order = append(order, e.agent)
		}
		groups[e.agent] = append(groups[e.agent], e)
	}
	for _, agent := range order {
		if group := groups[agent]; !b.try(ctx, group) {
			if len(group) == 1 {
				failed = append(failed, group[0])
				continue
			}
			// One that the server will never take must not hold up the others; a server that takes none is asked no further.
			// Those that were not tried are the first of the next batch.
			var refused, untried []errand
			row := 0
			for i := range group {
				switch {
				case row > 1:
					untried = append(untried, group[i])
				case b.try(ctx, group[i:i+1]):
					row = 0
				default:
					refused = append(refused, group[i])
					row++
				}
			}
			failed = append(append(failed, untried...), refused...)
		}
	}
	return failed
}

// try does errands of one kind in one call.
func (b *burier) try(ctx context.Context, group []errand) bool {
	if ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	began, refs, entries := time.Now(), make([]messages.Ref, len(group)), make([]Held, len(group))
	for i, e := range group {
		refs[i], entries[i] = e.held.Ref, e.held
	}
	var err error
	if agent := group[0].agent; agent != "" {
		if err = b.stream.Move(ctx, agent, entries); err != nil {
			err = fmt.Errorf("move %d entries of agent %q: %w", len(group), agent, err)
		}
	} else {
		letters := make([]Burial, len(group))
		for i, e := range group {
			letters[i] = *e.letter
		}
		if err = b.stream.Bury(ctx, letters); err != nil {
			err = fmt.Errorf("bury %d entries: %w", len(group), err)
		}
	}
	if err != nil {
		b.monitor.bad(err)
		return false
	}
	b.monitor.good(began)
	b.post(settled{refs})
	return true
}
