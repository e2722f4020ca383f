package memstate_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/actors/redisstate"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
	"github.com/weir-run/weir/streambridge/redisstream"
	"github.com/weir-run/weir/streambridge/redistest"
)

const nodes = 3

// Redis is the judge: whatever three nodes, their agents, their operators and foreigners do, memory answers the same.
func TestMemoryAnswersAsRedisDoes(t *testing.T) {
	client := redistest.Shared(t).Client()
	rapid.Check(t, func(t *rapid.T) {
		name := redistest.Name(tb{t})
		real := &side{t: t, names: messages.Names{Stream: name}.WithDefaults()}
		real.make = func() (adapter, actors.State) { return redisstream.New(client), redisstate.New(client) }
		ctx := context.Background()
		real.remove = func(ref messages.Ref) { require.NoError(t, client.XDel(ctx, ref.Stream, ref.ID).Err()) }
		real.trim = func(n int) { require.NoError(t, client.XTrimMaxLen(ctx, name, int64(n)).Err()) }
		real.lose = func() {
			keys, err := messages.NewKeys(real.names)
			require.NoError(t, err)
			for _, stream := range []string{name, keys.Inbox()} {
				require.NoError(t, client.XGroupDestroy(ctx, stream, real.names.Group).Err())
			}
		}
		real.pass = func(d time.Duration) {
			keys, err := messages.NewKeys(real.names)
			require.NoError(t, err)
			for _, m := range client.ZRange(ctx, keys.Due(), 0, -1).Val() {
				require.NoError(t, client.ZIncrBy(ctx, keys.Due(), -float64(d.Milliseconds()), m).Err())
			}
		}
		sides := []*side{memory(t, name), real.start()}
		defer func() {
			for _, s := range sides {
				for i := range s.nodes {
					s.close(i)
				}
			}
		}()
		for range rapid.IntRange(1, 60).Draw(t, "moves") {
			m := draw(t)
			got := m.do(sides[0])
			require.Equal(t, m.do(sides[1]), got, "%s", m.name)
			for _, look := range []func(*side) any{
				func(s *side) any { return s.status() },
				func(s *side) any { _, shown := s.letters(); return shown },
				func(s *side) any { return []string{s.record("a"), s.record("b{}:"), s.record("c")} },
				func(s *side) any { return s.lists() },
			} {
				got := look(sides[0])
				require.Equal(t, look(sides[1]), got, "after %s", m.name)
			}
		}
	})
}

// tb lets redistest name a stream after the property.
type tb struct{ *rapid.T }

func (tb) Cleanup(func()) {}

// move is something that happens to both sides; do returns what can be seen of it.
type move struct {
	name string
	do   func(s *side) any
}

