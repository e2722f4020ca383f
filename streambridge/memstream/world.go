package memstream

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// world is what one group keeps on the server: the keys under one prefix.
type world struct {
	keys  messages.Keys
	group string
	data  *data

	pulse          int64         // ms of the group's last tick, by whichever node
	lease, deadTTL time.Duration // of the node whose script runs
	calmUntil      int64         // ms until which everybody counts as alive
	share          int           // how many orphans a node takes in the turn that began at
	turn           int64         // this ms
	pass           int64         // ms of the last pass over acknowledged entries behind a slow one
	low            entryID       // where a group of the public stream that vanished starts again
	epoch          uint64        // another one after each loss of a group: who knows an older one has lost what it held

	claims  map[string]*claimed // consumer name → incarnation
	alive   map[string]int64    // incarnation → ms at which its liveness ends
	lives   map[string]*Life
	tasks   map[string]*Task
	copies  map[unitKey]*Copy
	saved   map[messages.Ref]unitKey // entries whose fields are copied beside their task
	due     map[string]int64         // "r:<unit>", "w:<wait>" and "q:<task>" → ms
	mail    map[string]*Mail         // by task id
	types   map[string]bool          // agent types with entries that wait for a node
	index   map[indexKey]map[string]int64
	doubts  map[string]int64 // units in doubt, by member, and since when
	counts  map[string]int64
	cancels []toldCancel // the newest, oldest first
	// cancelled counts those that were told.
	cancelled int64
	dead      letters
	feeds     map[string]*Feed                   // published chunks, by task id
	settled   map[string]streambridge.Settlement // for a minute: repeated settlements answer the same
	quotas    map[string]*Quota
	gate      *gate // nil: open
	gateAt    int64 // ms of the last look at it
}

// claimed says which incarnation a consumer name belongs to.
type claimed struct {
	incarnation string
	client      *Stream
	beat        uint64 // moves with every beat
	left        bool   // it gave back what it held: others may take it at once
}

// Life outlives its node by a day: its last tick, and what it had on trial.
type Life struct {
	TickMS       int64
	Stuck        int64 // steps that ran on after their timeout at that tick
	Types        []string
	Trial        string // member of the unit on trial, "" for none
	TrialUntilMS int64
	untilMS      int64
	turn         int64 // the last turn in which it took its share of orphans
}

type unitKey struct{ task, unit string }

type indexKey struct {
	state messages.State
	kind  string
}

const lifeTTL = 24 * time.Hour

// world returns the group's world, made when it is missing.
func (d *data) world(keys messages.Keys, group string) *world {
	w := d.worlds[keys.Prefix]
	if w == nil {
		w = &world{
			keys: keys, group: group, data: d, lease: defaultLease, deadTTL: defaultDeadTTL,
			claims: map[string]*claimed{}, alive: map[string]int64{}, lives: map[string]*Life{},
			tasks: map[string]*Task{}, saved: map[messages.Ref]unitKey{}, copies: map[unitKey]*Copy{}, due: map[string]int64{}, mail: map[string]*Mail{}, types: map[string]bool{},
			index: map[indexKey]map[string]int64{}, doubts: map[string]int64{}, counts: map[string]int64{},
			feeds: map[string]*Feed{}, settled: map[string]streambridge.Settlement{}, quotas: map[string]*Quota{},
		}
		d.worlds[keys.Prefix] = w
	}
	return w
}

// live reports whether the incarnation's liveness key stands.
func (w *world) live(incarnation string) bool {
	_, ok := w.alive[incarnation]
	return ok
}

// keepAlive sets the incarnation's liveness key for a lease.
func (w *world) keepAlive(incarnation string, now int64, lease time.Duration) {
	if !w.live(incarnation) {
		w.data.expiry.at(now+lease.Milliseconds(), func(now int64) int64 {
			until := w.alive[incarnation]
			if due(until, now) {
				delete(w.alive, incarnation)
			}
			return until
		})
	}
	w.alive[incarnation] = now + lease.Milliseconds()
}

