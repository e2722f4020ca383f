package memstream

import (
	"strconv"
	"strings"
	"time"

	"github.com/weir-run/weir/messages"
)

// Task is the record of a task as it lies on the server: the hash of messages/layout.go and what stands beside it.
// Only a script (Stream.Script) may touch it, and none may keep it.
type Task struct {
	ID      string
	Owner   string // incarnation that owns the task, "" for nobody
	Fence   uint64 // grows with every Begin of any of its units
	Waiting [][]messages.Pair
	Units   map[string]*Unit
	Log     []Line
	// Ties says that something outside must hear of the end of one of its units, as an open wait must.
	Ties bool
	// Waits are what its units wait for now.
	Waits map[WaitKey]*messages.Wait
	// UntilMS is when it is forgotten; 0 while it has not ended or entries wait with it.
	UntilMS int64
	// keep is the time to live that it gets when nothing waits any more.
	keep time.Duration
}

// Unit is the record of one unit of a task. Times are Unix ms.
type Unit struct {
	Name    string
	State   messages.State
	Type    string
	Work    string
	Run     Run    // of the last Begin
	FenceAt uint64 // fence number of that Begin

	CreatedMS, BeganMS, UpdatedMS, DueMS int64

	Failures, Crashes, Timeouts, Deaths, Blamed, Interruptions, Waits int64

	Classes string // failures and timeouts by class of RetryIf

	RanMS       int64 // how long it had run when its node died last
	Wake        uint64
	WokenAt     uint64 // FenceAt of the run that parked it, once the end of a wait has made it PENDING again
	Doubt       string // the step whose effect is unknown: only a person wakes it
	Resolved    string // "<how> <step>" of its last doubt
	ContentType string
	Result      []byte
	Error       string
	Reason      messages.Reason   // of a FAILED unit; of a RUNNING one: it is condemned, Error says why
	Steps       map[string][]byte // messages.EncodeStep, by name
}

// Run names an activation.
type Run struct {
	Incarnation string
	Activation  uint64
}

// Copy is the copy of a unit's entry that a beat, a park or a retry made.
type Copy struct {
	Fields []messages.Pair
	Origin string // id of the producer's entry
}

// Line is a line of a task's timeline.
type Line struct {
	AtMS         int64
	What, Detail string
}

// maxLog is how many lines of a timeline are kept.
const maxLog = 200

// Ended reports whether the state is final.
func Ended(s messages.State) bool {
	return s == messages.State_STATE_SUCCEEDED || s == messages.State_STATE_FAILED || s == messages.State_STATE_CANCELLED
}

// member names a unit in the due set, the indexes and a node's trial.
func member(task, unit string) string { return messages.Escape(task) + ":" + messages.Escape(unit) }

func unitOfMember(m string) (task, unit string) {
	task, unit, _ = strings.Cut(m, ":")
	return messages.Unescape(task), messages.Unescape(unit)
}

// task returns the record, or nil.
func (w *world) task(id string) *Task { return w.tasks[id] }

// makeTask returns the record, made when it is missing.
func (w *world) makeTask(id string) *Task {
	t := w.tasks[id]
	if t == nil {
		t = &Task{ID: id, Units: map[string]*Unit{}}
		w.tasks[id] = t
	}
	return t
}

// unit returns the unit, or nil; also of a nil task.
func (t *Task) unit(name string) *Unit {
	if t == nil {
		return nil
	}
	return t.Units[name]
}

// note appends to the timeline what leaves the straight path.
func (t *Task) note(now int64, what, detail string) {
	t.Log = append(t.Log, Line{AtMS: now, What: what, Detail: detail})
	if len(t.Log) > maxLog {
		t.Log = append(t.Log[:0:0], t.Log[len(t.Log)-maxLog:]...)
	}
}

