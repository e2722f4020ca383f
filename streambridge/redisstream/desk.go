package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var (
	errNoFields = errors.New("its entry's body was gone, there is nothing to retry with")
	errTooMany  = fmt.Errorf("its entry has more than %d fields", messages.MaxFields)
	errNotDead  = errors.New("its unit has not failed: it runs, waits, has succeeded or was cancelled")
)

// Status reads the group in one script that writes nothing. States counts what is indexed, SUCCEEDED as a running
// total, RUNNING as what is delivered and not acknowledged, PENDING as what is not yet delivered or waits for a node
// that runs its type.
func (s *Stream) Status(ctx context.Context) (streambridge.Status, error) {
	b, err := s.look("status")
	if err != nil {
		return streambridge.Status{}, err
	}
	reply, err := b.run(ctx, statusScript, b.streams(), b.keys.Prefix, b.names.Group)
	if err != nil {
		return streambridge.Status{}, fmt.Errorf("status of group %q: %w", b.names.Group, err)
	}
	row, err := asRow(reply, 15)
	if err != nil {
		return streambridge.Status{}, fmt.Errorf("status of group %q: %w", b.names.Group, err)
	}
	out := streambridge.Status{
		Stream: b.keys.Stream, Group: b.names.Group,
		Length: asInt(row[0]), Inbox: asInt(row[1]), Lag: asInt(row[2]), Pending: asInt(row[3]),
		Dead: asInt(row[6]), Due: asInt(row[7]), Delayed: asInt(row[13]),
		States:       map[string]int64{"RUNNING": asInt(row[3])},
		StreamExists: asInt(row[11]) == 1, GroupExists: asInt(row[12]) == 1,
		Gate: gateOf(row[14]),
	}
	if id := asString(row[4]); id != "" {
		out.OldestMS = max(asInt(row[5])-msOf(id), 0)
	}
	waiting := int64(0)
	for _, v := range asSlice(row[10]) {
		c := asSlice(v)
		if len(c) != 4 {
			continue
		}
		t := streambridge.TypeWaiting{
			Type: asString(c[0]), Entries: asInt(c[1]), OldestMS: max(asInt(row[5])-msOf(asString(c[2])), 0), Served: asInt(c[3]) == 1,
		}
		waiting += t.Entries
		out.Waiting = append(out.Waiting, t)
	}
	slices.SortFunc(out.Waiting, func(a, b streambridge.TypeWaiting) int { return strings.Compare(a.Type, b.Type) })
	for _, t := range out.Waiting {
		if !t.Served {
			out.Unserved = append(out.Unserved, t.Type)
		}
	}
	if out.Lag >= 0 {
		out.States["PENDING"] = out.Lag + waiting
	}
	states := asSlice(row[8])
	for i := 0; i+1 < len(states); i += 2 {
		out.States[asString(states[i])] = asInt(states[i+1])
	}
	for _, v := range asSlice(row[9]) {
		c := asSlice(v)
		if len(c) != 7 {
			continue
		}
		consumer := streambridge.Consumer{
			Name: asString(c[0]), Incarnation: asString(c[1]), Live: asInt(c[2]) == 1, Pending: asInt(c[3]), IdleMS: asInt(c[4]), Stuck: asInt(c[6]),
		}
		if tick := asInt(c[5]); tick > 0 {
			consumer.LastTickMS = max(asInt(row[5])-tick, 0)
		}
		out.Consumers = append(out.Consumers, consumer)
	}
	return out, nil
}

// msOf is the time half of an entry id.
func msOf(id string) int64 {
	ms, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(ms, 10, 64)
	return n
}

// Letters lists at most n dead letters, oldest first, after the id `after`. Letters without end need several calls.
func (s *Stream) Letters(ctx context.Context, after string, n int) ([]*messages.DeadLetter, error) {
	b, err := s.look("list dead letters")
	if err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, nil
	}
	from := "-"
	if after != "" {
		from = "(" + after
	}
	return b.letters(ctx, from, "+", n)
}

