package redisstream

import (
	"fmt"
	"strconv"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// What a script returns, as go-redis hands it over: strings, int64s and slices of them.

func asString(v any) string {
	s, _ := v.(string)
	return s
}

func asSlice(v any) []any {
	s, _ := v.([]any)
	return s
}

func asInt(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func asStrings(v any) []string {
	in := asSlice(v)
	out := make([]string, len(in))
	for i := range in {
		out[i] = asString(in[i])
	}
	return out
}

// asFields reads the flat list of an entry's names and values.
func asFields(v any) []messages.Pair {
	flat := asSlice(v)
	out := make([]messages.Pair, len(flat)/2)
	for i := range out {
		out[i] = messages.Pair{Name: asString(flat[2*i]), Value: asString(flat[2*i+1])}
	}
	return out
}

// asRow checks that a script answered with at least n parts: less is another script's answer, or a damaged one.
func asRow(v any, n int) ([]any, error) {
	row, ok := v.([]any)
	if !ok || len(row) < n {
		return nil, fmt.Errorf("an answer of type %T with %d parts, where %d belong", v, len(row), n)
	}
	return row, nil
}

// entries reads what a tick handed out, and which of it has a copy beside its task.
func (b *binding) entries(v any) (out []streambridge.Entry, saved []messages.Ref) {
	streams := b.streams()
	for _, e := range asSlice(v) {
		row := asSlice(e)
		if len(row) != 5 {
			continue
		}
		ref := messages.Ref{Stream: streams[asInt(row[0])-1], ID: asString(row[1])}
		out = append(out, streambridge.Entry{Ref: ref, Deliveries: asInt(row[2]), Fields: asFields(row[3])})
		if asInt(row[4]) == 1 {
			saved = append(saved, ref)
		}
	}
	return out, saved
}

// gateOf reads what gate_read returns.
func gateOf(v any) streambridge.Gate {
	row := asSlice(v)
	g := streambridge.Gate{State: streambridge.GateIsOpen}
	if len(row) != 6 {
		return g
	}
	number := func(v any) float64 {
		n, _ := strconv.ParseFloat(asString(v), 64)
		return n
	}
	g.State = streambridge.GateState(asString(row[0]))
	g.Reason = messages.GateReason(asString(row[1]), number(row[2]), number(row[3]))
	g.SinceMS, g.RetryAfterMS = asInt(row[4]), asInt(row[5])
	return g
}
