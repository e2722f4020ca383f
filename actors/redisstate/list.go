package redisstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/pages"
	"github.com/weir-run/weir/messages"
)

// maxReads is how often one page reads on where what it found has changed meanwhile, or is not what is meant.
const maxReads = 10

// Tasks lists units by what they do; see actors.StateOps. It writes nothing.
func (s *State) Tasks(ctx context.Context, q actors.TaskQuery) (actors.TaskPage, error) {
	b, err := s.binding()
	if err != nil {
		return actors.TaskPage{}, err
	}
	q.Limit = pages.Limit(q.Limit)
	l := lister{s: s, b: b, q: q}
	if !q.Doubt && (q.State == messages.State_STATE_RUNNING || q.State == messages.State_STATE_PENDING) {
		err = l.entries(ctx)
	} else {
		err = l.indexed(ctx)
	}
	if err != nil {
		return actors.TaskPage{}, fmt.Errorf("list tasks: %w", err)
	}
	return l.page, nil
}

// lister collects one page.
type lister struct {
	s    *State
	b    *binding
	q    actors.TaskQuery
	page actors.TaskPage
}

func (l *lister) room() int { return l.q.Limit - len(l.page.Tasks) }

// indexedStates are those with a set by time of change.
var indexedStates = []messages.State{
	messages.State_STATE_CANCELLED, messages.State_STATE_FAILED, messages.State_STATE_RETRYING,
	messages.State_STATE_SCHEDULED, messages.State_STATE_SUCCEEDED, messages.State_STATE_WAITING,
}

// mark is a member of an index: the newest first, then by index, then by name from the end, as the server sorts them.
type mark struct {
	ms     int64
	index  string // the key without its prefix
	member string
}

func (m mark) compare(n mark) int {
	return cmp.Or(cmp.Compare(n.ms, m.ms), cmp.Compare(m.index, n.index), cmp.Compare(n.member, m.member))
}

// indexed lists from the indexes by state.
func (l *lister) indexed(ctx context.Context) error {
	sets, err := []string{doubts}, error(nil)
	if !l.q.Doubt {
		if sets, err = l.indexes(ctx); err != nil {
			return err
		}
	}
	var from *mark
	parts, err := pages.Parts(l.q.After, 3)
	if err != nil {
		return err
	}
	if parts != nil {
		from = &mark{index: parts[1], member: parts[2]}
		if from.ms, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
			return fmt.Errorf("%.40q is not where a page of this list ended", l.q.After)
		}
		if from.index == inDelayed {
			return l.delayed(ctx, from)
		}
	}
	scheduled := !l.q.Doubt && (l.q.State == messages.State_STATE_UNSPECIFIED || l.q.State == messages.State_STATE_SCHEDULED)
	for range maxReads {
		n := l.room()
		marks, err := l.marks(ctx, sets, from, n)
		if err != nil {
			return err
		}
		if err := l.addMarks(ctx, marks); err != nil {
			return err
		}
		if len(marks) < n && scheduled {
			return l.delayed(ctx, nil) // there is room for one of them at least
		}
		if len(marks) < n {
			l.page.Next = ""
			return nil
		}
		from = &marks[n-1]
		l.page.Next = pages.Cursor(strconv.FormatInt(from.ms, 10), from.index, from.member)
		if l.room() == 0 {
			return nil
		}
	}
	return nil
}

// doubts is the set of the units that are in doubt.
const doubts = "doubts"

// indexes names the sets that the query means, in order.
func (l *lister) indexes(ctx context.Context) ([]string, error) {
	kinds, err := l.s.rdb.SMembers(ctx, l.b.keys.Prefix+"index:kinds").Result()
	if err != nil {
		return nil, err
	}
	var sets []string
	for _, state := range indexedStates {
		if l.q.State != messages.State_STATE_UNSPECIFIED && l.q.State != state {
			continue
		}
		for _, kind := range kinds {
			if l.ofType(messages.Unescape(kind)) {
				sets = append(sets, "index:"+actors.StateName(state)+":"+kind)
			}
		}
	}
	slices.Sort(sets)
	return sets, nil
}

func (l *lister) ofType(kind string) bool {
	return l.q.Type == "" || kind == l.q.Type || strings.HasPrefix(kind, l.q.Type+"/")
}