func draw(t *rapid.T) move {
	node := rapid.IntRange(0, nodes-1).Draw(t, "node")
	pick := rapid.IntRange(0, 5).Draw(t, "pick")
	// of runs f for the picked entry of the node's, if it has any.
	of := func(f func(s *side, m *member, h *holding) any) func(s *side) any {
		return func(s *side) any {
			m := s.nodes[node]
			if len(m.held) == 0 {
				return "nothing held"
			}
			return f(s, m, m.held[pick%len(m.held)])
		}
	}
	kind := rapid.SampledFrom([]string{
		"nothing", "submit", "submit", "read", "read", "read", "begin", "begin", "begin", "begin", "begin", "begin", "begin", "begin",
		"begin", "step", "commit", "commit", "commit", "ack", "beat", "beat", "tick", "sweep", "release", "kill", "kill", "kill", "kill", "kill",
		"bury", "move", "settle", "remove", "trim", "lose", "cancel", "cancel", "take", "take", "quiet",
		"send", "send", "send", "post", "deliver", "deliver", "pass", "pass", "work", "work", "work", "work", "work", "work",
	}).Draw(t, "kind")
	ctx := context.Background()
	var do func(s *side) any
	switch kind {
	case "nothing":
		do = func(*side) any { return nil }
	case "submit":
		sub := submission(t)
		do = func(s *side) any {
			got, err := s.nodes[node].state.Submit(ctx, []actors.Submission{sub})
			require.NoError(s.t, err)
			if sub.Delay == time.Millisecond {
				moment()
			}
			return fmt.Sprint(s.ref(messages.Ref{Stream: s.names.Stream, ID: got[0].EntryID}), got[0].Known, got[0].ID, got[0].Unit,
				got[0].Due.IsZero(), failure(got[0].Err))
		}
	case "read":
		n := rapid.IntRange(1, 3).Draw(t, "count")
		do = func(s *side) any {
			got, err := s.nodes[node].stream.Read(ctx, n, -1)
			s.take(node, got)
			return fmt.Sprint(s.entries(got), failure(err))
		}
	case "begin":
		fresh, crash := rapid.Bool().Draw(t, "fresh actor"), rapid.SampledFrom([]string{"", "", "boom"}).Draw(t, "crash")
		trial := rapid.Bool().Draw(t, "trial")
		do = of(func(s *side, m *member, h *holding) any {
			if fresh {
				m.acts++
				h.act = m.acts
			}
			b, err := m.state.Begin(ctx, actors.BeginRequest{
				Task: h.task, Entry: h.Ref, Deliveries: h.Deliveries, Wake: h.wake, Consumer: m.node.Consumer,
				Incarnation: m.node.Incarnation, Activation: h.act, Crash: crash, MaxDeliveries: 3, Trial: trial, Due: h.task.Due(s.names.Fields),
			})
			require.NoError(s.t, err)
			switch b.Answer {
			case actors.Run, actors.Condemned:
				h.begun = b
			case actors.Queued:
				m.drop(h.Ref)
			default: // it stays pending
			}
			return s.begun(b)
		})
	case "step":
		step := messages.Step{
			Name: rapid.SampledFrom([]string{"s1", "s:2"}).Draw(t, "step"), Attempts: 1, Value: make([]byte, rapid.SampledFrom([]int{0, 70}).Draw(t, "size")),
			Status: rapid.SampledFrom([]messages.StepStatus{messages.StepDone, messages.StepFound, messages.StepSpent}).Draw(t, "status"),
		}
		do = of(func(s *side, m *member, h *holding) any {
			err := m.state.Checkpoint(ctx, actors.Checkpoint{TaskID: h.task.GetTaskId(), Unit: h.task.GetUnit(), Fence: h.begun.Fence, Step: step})
			steps, err2 := m.state.Steps(ctx, h.task.GetTaskId(), h.task.GetUnit())
			require.NoError(s.t, err2)
			return fmt.Sprint(failure(err), timeless(steps))
		})
	case "commit":
		do = commit(t, of)
	case "work":
		do = work(t, node)
	case "ack":
		do = of(func(s *side, m *member, h *holding) any {
			m.drop(h.Ref)
			return failure(m.stream.Ack(ctx, []messages.Ref{h.Ref}))
		})
	case "beat":
		do = func(s *side) any {
			m := s.nodes[node]
			b, err := m.stream.Beat(ctx, m.all())
			for _, h := range m.held {
				for _, ref := range b.Saved {
					h.saved = h.saved || h.Ref == ref
				}
			}
			m.drop(b.Lost...)
			m.drop(b.Gone...)
			return fmt.Sprint(s.sorted(b.Lost), s.sorted(b.Saved), s.sorted(b.Gone), b.Cancelled, b.Usurped, failure(err))
		}
	case "tick", "sweep":
		req := streambridge.TickRequest{Room: rapid.IntRange(0, 5).Draw(t, "room"), MaxDeliveries: 3, StrayAfter: time.Hour, DeadTTL: time.Hour}
		if kind == "sweep" {
			req.StrayAfter = strayAfter
		}
		do = func(s *side) any { return sweep(s, node, req) }
	case "release":
		do = func(s *side) any {
			m := s.nodes[node]
			n, err := m.stream.Release(ctx, m.all())
			again, err2 := m.stream.Release(ctx, m.all())
			s.close(node)
			s.open(node)
			return fmt.Sprint(n, failure(err), again, failure(err2))
		}
	case "kill":
		do = func(s *side) any {
			s.close(node)
			s.open(node)
			return sweep(s, node, streambridge.TickRequest{Room: 10, StrayAfter: strayAfter, DeadTTL: time.Hour})
		}
	case "take", "quiet":
		do = quota(t, kind, node)
	case "bury":
		fail := rapid.Bool().Draw(t, "fail")
		do = of(func(s *side, m *member, h *holding) any {
			m.drop(h.Ref)
			return failure(m.stream.Bury(ctx, []streambridge.Burial{{
				Ref: h.Ref, Reason: messages.Reason_REASON_BUDGET_SPENT, Detail: "spent", TaskID: h.task.GetTaskId(), Unit: h.task.GetUnit(),
				Type: h.task.GetType(), Fail: fail, Deliveries: h.Deliveries, Wake: h.wake,
			}}))
		})
	case "move":
		do = of(func(s *side, m *member, h *holding) any {
			m.drop(h.Ref)
			return failure(m.stream.Move(ctx, h.task.GetType(), []streambridge.Held{h.beat()}))
		})
	case "settle":
		how := streambridge.Settlement(rapid.IntRange(1, 3).Draw(t, "how"))
		do = func(s *side) any {
			all, _ := s.letters()
			if len(all) == 0 {
				return "no letters"
			}
			id := all[pick%len(all)].GetId()
			stream := s.nodes[node].stream
			return fmt.Sprint(failure(stream.Settle(ctx, id, how)), failure(stream.Settle(ctx, id, how)), failure(stream.Settle(ctx, "1-1", how)))
		}
	case "resolve":
		r := actors.Resolution{
			ID: rapid.SampledFrom([]string{"a", "b{}:", "c"}).Draw(t, "id"), Unit: rapid.SampledFrom([]string{"", "", "u/1"}).Draw(t, "unit"),
			Step: rapid.SampledFrom([]string{"s1", "s1", "s:2"}).Draw(t, "step"), How: actors.Resolving(rapid.IntRange(1, 3).Draw(t, "how")),
			Reason: "why", By: "me", TTL: 2 * time.Hour,
		}
		if r.How == actors.ResolveDone {
			r.ContentType, r.Result = "t", make([]byte, rapid.SampledFrom([]int{0, 70}).Draw(t, "size"))
		}
		do = func(s *side) any {
			err := s.nodes[node].state.Resolve(ctx, r)
			return fmt.Sprint(failure(err), failure(s.nodes[node].state.Resolve(ctx, r)))
		}
	case "cancel":
		c := actors.Cancellation{
			ID: rapid.SampledFrom([]string{"a", "b{}:", "c"}).Draw(t, "id"), Unit: rapid.SampledFrom([]string{"", "", "u/1"}).Draw(t, "unit"),
			Reason: rapid.SampledFrom([]string{"", "enough"}).Draw(t, "reason"), By: rapid.SampledFrom([]string{"", "me"}).Draw(t, "by"),
			TTL: 2 * time.Hour, Type: rapid.SampledFrom([]string{"", "", "x"}).Draw(t, "type"),
		}
		do = func(s *side) any {
			ended, err := s.nodes[node].state.Cancel(ctx, c)
			_, again := s.nodes[node].state.Cancel(ctx, c)
			return fmt.Sprint(ended, failure(err), failure(again))
		}
	case "send":
		m := message(t)
		do = func(s *side) any {
			got, err := s.nodes[node].state.Send(ctx, m)
			again, err2 := s.nodes[node].state.Send(ctx, m)
			return fmt.Sprint(got, failure(err), again, failure(err2))
		}
	case "post":
		m, id := message(t), fmt.Sprint("post ", rapid.IntRange(0, 9999).Draw(t, "copy"))
		do = func(s *side) any {
			_, err := s.nodes[node].state.Submit(ctx, []actors.Submission{{ID: id, Fields: messages.Encode(&messages.Task{
				TaskId: m.ID, Message: m.Name, EventId: m.MessageID, Payload: m.Payload,
			}, messages.FieldNames{})}})
			return failure(err)
		}
	case "deliver":
		do = func(s *side) any {
			m := s.nodes[node]
			mail := m.mail
			m.mail = nil
			got, err := m.stream.Deliver(ctx, mail)
			again, err2 := m.stream.Deliver(ctx, mail)
			return fmt.Sprint(got, failure(err), again, failure(err2))
		}
	case "pass":
		do = func(s *side) any { s.pass(time.Hour); return nil }
	case "remove":
		do = of(func(s *side, _ *member, h *holding) any { s.remove(h.Ref); return nil })
	case "trim":
		do = func(s *side) any { s.trim(pick); return nil }
	case "lose":
		do = func(s *side) any {
			s.lose()
			return nil
		}
	}
	return move{kind, do}
}