// expire gives the task and all that stands beside it one time to live; ttl ≤ 0 keeps it.
func (w *world) expire(t *Task, now int64, ttl time.Duration) {
	if ttl <= 0 {
		if t.UntilMS > 0 && w.mail[t.ID] != nil { // the end that is to give its mail a time to live again must look for it
			t.Ties = true
			w.keepMail(t.ID)
		}
		t.UntilMS = 0
		return
	}
	w.expireMail(t.ID, now, ttl)
	t.UntilMS = now + max(ttl.Milliseconds(), 1)
	w.data.expiry.at(t.UntilMS, func(now int64) int64 {
		if due(t.UntilMS, now) && w.tasks[t.ID] == t {
			w.forget(t)
		}
		return 0
	})
}

// forget drops the record and the indexes' members that point at it.
func (w *world) forget(t *Task) {
	delete(w.tasks, t.ID)
	for _, u := range t.Units {
		if set := w.index[indexKey{u.State, u.Type}]; set != nil {
			delete(set, member(t.ID, u.Name))
		}
		delete(w.copies, unitKey{t.ID, u.Name})
		delete(w.doubts, member(t.ID, u.Name))
	}
}

// indexed are the states that have a set by time of change.
func indexed(s messages.State) bool {
	switch s {
	case messages.State_STATE_FAILED, messages.State_STATE_WAITING, messages.State_STATE_RETRYING,
		messages.State_STATE_SCHEDULED, messages.State_STATE_CANCELLED:
		return true
	default:
		return false
	}
}

// become moves a unit to another state and keeps the indexes true.
func (w *world) become(t *Task, u *Unit, to messages.State, now int64, always bool) {
	if set := w.index[indexKey{u.State, u.Type}]; set != nil {
		delete(set, member(t.ID, u.Name))
	}
	u.State, u.UpdatedMS = to, now
	if indexed(to) || always {
		m := member(t.ID, u.Name)
		k := indexKey{to, u.Type}
		if w.index[k] == nil {
			w.index[k] = map[string]int64{}
		}
		w.index[k][m] = now
	}
}

// disown ends ownership of a task and moves the oldest entry that waited for it to the inbox.
func (w *world) disown(t *Task, now int64) {
	t.Owner = ""
	if len(t.Waiting) == 0 {
		return
	}
	oldest := t.Waiting[0]
	if t.Waiting = t.Waiting[1:]; len(t.Waiting) == 0 {
		t.Waiting = nil
		if t.keep > 0 && t.ended() {
			w.expire(t, now, t.keep)
		}
		t.keep = 0
	}
	w.toInbox(now, oldest)
}

// ownerLive reports whether the task has an owner that is live, or counts as live while claims wait.
func (w *world) ownerLive(t *Task, now int64) bool {
	return t.Owner != "" && (w.live(t.Owner) || now < w.calmUntil)
}

// copyEntry keeps the fields of a unit's entry beside its task, once, with the control fields of an inbox entry; the record
// need not exist yet.
func (w *world) copyEntry(task, unit string, ref messages.Ref, fields []messages.Pair) {
	k := unitKey{task, unit}
	if w.copies[k] == nil {
		origin, wake := w.origin(ref, fields), uint64(0)
		if u := w.task(task).unit(unit); u != nil {
			wake = u.Wake
		}
		w.copies[k] = &Copy{Fields: withControl(fields, task, origin, wake), Origin: origin}
	}
	w.saved[ref] = k
}

// origin is the id of the producer's entry. Control fields are believed in the inbox only.
func (w *world) origin(ref messages.Ref, fields []messages.Pair) string {
	if ref.Stream == w.keys.Inbox() {
		if origin := control(fields, messages.ControlOrigin); origin != "" {
			return origin
		}
	}
	return ref.ID
}

// wake is the wake number that an inbox entry carries, 0 for others.
func (w *world) wake(ref messages.Ref, fields []messages.Pair) uint64 {
	if ref.Stream != w.keys.Inbox() {
		return 0
	}
	n, err := strconv.ParseUint(control(fields, messages.ControlWake), 10, 64)
	if err != nil {
		return 0 // the decoder reports it
	}
	return n
}

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
