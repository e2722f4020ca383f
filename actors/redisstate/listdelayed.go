package redisstate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/internal/pages"
	"github.com/weir-run/weir/messages"
)

// inDelayed stands in a cursor for an index: the list has come to what was submitted for later.
const inDelayed = "delayed"

// delayed lists what was submitted for later and has no record, the next to join the stream first. It comes behind the
// indexes: nobody has begun it in any group. from is where the page before ended, nil for the first.
func (l *lister) delayed(ctx context.Context, from *mark) error {
	for range maxReads {
		n := l.room()
		marks, err := l.waiting(ctx, from, n)
		if err != nil {
			return err
		}
		if err := l.addDelayed(ctx, marks); err != nil {
			return err
		}
		if len(marks) < n {
			l.page.Next = ""
			return nil
		}
		from = &marks[n-1]
		l.page.Next = pages.Cursor(strconv.FormatInt(from.ms, 10), inDelayed, from.member)
		if l.room() == 0 {
			return nil
		}
	}
	return nil
}

// waiting reads the next n members of the set: by time, then by name.
func (l *lister) waiting(ctx context.Context, from *mark, n int) (found []mark, err error) {
	least := "-inf"
	if from != nil {
		least = strconv.FormatInt(from.ms, 10)
	}
	for skip := 0; len(found) < n; {
		members, err := l.s.rdb.ZRangeByScoreWithScores(ctx, l.b.keys.Delayed(), &redis.ZRangeBy{
			Min: least, Max: "+inf", Offset: int64(skip), Count: int64(n),
		}).Result()
		if err != nil {
			return nil, err
		}
		for _, z := range members {
			m := mark{int64(z.Score), inDelayed, z.Member.(string)} //nolint:forcetypeassert // go-redis makes them
			// Of the moment that the page before ended in, some are told.
			if from == nil || m.ms > from.ms || m.member > from.member {
				found = append(found, m)
			}
		}
		if skip += len(members); len(members) < n {
			break
		}
	}
	return found[:min(n, len(found))], nil
}

// addDelayed adds those that are meant, and that nobody has cancelled: such a one has a record.
func (l *lister) addDelayed(ctx context.Context, marks []mark) error {
	if len(marks) == 0 {
		return nil
	}
	states, markers := make([]*redis.StringCmd, len(marks)), make([]*redis.StringCmd, len(marks))
	_, err := l.s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, m := range marks {
			id, unit, _ := strings.Cut(m.member, ":")
			id, unit = messages.Unescape(id), messages.Unescape(unit)
			states[i] = p.HGet(ctx, l.b.keys.Task(id), unitPrefix(unit)+"state")
			markers[i] = p.HGet(ctx, l.b.keys.Submitted(id), messages.Escape(unit))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read %d delayed tasks: %w", len(marks), err)
	}
	for i, m := range marks {
		id, unit, _ := strings.Cut(m.member, ":")
		_, u := submittedUnit(messages.Unescape(unit), markers[i].Val())
		// One that has joined the stream since is PENDING, and one without a marker is nobody's any more.
		if states[i].Val() != "" || markers[i].Val() == "" || u.State != messages.State_STATE_SCHEDULED ||
			!l.ofType(u.Type) || u.Created.Before(l.q.Since) {
			continue
		}
		u.Due = msTime(strconv.FormatInt(m.ms, 10))
		l.page.Tasks = append(l.page.Tasks, actors.TaskItem{ID: messages.Unescape(id), Unit: *u})
	}
	return nil
}