// moment lets what comes due next be due later, on both sides: what is due in one millisecond goes by name.
func moment() { time.Sleep(2 * time.Millisecond) }

// strayAfter is longer than a script takes: what a tick hands out is no stray within it.
const strayAfter = 3 * time.Millisecond

// sweep is a tick. What is held is a stray by then, what is due now was due a moment ago.
func sweep(s *side, node int, req streambridge.TickRequest) any {
	time.Sleep(strayAfter + 2*time.Millisecond)
	got, err := s.nodes[node].stream.Tick(context.Background(), req)
	s.take(node, got.Claimed)
	s.take(node, got.Strays)
	return fmt.Sprint(s.entries(got.Claimed), s.entries(got.Strays), s.refs(got.Buried), got.Promoted, got.Joined, got.Trimmed, got.Unserved,
		got.Orphans, got.Calm, got.Nodes, got.More, got.Cancelled, failure(err))
}

// quota takes from buckets whose tokens are minutes apart, or quiets them. The two sides do not do it at the same ms.
func quota(t *rapid.T, kind string, node int) func(*side) any {
	var from []actors.Tokens
	for _, bucket := range rapid.SampledFrom([][]string{{"b"}, {"b"}, {"c:"}, {"b", "c:"}}).Draw(t, "buckets") {
		from = append(from, actors.Tokens{
			Bucket: bucket, N: rapid.IntRange(1, 3).Draw(t, "tokens"),
			Rate: actors.Rate{Tokens: 6, Per: 100 * time.Hour, Burst: rapid.IntRange(0, 3).Draw(t, "burst")},
		})
	}
	d := time.Duration(rapid.IntRange(1, 3).Draw(t, "hours")) * time.Hour
	take := actors.Taking{Effect: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "effect"), Run: rapid.Uint64Range(1, 4).Draw(t, "run"), From: from}
	return func(s *side) any {
		if kind == "quiet" {
			return failure(s.nodes[node].state.Quiet(context.Background(), from, d))
		}
		wait, err := s.nodes[node].state.Take(context.Background(), take)
		return fmt.Sprint(wait.Round(10*time.Minute), failure(err))
	}
}

