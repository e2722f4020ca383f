package redisstate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// Begin takes the fence of a unit, or says why not; see actors.StateStore.
func (s *State) Begin(ctx context.Context, req actors.BeginRequest) (actors.Begun, error) {
	b, err := s.binding()
	if err != nil {
		return actors.Begun{}, err
	}
	t := req.Task
	args := []string{
		b.keys.Prefix, b.group, req.Entry.ID, req.Consumer, req.Incarnation, run(req.Incarnation, req.Activation),
		messages.WorkHash(t.GetType(), t.GetPayload()), t.GetType(),
	}
	tooOften := req.MaxDeliveries > 0 && req.Deliveries > req.MaxDeliveries
	if req.Wake != 0 || t.GetUnit() != "" || tooOften || req.Crash != "" || req.Trial || !req.Due.IsZero() {
		deliveries, trial := int64(0), ""
		if tooOften {
			deliveries = req.Deliveries
		}
		if req.Trial {
			trial = "1"
		}
		args = append(args, strconv.FormatUint(req.Wake, 10), unitPrefix(t.GetUnit()), number(deliveries), clip(req.Crash), trial)
		if !req.Due.IsZero() {
			args = append(args, number(ceilMS(req.Due)))
		}
	}
	reply, err := s.batch.do(ctx, beginScript,
		[]string{b.keys.Task(t.GetTaskId()), req.Entry.Stream, b.keys.Node(req.Incarnation)}, args...)
	if err == nil {
		var begun actors.Begun
		if begun, err = decodeBegun(reply); err == nil {
			begun.Fence.Incarnation, begun.Fence.Activation = req.Incarnation, req.Activation
			return begun, nil
		}
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") { // asked again, it would say the same for ever
		return actors.Begun{Answer: actors.Unreadable, Detail: fmt.Sprintf("the key %s or one beside it: %v", b.keys.Task(t.GetTaskId()), err)}, nil
	}
	return actors.Begun{}, fmt.Errorf("begin task %.80q: %w", t.GetTaskId(), err)
}

func run(incarnation string, activation uint64) string {
	return incarnation + ":" + strconv.FormatUint(activation, 10)
}

// decodeBegun reads what begin.lua returns; its head describes the shapes.
func decodeBegun(reply any) (b actors.Begun, err error) {
	if created, ok := reply.(string); ok {
		return actors.Begun{Answer: actors.Run, Fence: actors.Fence{Number: 1}, Created: msTime(created)}, nil
	}
	r := replyReader{list: asList(reply)}
	b.Answer = actors.Answer(r.int())
	switch b.Answer {
	case actors.Later:
		b.Wait = time.Duration(r.int()) * time.Millisecond
	case actors.Run, actors.Condemned:
		b.Fence.Number = uint64(r.int())
		b.Created = time.UnixMilli(r.int())
		for _, n := range []*int64{
			&b.Ledger.Failures, &b.Ledger.Crashes, &b.Ledger.Timeouts, &b.Ledger.Deaths, &b.Ledger.Blamed,
			&b.Ledger.Interruptions, &b.Ledger.Waits,
		} {
			*n = r.int()
		}
		b.Ledger.Classes = actors.ErrorClasses(r.string())
		b.Steps = r.int() != 0
		b.Trial = r.int() != 0
		if b.Answer == actors.Condemned {
			b.Reason = reasonFrom(r.string())
			b.Detail = r.string()
		}
	case actors.AlreadyDone, actors.Elsewhere, actors.Queued, actors.CancelledBefore, actors.Conflict, actors.NotOurs:
	default:
		return b, fmt.Errorf("answer %d is not known here", b.Answer)
	}
	return b, r.err
}

// replyReader takes a script's reply apart; the first surprise stays in err.
type replyReader struct {
	list []any
	err  error
}

func asList(reply any) []any {
	l, _ := reply.([]any)
	return l
}

func (r *replyReader) next() any {
	if len(r.list) == 0 {
		if r.err == nil {
			r.err = fmt.Errorf("the reply is too short")
		}
		return nil
	}
	v := r.list[0]
	r.list = r.list[1:]
	return v
}

func (r *replyReader) int() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil && r.err == nil {
			r.err = fmt.Errorf("%.20q is not a number", v)
		}
		return n
	}
	return 0
}

func (r *replyReader) string() string {
	v, _ := r.next().(string)
	return v
}
