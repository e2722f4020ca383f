package memstream

import (
	"context"
	"strings"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Status reads the group as operators see it; see streambridge.Upkeep.
func (s *Stream) Status(ctx context.Context) (st streambridge.Status, err error) {
	err = s.bound(ctx, "status", func(w *world, now int64) error {
		st = streambridge.Status{
			Stream: w.keys.Stream, Group: w.group, Dead: int64(w.dead.list.len()), Due: int64(len(w.due)),
			States: map[string]int64{},
		}
		public, inbox := w.data.log(w.keys.Stream), w.data.log(w.keys.Inbox())
		if public != nil {
			st.Length = int64(public.entries.len())
		}
		if inbox != nil {
			st.Inbox = int64(inbox.entries.len())
		}
		byName := map[string]*streambridge.Consumer{}
		oldest := now
		for _, stream := range w.streams() {
			g := w.read(stream)
			if g == nil {
				continue
			}
			st.Pending += int64(g.pending.len())
			if id, d := g.pending.first(); d != nil {
				oldest = min(oldest, id.ms)
			}
			for range w.data.log(stream).entries.from(g.delivered.next()) {
				st.Lag++
			}
			for name, c := range g.consumers {
				if byName[name] == nil {
					byName[name] = &streambridge.Consumer{Name: name, IdleMS: now - c.seenMS}
				}
				byName[name].Pending += int64(c.pending)
				byName[name].IdleMS = min(byName[name].IdleMS, now-c.seenMS)
			}
		}
		st.OldestMS = now - oldest
		for _, name := range sortedKeys(byName) {
			st.Consumers = append(st.Consumers, w.describe(byName[name], now))
		}
		st.Waiting = w.waiting(now)
		st.StreamExists, st.GroupExists = public != nil, w.read(w.keys.Stream) != nil
		st.Gate = w.gateNow(now)
		w.countStates(&st)
		for _, t := range st.Waiting {
			if !t.Served {
				st.Unserved = append(st.Unserved, t.Type)
			}
		}
		return nil
	})
	return st, err
}

// waiting is what stands in the streams of agent types.
func (w *world) waiting(now int64) (out []streambridge.TypeWaiting) {
	for _, name := range sortedKeys(w.types) {
		l := w.data.log(w.keys.Type(name))
		if l == nil || l.entries.len() == 0 {
			continue
		}
		oldest, _ := l.entries.first()
		out = append(out, streambridge.TypeWaiting{
			Type: name, Entries: int64(l.entries.len()), OldestMS: max(now-oldest.ms, 0), Served: w.served(name, now),
		})
	}
	return out
}

func (w *world) describe(c *streambridge.Consumer, now int64) streambridge.Consumer {
	if claim := w.claims[c.Name]; claim != nil {
		c.Incarnation, c.Live = claim.incarnation, w.consumerLive(c.Name, now)
		if l := w.lives[claim.incarnation]; l != nil && l.TickMS > 0 {
			c.LastTickMS = now - l.TickMS
		}
		if l := w.lives[claim.incarnation]; l != nil && c.Live {
			c.Stuck = l.Stuck
		}
	}
	return *c
}

// countStates fills the tasks by state: RUNNING from the PEL, PENDING from what was not handed out or waits for a
// node that runs its type, SUCCEEDED as a total.
func (w *world) countStates(st *streambridge.Status) {
	name := func(s messages.State) string { return strings.TrimPrefix(s.String(), "STATE_") }
	for s := range messages.State_name {
		if indexed(messages.State(s)) {
			st.States[name(messages.State(s))] = 0
		}
	}
	for k, members := range w.index {
		if indexed(k.state) {
			st.States[name(k.state)] += int64(len(members))
		}
	}
	st.Delayed = int64(len(w.data.delayed[w.keys.Delayed()]))
	st.States[name(messages.State_STATE_SCHEDULED)] += st.Delayed
	st.States[name(messages.State_STATE_SUCCEEDED)] = w.counts["succeeded"]
	st.States[name(messages.State_STATE_RUNNING)] = st.Pending
	st.States[name(messages.State_STATE_PENDING)] = st.Lag
	for _, t := range st.Waiting {
		st.States[name(messages.State_STATE_PENDING)] += t.Entries
	}
}
