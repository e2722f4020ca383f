package redisstate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// pack writes what a commit starts for its script: its children, and what it emits with the keys that this touches.
func (b *binding) pack(c actors.Commit) (spawns, emits string, keys []string, err error) {
	switch c.Outcome {
	case messages.Outcome_OUTCOME_COMPLETED, messages.Outcome_OUTCOME_PARKED, messages.Outcome_OUTCOME_RETRY:
	default:
		return "", "", nil, nil
	}
	var list packer
	for _, s := range c.Spawns {
		var one packer
		one.add(messages.Escape(s.Name), messages.Escape(s.Task.ID), messages.Escape(s.Task.Unit), s.Task.Work, b.typeOf(s.Task),
			messages.PackFields(s.Task.Fields))
		list.add(one.String())
	}
	spawns = list.String()
	if c.Outcome != messages.Outcome_OUTCOME_COMPLETED {
		return spawns, "", nil, nil
	}
	list = packer{}
	for _, e := range c.Emits {
		there, err := messages.NewKeys(actors.Names{Stream: e.Stream, Group: b.group})
		if err != nil {
			return "", "", nil, err
		}
		keys = append(keys, e.Stream, there.Submitted(e.Task.ID))
		list.add(messages.Escape(e.Task.Unit), e.Task.Work, b.typeOf(e.Task), number(markerMS(e.Task)), messages.PackFields(e.Task.Fields))
	}
	return spawns, list.String(), keys, nil
}

// packer writes a list of netstrings, as messages.PackFields writes pairs of them.
type packer struct{ strings.Builder }

func (p *packer) add(values ...string) {
	for _, v := range values {
		p.WriteString(number(len(v)))
		p.WriteByte(':')
		p.WriteString(v)
		p.WriteByte(',')
	}
}

var errOtherSlot = errors.New("on a cluster what one commit writes must share a hash tag")

// CanEmit says whether a commit can add entries to that stream; see actors.Emission. On a cluster both streams share a hash
// tag. It may be asked before Bind only there where nothing is sharded.
func (s *State) CanEmit(stream string) error {
	switch s.rdb.(type) {
	case *redis.ClusterClient, *redis.Ring:
	default:
		return nil
	}
	b, err := s.binding()
	if err != nil {
		return err
	}
	ours, theirs := hashTag(b.keys.Stream), hashTag(stream)
	if ours == theirs {
		return nil
	}
	return fmt.Errorf("%w: %q has %q and %q has %q: name them {%s}:… both, such as {%s}:%s and {%s}:%s", errOtherSlot,
		b.keys.Stream, ours, stream, theirs, common, common, last(b.keys.Stream), common, last(stream))
}

// common is the tag that a fix is shown with.
const common = "agent"

// hashTag is the part of a stream's name that a cluster shards it by.
func hashTag(stream string) string {
	if i := strings.IndexByte(stream, '{'); i >= 0 {
		if j := strings.IndexByte(stream[i:], '}'); j > 1 {
			return stream[i+1 : i+j]
		}
	}
	return stream
}

// last is the last part of a stream's name, without braces.
func last(stream string) string {
	stream = strings.NewReplacer("{", "", "}", "").Replace(stream)
	return stream[strings.LastIndexByte(stream, ':')+1:]
}