// life returns the incarnation's life, made when it is missing, and keeps it for another day.
func (w *world) life(incarnation string, now int64) *Life {
	l := w.lives[incarnation]
	if l == nil {
		l = &Life{}
		w.lives[incarnation] = l
		w.data.expiry.at(now+lifeTTL.Milliseconds(), func(now int64) int64 {
			if due(l.untilMS, now) {
				delete(w.lives, incarnation)
			}
			return l.untilMS
		})
	}
	l.untilMS = now + lifeTTL.Milliseconds()
	return l
}

// consumerLive reports whether a consumer name belongs to a live incarnation. While claims wait, only one that left in
// order is not live.
func (w *world) consumerLive(name string, now int64) bool {
	c := w.claims[name]
	if c != nil && c.left {
		return false
	}
	return now < w.calmUntil || c != nil && w.live(c.incarnation)
}

// streams are the two streams that the group reads.
func (w *world) streams() [2]string { return [2]string{w.keys.Stream, w.keys.Inbox()} }

// read returns the group on that stream, or nil when either is missing.
func (w *world) read(stream string) *group { return w.data.log(stream).group(w.group) }

// joined reports whether the group is there on both streams.
func (w *world) joined() bool {
	return w.read(w.keys.Stream) != nil && w.read(w.keys.Inbox()) != nil
}

// ensure makes what is missing of streams and groups: on the public stream at the low-water mark, in the inbox at the
// beginning, where what was acknowledged answers "done" again. It returns the group's epoch.
func (w *world) ensure() uint64 {
	made := w.epoch == 0
	for _, stream := range w.streams() {
		if w.read(stream) != nil {
			continue
		}
		l, after := w.data.make(stream), entryID{}
		if stream == w.keys.Stream && w.low.compare(l.last) <= 0 {
			after = w.low
		}
		l.join(w.group, after)
		made = true
	}
	if made {
		w.data.epochs++
		w.epoch = w.data.epochs
	}
	return w.epoch
}

// settle acknowledges an entry, takes it out of the inbox, and forgets that it had a copy. It reports whether it was pending:
// after a loss of the group nothing is, and one of the inbox goes all the same.
func (w *world) settle(ref messages.Ref) bool {
	id, ok := parseID(ref.ID)
	if !ok {
		return false
	}
	g := w.read(ref.Stream)
	pending := g != nil && g.ack(id)
	if inbox := w.data.log(ref.Stream); inbox != nil && ref.Stream == w.keys.Inbox() {
		inbox.entries.remove(id)
	}
	delete(w.saved, ref)
	return pending
}

// toInbox adds an entry that Weir itself makes.
func (w *world) toInbox(now int64, fields []messages.Pair) {
	inbox := w.data.make(w.keys.Inbox())
	inbox.add(now, fields)
}

// withControl puts the control fields of an inbox entry in front of the fields and drops old ones.
func withControl(fields []messages.Pair, id, origin string, wake uint64) []messages.Pair {
	out := make([]messages.Pair, 0, len(fields)+3)
	out = append(out,
		messages.Pair{Name: messages.ControlID, Value: id},
		messages.Pair{Name: messages.ControlOrigin, Value: origin},
		messages.Pair{Name: messages.ControlWake, Value: utoa(wake)})
	for _, f := range fields {
		if !strings.HasPrefix(f.Name, messages.ControlPrefix) {
			out = append(out, f)
		}
	}
	return out
}

// control returns the value of a control field, which only an inbox entry has, or "".
func control(fields []messages.Pair, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// nextDue lists up to n members that are due, soonest first.
func (w *world) nextDue(now int64, n int) (members []string, more bool) {
	for m, at := range w.due {
		if at <= now {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b string) int { return cmp.Or(cmp.Compare(w.due[a], w.due[b]), cmp.Compare(a, b)) })
	if len(members) > n {
		return members[:n], true
	}
	return members, false
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
