package redisstate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

var _ actors.ScheduleDesk = (*State)(nil)

// removedTTL is how long a removed schedule of the code is refused to nodes that had declared it before: they ask within
// hours.
const removedTTL = 7 * 24 * time.Hour

// DeclareSchedule writes a definition, or finds the same one there; see actors.ScheduleDesk.
func (s *State) DeclareSchedule(ctx context.Context, d actors.ScheduleDeclaration) (actors.ScheduleDeclared, error) {
	b, err := s.binding()
	if err != nil {
		return 0, err
	}
	reply, err := s.batch.do(ctx, scheduleDeclareScript, []string{b.keys.Schedules(), b.keys.Schedule(d.Name)},
		messages.Escape(d.Name), string(d.Definition), d.Hash, tickMS(d.Next), flag(d.InCode), flag(d.Start), clip(d.Broken),
		number(ttlMS(cmp.Or(d.TTL, forever))))
	if err != nil {
		return 0, fmt.Errorf("declare schedule %q: %w", d.Name, err)
	}
	n, _ := reply.(int64)
	return actors.ScheduleDeclared(n), nil
}

// DueSchedules lists what is due; see actors.ScheduleDesk.
func (s *State) DueSchedules(ctx context.Context, q actors.ScheduleQuery) (actors.SchedulesDue, error) {
	var due actors.SchedulesDue
	b, err := s.binding()
	if err != nil {
		return due, err
	}
	args := append([]string{b.keys.Schedule(""), number(q.Limit)}, q.Hashes...)
	reply, err := s.batch.do(ctx, scheduleDueScript, []string{b.keys.Schedules()}, args...)
	if err != nil {
		return due, fmt.Errorf("look for due schedules: %w", err)
	}
	r := replyReader{list: asList(reply)}
	due.Now, due.Soonest = tickTime(r.string()), tickTime(r.string())
	due.Known, due.More = int(r.int()), r.int() == 1
	for _, one := range asList(r.next()) {
		o := replyReader{list: asList(one)}
		found := actors.ScheduleDue{Name: messages.Unescape(o.string()), Tick: tickTime(o.string()), Hash: o.string()}
		if definition := o.string(); definition != "" {
			found.Definition = []byte(definition)
		}
		due.Due = append(due.Due, found)
		r.err = cmp.Or(r.err, o.err)
	}
	return due, r.err
}

// FireSchedule goes on from one tick to another; see actors.ScheduleDesk.
func (s *State) FireSchedule(ctx context.Context, f actors.ScheduleFire) (actors.ScheduleFired, error) {
	b, err := s.binding()
	if err != nil {
		return actors.ScheduleFired{}, err
	}
	keys := []string{b.keys.Schedules(), b.keys.Schedule(f.Name), b.keys.Stream}
	var most int64
	if len(f.Runs) > 0 {
		most = f.Runs[0].Task.MaxLen
	}
	args := []string{
		messages.Escape(f.Name), f.Hash, tickMS(f.Tick), tickMS(f.Next), f.Incarnation, b.keys.Prefix, number(int(f.Overlap)),
		number(f.Vetoed), number(f.Missed), clip(f.Why), number(ttlMS(cmp.Or(f.TTL, forever))), number(max(0, most)), b.keys.Submitted(""),
	}
	for _, run := range f.Runs {
		t := run.Task
		keys = append(keys, b.keys.Submitted(t.ID))
		args = append(args, tickMS(run.Tick), messages.Escape(t.ID), messages.Escape(t.Unit), t.Work, b.typeOf(t), number(markerMS(t)),
			number(2*len(t.Fields)))
		for _, field := range t.Fields {
			args = append(args, field.Name, field.Value)
		}
	}
	reply, err := s.batch.do(ctx, scheduleFireScript, keys, args...)
	if err != nil {
		return actors.ScheduleFired{}, fmt.Errorf("fire schedule %q: %w", f.Name, err)
	}
	r := replyReader{list: asList(reply)}
	fired := actors.ScheduleFired{
		Outcome: actors.ScheduleOutcome(r.int()), Next: tickTime(r.string()), Task: messages.Unescape(r.string()),
	}
	return fired, r.err
}