func submission(t *rapid.T) actors.Submission {
	id := rapid.SampledFrom([]string{"a", "b{}:", "c"}).Draw(t, "id")
	unit := rapid.SampledFrom([]string{"", "", "u/1"}).Draw(t, "unit")
	kind := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "type")
	payload := rapid.SampledFrom([]string{"1", "1", "1", "2"}).Draw(t, "payload")
	sub := actors.Submission{
		ID: id, Unit: unit, Work: messages.WorkHash(kind, []byte(payload)), TTL: time.Hour,
		Fields: messages.Encode(&messages.Task{TaskId: id, Unit: unit, Type: kind, Payload: []byte(payload)}, messages.FieldNames{}),
	}
	// An hour is never over here, a millisecond always by the next tick.
	switch rapid.IntRange(0, 7).Draw(t, "time") {
	case 0:
		sub.Delay = time.Hour
	case 1:
		sub.Delay = time.Millisecond
	case 2:
		sub.At = time.Now().Add(-time.Hour)
	case 3:
		sub.Fields = append(sub.Fields, messages.Pair{Name: "due", Value: strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)})
	case 4:
		sub.Fields = append(sub.Fields, messages.Pair{Name: "due", Value: "soon"})
	}
	if rapid.IntRange(0, 7).Draw(t, "unique") == 0 {
		sub.Unique, sub.For = rapid.SampledFrom([]string{"k", "k:{}"}).Draw(t, "key"), time.Hour
	}
	if rapid.IntRange(0, 7).Draw(t, "limited") == 0 {
		sub.MaxLen = 2
	}
	if rapid.Bool().Draw(t, "by hand") { // a producer's own XADD asks nobody: a marker of its own stands for it
		sub.Fields = append([]messages.Pair{{Name: "task_id", Value: id}}, sub.Fields[1:]...)
		sub.ID = fmt.Sprint(id, rapid.IntRange(0, 9).Draw(t, "copy"))
	}
	return sub
}

