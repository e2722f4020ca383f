package redisstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Task reads all of a task; see actors.StateDesk. A checkpoint that cannot be read is shown as a spent step whose error
// says so.
func (s *State) Task(ctx context.Context, id string) (*actors.TaskRecord, error) {
	b, err := s.binding()
	if err != nil {
		return nil, err
	}
	key := b.keys.Task(id)
	tx := s.rdb.TxPipeline() // one moment: values move between the two hashes when their length changes
	small, long := tx.HGetAll(ctx, key), tx.HGetAll(ctx, key+":long")
	lines, ttl := tx.LRange(ctx, key+":log", 0, -1), tx.PTTL(ctx, key)
	marker, waits := tx.HGetAll(ctx, b.keys.Submitted(id)), tx.HGetAll(ctx, key+":waits")
	mail := tx.HMGet(ctx, key+":mail", "unread")
	if _, err := tx.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read task %.80q: %w", id, err)
	}
	r := &actors.TaskRecord{ID: id, TTL: max(0, ttl.Val())}
	units := map[string]map[string]string{}
	for _, h := range []map[string]string{long.Val(), small.Val()} { // what is in both is newer in the small one
		for field, value := range h {
			unit, name := splitField(field)
			if units[unit] == nil {
				units[unit] = map[string]string{}
			}
			units[unit][name] = value
		}
	}
	if h := units[""]; h != nil {
		r.Owner = h["owner"]
		r.Fence, _ = strconv.ParseUint(h["fence"], 10, 64)
		r.Queued, _ = strconv.ParseInt(h["queued"], 10, 64)
	}
	for name, h := range units {
		if h["state"] != "" {
			unit := unitRecord(messages.Unescape(name), h)
			if err := s.addDue(ctx, b, id, unit); err != nil {
				return nil, err
			}
			if err := s.addWaits(ctx, b, id, unit, waits.Val()); err != nil {
				return nil, err
			}
			r.Units = append(r.Units, *unit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(marker.Val())) {
		entry, unit := submittedUnit(messages.Unescape(name), marker.Val()[name])
		r.EntryID = cmp.Or(r.EntryID, entry)
		if units[name]["state"] == "" {
			if err := s.addDelay(ctx, b, id, unit); err != nil {
				return nil, err
			}
			r.Units = append(r.Units, *unit)
		}
		for i := range r.Units {
			if r.Units[i].Unit == unit.Unit {
				r.Units[i].Created = submittedAt(r.Units[i].Created, unit.Created)
			}
		}
	}
	if len(r.Units) == 0 {
		return nil, fmt.Errorf("task %.80q: %w", id, actors.ErrNoTask)
	}
	slices.SortFunc(r.Units, func(a, b actors.UnitRecord) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Unit, b.Unit))
	})
	for _, line := range lines.Val() {
		r.Log = append(r.Log, logLine(line))
	}
	if unread, ok := mail.Val()[0].(string); ok {
		r.Unread, _ = strconv.ParseInt(unread, 10, 64)
	}
	return r, nil
}

// unitFields are what a UnitRecord shows, without steps.
var unitFields = []string{
	"state", "type", "failures", "crashes", "timeouts", "deaths", "blamed", "interruptions", "waits", "created", "began",
	"updated", "ctype", "result", "error", "reason", "doubt", "classes",
}

// Unit reads one unit without its steps; see actors.StateDesk.
func (s *State) Unit(ctx context.Context, id, unit string) (*actors.UnitRecord, error) {
	b, err := s.binding()
	if err != nil {
		return nil, err
	}
	key, names := b.keys.Task(id), make([]string, len(unitFields))
	for i, f := range unitFields {
		names[i] = unitPrefix(unit) + f
	}
	tx := s.rdb.TxPipeline()
	small, long := tx.HMGet(ctx, key, names...), tx.HMGet(ctx, key+":long", names...)
	marker := tx.HGet(ctx, b.keys.Submitted(id), messages.Escape(unit))
	if _, err := tx.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read task %.80q: %w", id, err)
	}
	h := map[string]string{}
	for i, f := range unitFields {
		for _, from := range [][]any{long.Val(), small.Val()} {
			if v, ok := from[i].(string); ok {
				h[f] = v
			}
		}
	}
	if h["state"] == "" {
		if marker.Val() == "" {
			return nil, fmt.Errorf("task %.80q: %w", id, actors.ErrNoTask)
		}
		_, u := submittedUnit(unit, marker.Val())
		return u, s.addDelay(ctx, b, id, u)
	}
	u := unitRecord(unit, h)
	if marker.Val() != "" {
		_, p := submittedUnit(unit, marker.Val())
		u.Created = submittedAt(u.Created, p.Created)
	}
	return u, s.addDue(ctx, b, id, u)
}

// addDue says when a RETRYING or SCHEDULED unit of a record runs.
func (s *State) addDue(ctx context.Context, b *binding, id string, u *actors.UnitRecord) (err error) {
	if u.State == messages.State_STATE_RETRYING || u.State == messages.State_STATE_SCHEDULED {
		u.Due, err = s.score(ctx, b.keys.Due(), "r:"+member(id, u.Unit)) // none: promoted, it waits in the inbox
	}
	return err
}

// addDelay says when a unit without a record joins the stream. One that has joined it meanwhile is PENDING.
func (s *State) addDelay(ctx context.Context, b *binding, id string, u *actors.UnitRecord) (err error) {
	if u.State != messages.State_STATE_SCHEDULED {
		return nil
	}
	if u.Due, err = s.score(ctx, b.keys.Delayed(), member(id, u.Unit)); err == nil && u.Due.IsZero() {
		u.State = messages.State_STATE_PENDING
	}
	return err
}