// Letter reads one dead letter, or returns ErrNoLetter.
func (s *Stream) Letter(ctx context.Context, id string) (*messages.DeadLetter, error) {
	b, err := s.look("read a dead letter")
	if err != nil {
		return nil, err
	}
	if !isID(id) {
		return nil, fmt.Errorf("dead letter %q: %w", id, streambridge.ErrNoLetter)
	}
	found, err := b.letters(ctx, id, id, 1)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("dead letter %s: %w", id, streambridge.ErrNoLetter)
	}
	return found[0], nil
}

// isID says whether the server would take id for one entry's id.
func isID(id string) bool {
	ms, seq, ok := strings.Cut(id, "-")
	_, err1 := strconv.ParseUint(ms, 10, 64)
	_, err2 := strconv.ParseUint(seq, 10, 64)
	return ok && err1 == nil && err2 == nil
}

func (b *binding) letters(ctx context.Context, from, to string, n int) ([]*messages.DeadLetter, error) {
	rows, err := b.rdb.XRangeN(ctx, b.keys.Dead(), from, to, int64(n)).Result()
	if err != nil {
		return nil, fmt.Errorf("read dead letters of group %q: %w", b.names.Group, err)
	}
	out := make([]*messages.DeadLetter, 0, len(rows))
	for _, r := range rows {
		l, err := readLetter(r)
		if err != nil {
			return nil, fmt.Errorf("dead letter %s: %w", r.ID, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func readLetter(m redis.XMessage) (*messages.DeadLetter, error) {
	get := func(name string) string { return asString(m.Values[name]) }
	number := func(name string) int64 { return asInt(get(name)) }
	fields, err := messages.UnpackFields(get("fields"))
	if err != nil {
		return nil, err
	}
	l := &messages.DeadLetter{
		Id: m.ID, Reason: reasonOf(get("reason")), Detail: get("detail"), TaskId: get("task_id"), Unit: get("unit"),
		Type: get("type"), AtMs: msOf(m.ID),
		Entry: &messages.Entry{
			Stream: get("stream"), Id: get("entry"), Deliveries: number("deliveries"), Wake: uint64(max(number("wake"), 0)),
		},
	}
	for _, f := range messages.ProducerFields(fields) {
		l.Fields = append(l.Fields, &messages.Field{Name: []byte(f.Name), Value: []byte(f.Value)})
		l.Entry.Size += int64(len(f.Name) + len(f.Value))
	}
	return l, nil
}

const reasonPrefix = "REASON_"

// reasonName is how a reason is written in Redis: BODY_GONE.
func reasonName(r messages.Reason) string { return strings.TrimPrefix(r.String(), reasonPrefix) }

func reasonOf(name string) messages.Reason {
	return messages.Reason(messages.Reason_value[reasonPrefix+strings.TrimPrefix(name, reasonPrefix)])
}

// Settle ends a dead letter. ErrNoLetter when there is none, or it was settled in another way. Repeated within a
// minute, after a lost reply, it succeeds again.
func (s *Stream) Settle(ctx context.Context, id string, how streambridge.Settlement) error {
	b, err := s.look("settle a dead letter")
	if err != nil {
		return err
	}
	var word string
	switch how {
	case streambridge.Retry:
		word = "retry"
	case streambridge.Complete:
		word = "complete"
	case streambridge.Drop:
		word = "drop"
	default:
		return fmt.Errorf("settle dead letter %s: no such settlement: %d", id, how)
	}
	if !isID(id) {
		return fmt.Errorf("%s dead letter %q: %w", word, id, streambridge.ErrNoLetter)
	}
	reply, err := b.run(ctx, settleScript, []string{b.keys.Stream}, b.keys.Prefix, id, word)
	if err != nil {
		return fmt.Errorf("%s dead letter %s: %w", word, id, err)
	}
	switch asInt(reply) {
	case 1:
		return nil
	case 2:
		return fmt.Errorf("%s dead letter %s: %w", word, id, errNoFields)
	case 3:
		return fmt.Errorf("%s dead letter %s: %w", word, id, errNotDead)
	case 4:
		return fmt.Errorf("%s dead letter %s: %w", word, id, errTooMany)
	default:
		return fmt.Errorf("%s dead letter %s: %w", word, id, streambridge.ErrNoLetter)
	}
}