// work reads what there is, after a tick, begins all of it and commits what may run: what single moves seldom come to.
func work(t *rapid.T, node int) func(*side) any {
	var sub *actors.Submission
	if rapid.Bool().Draw(t, "submit") {
		s := submission(t)
		sub = &s
	}
	tick, c := rapid.Bool().Draw(t, "tick"), outcome(t)
	c.Outcome = rapid.SampledFrom([]messages.Outcome{c.Outcome, messages.Outcome_OUTCOME_PARKED}).Draw(t, "or parked")
	ctx := context.Background()
	return func(s *side) any {
		m, out := s.nodes[node], []any{}
		if sub != nil {
			_, err := m.state.Submit(ctx, []actors.Submission{*sub})
			require.NoError(s.t, err)
		}
		if tick {
			out = append(out, sweep(s, node, streambridge.TickRequest{Room: 5, StrayAfter: time.Hour, DeadTTL: time.Hour}))
		}
		got, err := m.stream.Read(ctx, 10, -1)
		s.take(node, got)
		out = append(out, s.entries(got), failure(err))
		for _, h := range slices.Clone(m.held) {
			m.acts++
			h.act = m.acts
			b, err := m.state.Begin(ctx, actors.BeginRequest{
				Task: h.task, Entry: h.Ref, Deliveries: h.Deliveries, Wake: h.wake, Consumer: m.node.Consumer,
				Incarnation: m.node.Incarnation, Activation: h.act, MaxDeliveries: 3, Trial: true, Due: h.task.Due(s.names.Fields),
			})
			require.NoError(s.t, err)
			out = append(out, s.begun(b))
			switch b.Answer {
			case actors.Run:
				h.begun = b
				out = append(out, end(s, m, h, c, true))
			case actors.Queued:
				m.drop(h.Ref)
			default: // it stays pending
			}
		}
		return fmt.Sprint(out...)
	}
}

func message(t *rapid.T) actors.Mailing {
	return actors.Mailing{
		ID: rapid.SampledFrom([]string{"a", "a", "b{}:", "c"}).Draw(t, "id"), Name: rapid.SampledFrom([]string{"m", "m", "n:{}"}).Draw(t, "name"),
		MessageID: rapid.SampledFrom([]string{"", "1", "2:"}).Draw(t, "message id"),
		Payload:   []byte(rapid.SampledFrom([]string{"", "yes", strings.Repeat("long", 20)}).Draw(t, "payload")),
	}
}

