package memstream

import "time"

// group is a consumer group of one stream with its pending entries list.
type group struct {
	delivered entryID // the last entry handed out
	pending   byID[delivery]
	consumers map[string]*consumer
	missed    int64 // undelivered entries that somebody else removed, until a tick tells
}

// consumer is a name in the group. Redis keeps it until DELCONSUMER.
type consumer struct {
	pending int
	seenMS  int64
}

// delivery is a place in the PEL.
type delivery struct {
	consumer string
	atMS     int64 // of the last delivery or renewal; idle time counts from here
	count    int64 // how often it was handed out
}

// consumer returns the group's consumer of that name, made when it is missing.
func (g *group) consumer(name string, now int64) *consumer {
	c := g.consumers[name]
	if c == nil {
		c = &consumer{}
		g.consumers[name] = c
	}
	c.seenMS = now
	return c
}

// deliver puts a new entry on the consumer's pending list. In a group that was made again it may be pending already, put
// back by a beat: then it changes hands.
func (g *group) deliver(id entryID, to string, now int64) *delivery {
	g.ack(id)
	c := g.consumer(to, now)
	c.pending++
	d := &delivery{consumer: to, atMS: now, count: 1}
	g.pending.put(id, d)
	g.delivered = id
	return d
}

// owned returns the entry's place when it is pending with that consumer, else nil.
func (g *group) owned(id entryID, by string) *delivery {
	if g == nil {
		return nil
	}
	if d := g.pending.get(id); d != nil && d.consumer == by {
		return d
	}
	return nil
}

// ack takes an entry out of the PEL; it reports whether it was there.
func (g *group) ack(id entryID) bool {
	d := g.pending.remove(id)
	if d == nil {
		return false
	}
	g.consumers[d.consumer].pending--
	return true
}

// claim hands a pending entry to a consumer, who may have it already; its idle time starts again.
func (g *group) claim(id entryID, to string, more, now int64) *delivery {
	d := g.pending.get(id)
	g.consumers[d.consumer].pending--
	g.consumer(to, now).pending++
	d.consumer, d.atMS = to, now
	d.count += more
	return d
}

// low is the group's low-water mark: every entry up to it was handed out and acknowledged.
func (g *group) low() entryID {
	if id, oldest := g.pending.first(); oldest != nil {
		return id.prev()
	}
	return g.delivered
}

// idle lists up to n entries of a consumer that were idle for at least that long, in order of ids (XPENDING IDLE).
func (g *group) idle(now int64, least time.Duration, n int, of string) []entryID {
	var ids []entryID
	if n <= 0 || g.consumers[of] == nil || g.consumers[of].pending == 0 {
		return nil
	}
	for id, d := range g.pending.from(entryID{}) {
		if d.consumer == of && now-d.atMS >= least.Milliseconds() {
			if ids = append(ids, id); len(ids) == n {
				break
			}
		}
	}
	return ids
}