// member names a unit in the sets.
func member(id, unit string) string { return messages.Escape(id) + ":" + messages.Escape(unit) }

// score reads a time from a sorted set, the zero time where the member is not in it.
func (s *State) score(ctx context.Context, key, member string) (time.Time, error) {
	at, err := s.rdb.ZScore(ctx, key, member).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("read when unit %.80q is due: %w", member, err)
	}
	return time.UnixMilli(int64(at)), nil
}

// addWaits says what a unit waits for. One that cannot be read is shown without what ends it.
func (s *State) addWaits(ctx context.Context, b *binding, id string, u *actors.UnitRecord, open map[string]string) error {
	head := messages.Escape(u.Unit) + ":"
	var fields, members []string
	for _, field := range slices.Sorted(maps.Keys(open)) {
		if strings.HasPrefix(field, head) {
			fields, members = append(fields, field), append(members, "w:"+messages.Escape(id)+":"+field)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	at, err := s.rdb.ZMScore(ctx, b.keys.Due(), members...).Result() // 0 for one without an end
	if err != nil {
		return fmt.Errorf("read until when task %.80q waits: %w", id, err)
	}
	for i, field := range fields {
		name := messages.Unescape(field[len(head):])
		w, _ := messages.DecodeWait(name, open[field])
		u.Waits = append(u.Waits, actors.Record(name, w, msTime(strconv.FormatInt(int64(at[i]), 10))))
	}
	return nil
}

// splitField takes a field of the task's hash apart: the escaped unit, and what the field is called there.
func splitField(field string) (unit, name string) {
	head, step, isStep := strings.Cut(field, ":") // every other colon is escaped
	i := strings.LastIndexByte(head, '/')
	if i >= 0 {
		unit = head[:i]
	}
	name = head[i+1:]
	if isStep {
		name += ":" + step
	}
	return unit, name
}

func unitRecord(unit string, h map[string]string) *actors.UnitRecord {
	u := &actors.UnitRecord{
		Unit: unit, State: stateFrom(h["state"]), Type: h["type"],
		Created: msTime(h["created"]), Began: msTime(h["began"]), Updated: msTime(h["updated"]),
		ContentType: h["ctype"], Error: h["error"], Reason: reasonFrom(h["reason"]), Doubt: h["doubt"],
	}
	u.Ledger.Classes = actors.ErrorClasses(h["classes"])
	if u.Created.IsZero() { // not written before the second begin
		u.Created = u.Began
	}
	if u.Updated.IsZero() {
		u.Updated = u.Began
	}
	if v, ok := h["result"]; ok {
		u.Result = []byte(v)
	}
	for _, n := range []struct {
		to   *int64
		name string
	}{
		{&u.Ledger.Failures, "failures"},
		{&u.Ledger.Crashes, "crashes"},
		{&u.Ledger.Timeouts, "timeouts"},
		{&u.Ledger.Deaths, "deaths"},
		{&u.Ledger.Blamed, "blamed"},
		{&u.Ledger.Interruptions, "interruptions"},
		{&u.Ledger.Waits, "waits"},
	} {
		*n.to, _ = strconv.ParseInt(h[n.name], 10, 64)
	}
	for field, v := range h {
		name, ok := strings.CutPrefix(field, "step:")
		if !ok {
			continue
		}
		step, err := messages.DecodeStep(messages.Unescape(name), []byte(v))
		if err != nil {
			step = messages.Step{Name: messages.Unescape(name), Status: messages.StepSpent, Error: err.Error()}
		}
		u.Steps = append(u.Steps, step)
	}
	sortSteps(u.Steps)
	return u
}

// sortSteps puts steps into the order of their begin.
func sortSteps(steps []messages.Step) {
	slices.SortFunc(steps, func(a, b messages.Step) int {
		return cmp.Or(cmp.Compare(a.BeganMS, b.BeganMS), cmp.Compare(a.EndedMS, b.EndedMS), cmp.Compare(a.Name, b.Name))
	})
}

// submittedAt is when a unit was created: its submission, where there was one, and not its first begin, which is all that
// the record knows. A submission after the begin added nothing to a task that a producer's own entry had made.
func submittedAt(created, submitted time.Time) time.Time {
	if submitted.IsZero() || created.Before(submitted) {
		return created
	}
	return submitted
}

// submittedUnit is what the submit marker tells of a unit that was never begun; its forms are in messages/layout.go.
func submittedUnit(unit, marker string) (entryID string, u *actors.UnitRecord) {
	f := strings.SplitN(marker, " ", 3)
	created, entryID, delayed := strings.Cut(f[0], "@")
	if !delayed {
		entryID = f[0]
		created, _, _ = strings.Cut(entryID, "-")
	}
	u = &actors.UnitRecord{Unit: unit, State: messages.State_STATE_PENDING, Created: msTime(created)}
	if entryID == "" {
		u.State = messages.State_STATE_SCHEDULED
	}
	u.Updated = u.Created
	if len(f) == 3 {
		u.Type = f[2]
	}
	return entryID, u
}

// logLine reads "<ms> <what> <detail>".
func logLine(line string) actors.LogLine {
	f := strings.SplitN(line, " ", 3)
	l := actors.LogLine{At: msTime(f[0])}
	if len(f) > 1 {
		l.What = f[1]
	}
	if len(f) > 2 {
		l.Detail = f[2]
	}
	return l
}