// waits end after half an hour, two hours, at once or never; what passes here is an hour.
func waits(t *rapid.T) (all []actors.Wait) {
	for range rapid.IntRange(0, 2).Draw(t, "count") {
		w := actors.Wait{
			Name: rapid.SampledFrom([]string{"w:1", "w/2"}).Draw(t, "wait"), Kind: actors.WaitKind(rapid.IntRange(1, 2).Draw(t, "kind")),
			For:    rapid.SampledFrom([]time.Duration{-1, 0, 30 * time.Minute, 30 * time.Minute, 2 * time.Hour}).Draw(t, "for"),
			Closes: rapid.Bool().Draw(t, "closes"),
		}
		for range rapid.IntRange(0, 2).Draw(t, "slots") {
			w.Slots = append(w.Slots, actors.Slot{
				Message: rapid.SampledFrom([]string{"m", "n:{}"}).Draw(t, "message"), Nth: rapid.IntRange(1, 2).Draw(t, "nth"),
			})
		}
		all = append(all, w)
	}
	return all
}

func outcome(t *rapid.T) actors.Commit {
	c := actors.Commit{TTL: 2 * time.Hour, DeadTTL: time.Hour, Index: rapid.Bool().Draw(t, "index")}
	c.Outcome = rapid.SampledFrom([]messages.Outcome{
		messages.Outcome_OUTCOME_COMPLETED, messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_REJECTED,
		messages.Outcome_OUTCOME_CANCELLED, messages.Outcome_OUTCOME_INTERRUPTED, messages.Outcome_OUTCOME_PARKED,
	}).Draw(t, "outcome")
	switch c.Outcome {
	case messages.Outcome_OUTCOME_COMPLETED:
		c.ContentType, c.Result = "text/plain", make([]byte, rapid.SampledFrom([]int{0, 5, 70}).Draw(t, "size"))
	case messages.Outcome_OUTCOME_RETRY, messages.Outcome_OUTCOME_REJECTED:
		c.Error, c.Charge = "why", messages.Charge(rapid.IntRange(0, 6).Draw(t, "charge"))
		c.Classes = rapid.SampledFrom([]actors.ErrorClasses{"", "", "a=1", "a=1 b/timeout=2"}).Draw(t, "classes")
		c.After = rapid.SampledFrom([]time.Duration{0, 0, time.Hour}).Draw(t, "after")
		c.Reason, c.Detail = messages.Reason_REASON_REJECTED, rapid.SampledFrom([]string{"", "detail"}).Draw(t, "detail")
	case messages.Outcome_OUTCOME_PARKED:
		c.Doubt = rapid.SampledFrom([]string{"", "s1", "s1", "s:2"}).Draw(t, "doubt")
	default: // nothing to say
	}
	if rapid.Bool().Draw(t, "waits") {
		c.Waits = waits(t)
	}
	return c
}

func commit(t *rapid.T, of func(func(*side, *member, *holding) any) func(*side) any) func(*side) any {
	c, acked := outcome(t), rapid.Bool().Draw(t, "acked")
	return of(func(s *side, m *member, h *holding) any { return end(s, m, h, c, acked) })
}

// end commits, twice, as after a lost reply.
func end(s *side, m *member, h *holding, c actors.Commit, acked bool) any {
	c.TaskID, c.Unit, c.Type, c.Fence, c.Entry = h.task.GetTaskId(), h.task.GetUnit(), h.task.GetType(), h.begun.Fence, h.Ref
	err := m.state.Commit(context.Background(), c)
	again := m.state.Commit(context.Background(), c)
	if c.Outcome == messages.Outcome_OUTCOME_RETRY || len(c.Waits) > 0 {
		moment()
	}
	if err == nil && acked && c.Outcome != messages.Outcome_OUTCOME_INTERRUPTED {
		m.drop(h.Ref)
		require.NoError(s.t, m.stream.Ack(context.Background(), []messages.Ref{h.Ref}))
	}
	return fmt.Sprint(failure(err), failure(again))
}