// marks reads the next n members of all sets together.
func (l *lister) marks(ctx context.Context, sets []string, from *mark, n int) ([]mark, error) {
	least := "-inf"
	if !l.q.Since.IsZero() {
		least = strconv.FormatInt(l.q.Since.UnixMilli(), 10)
	}
	read := func(p redis.Cmdable, set, most string, skip int) *redis.ZSliceCmd {
		return p.ZRevRangeByScoreWithScores(ctx, l.b.keys.Prefix+set, &redis.ZRangeBy{
			Min: least, Max: most, Offset: int64(skip), Count: int64(n),
		})
	}
	var found []mark
	cmds := make([]*redis.ZSliceCmd, len(sets))
	_, err := l.s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, set := range sets {
			most := "+inf"
			if from != nil {
				if most = strconv.FormatInt(from.ms, 10); set < from.index {
					most = "(" + most
				}
			}
			cmds[i] = read(p, set, most, 0)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, set := range sets {
		members := cmds[i].Val()
		// Of the moment that the page before ended in, some are told: there may be more of them than fit a page.
		for skip, fresh := 0, 0; ; {
			for _, z := range members {
				m := mark{int64(z.Score), set, z.Member.(string)} //nolint:forcetypeassert // go-redis makes them
				if from == nil || from.compare(m) < 0 {
					found = append(found, m)
					fresh++
				}
			}
			if skip += len(members); fresh >= n || len(members) < n {
				break
			}
			if members, err = read(l.s.rdb, set, strconv.FormatInt(from.ms, 10), skip).Result(); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(found, mark.compare)
	return found[:min(n, len(found))], nil
}

// addMarks adds those that are still what their index says.
func (l *lister) addMarks(ctx context.Context, marks []mark) error {
	names := make([]string, len(marks))
	for i, m := range marks {
		names[i] = m.member
	}
	units, err := l.s.units(ctx, l.b, names)
	if err != nil {
		return err
	}
	for i, m := range marks {
		u := units[i]
		if u != nil && l.stands(m, u) {
			l.page.Tasks = append(l.page.Tasks, actors.TaskItem{ID: taskOf(m.member), Unit: *u})
		}
	}
	return nil
}

// stands says whether the unit is still what the index says.
func (l *lister) stands(m mark, u *actors.UnitRecord) bool {
	if m.index == doubts {
		return u.Doubt != "" && l.ofType(u.Type)
	}
	return strings.HasPrefix(m.index, "index:"+actors.StateName(u.State)+":")
}

func taskOf(member string) string {
	task, _, _ := strings.Cut(member, ":")
	return messages.Unescape(task)
}

// units reads records without results and steps; nil for those that are not there.
func (s *State) units(ctx context.Context, b *binding, members []string) ([]*actors.UnitRecord, error) {
	if len(members) == 0 {
		return nil, nil
	}
	small, long := make([]*redis.SliceCmd, len(members)), make([]*redis.SliceCmd, len(members))
	due := make([]*redis.FloatCmd, len(members))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, m := range members {
			task, unit, _ := strings.Cut(m, ":")
			names := make([]string, len(listedFields))
			for j, f := range listedFields {
				names[j] = unitPrefix(messages.Unescape(unit)) + f
			}
			key := b.keys.Prefix + "task:" + task
			small[i], long[i] = p.HMGet(ctx, key, names...), p.HMGet(ctx, key+":long", names...)
			due[i] = p.ZScore(ctx, b.keys.Due(), "r:"+m)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	units := make([]*actors.UnitRecord, len(members))
	for i, m := range members {
		h := map[string]string{}
		for j, f := range listedFields {
			for _, from := range [][]any{long[i].Val(), small[i].Val()} {
				if v, ok := from[j].(string); ok {
					h[f] = v
				}
			}
		}
		if h["state"] == "" {
			continue
		}
		_, unit, _ := strings.Cut(m, ":")
		units[i] = unitRecord(messages.Unescape(unit), h)
		waits := units[i].State == messages.State_STATE_RETRYING || units[i].State == messages.State_STATE_SCHEDULED
		if ms := int64(due[i].Val()); ms > 0 && waits {
			units[i].Due = time.UnixMilli(ms)
		}
	}
	return units, nil
}

// listedFields are what a list shows of a unit.
var listedFields = slices.DeleteFunc(slices.Clone(unitFields), func(f string) bool { return f == "result" || f == "ctype" })