// PauseSchedule lets nothing be next; see actors.ScheduleDesk.
func (s *State) PauseSchedule(ctx context.Context, name string) error {
	_, err := s.setSchedule(ctx, name, "pause", "", "")
	return err
}

// ResumeSchedule ends a pause; see actors.ScheduleDesk.
func (s *State) ResumeSchedule(ctx context.Context, name, hash string, next time.Time) error {
	_, err := s.setSchedule(ctx, name, "resume", hash, tickMS(next))
	return err
}

// RemoveSchedule forgets a schedule; see actors.ScheduleDesk.
func (s *State) RemoveSchedule(ctx context.Context, name string) (inCode bool, err error) {
	return s.setSchedule(ctx, name, "remove", strconv.FormatInt(removedTTL.Milliseconds(), 10), "")
}

func (s *State) setSchedule(ctx context.Context, name, verb string, args ...string) (inCode bool, err error) {
	b, err := s.binding()
	if err != nil {
		return false, err
	}
	reply, err := s.batch.do(ctx, scheduleSetScript, []string{b.keys.Schedules(), b.keys.Schedule(name)},
		append([]string{messages.Escape(name), verb}, args...)...)
	switch n, _ := reply.(int64); {
	case err != nil:
	case n == 0:
		err = actors.ErrNoSchedule
	case n == 3:
		err = actors.ErrConflict
	default:
		return n == 2, nil
	}
	return false, fmt.Errorf("%s schedule %q: %w", verb, name, err)
}

// Schedules lists schedules; see actors.ScheduleDesk.
func (s *State) Schedules(ctx context.Context, names ...string) (actors.ScheduleList, error) {
	var list actors.ScheduleList
	b, err := s.binding()
	if err != nil {
		return list, err
	}
	args := []string{b.keys.Schedule("")}
	for _, n := range names {
		args = append(args, messages.Escape(n))
	}
	reply, err := s.batch.do(ctx, scheduleListScript, []string{b.keys.Schedules()}, args...)
	if err != nil {
		return list, fmt.Errorf("list schedules: %w", err)
	}
	r := replyReader{list: asList(reply)}
	list.Now = tickTime(r.string())
	for _, one := range r.list {
		o := replyReader{list: asList(one)}
		record := actors.ScheduleRecord{Name: messages.Unescape(o.string()), Next: tickTime(o.string())}
		readSchedule(&record, asList(o.next()))
		list.Schedules = append(list.Schedules, record)
	}
	slices.SortFunc(list.Schedules, func(a, b actors.ScheduleRecord) int { return cmp.Compare(a.Name, b.Name) })
	return list, r.err
}

// readSchedule reads the hash's fields and values in turn.
func readSchedule(r *actors.ScheduleRecord, flat []any) {
	h := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		h[name], _ = flat[i+1].(string)
	}
	if d := h["definition"]; d != "" {
		r.Definition = []byte(d)
	}
	r.Hash, r.InCode, r.Paused, r.Broken = h["hash"], h["code"] != "", h["paused"] != "", h["broken"]
	r.Declared, r.Last, r.Passed = tickTime(h["declared"]), tickTime(h["last"]), tickTime(h["passed"])
	r.LastTask, r.Why = messages.Unescape(h["task"]), h["why"]
	for name, to := range map[string]*int64{"fired": &r.Fired, "vetoed": &r.Vetoed, "missed": &r.Missed, "overlapped": &r.Overlapped} {
		*to, _ = strconv.ParseInt(h[name], 10, 64)
	}
}

// tickMS is a tick in Unix ms, "" for none.
func tickMS(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// tickTime undoes tickMS. A score that Redis wrote may have a fraction or an exponent.
func tickTime(s string) time.Time {
	ms, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}

func flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}
