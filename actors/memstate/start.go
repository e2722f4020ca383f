package memstate

import (
	"cmp"
	"fmt"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// emissions are what a commit emits, as its script adds them.
func emissions(c actors.Commit, names messages.Names) (out []memstream.Emission, err error) {
	for _, e := range c.Emits {
		keys, err := messages.NewKeys(messages.Names{Stream: e.Stream, Group: names.Group})
		if err != nil {
			return nil, fmt.Errorf("commit: %w", err)
		}
		out = append(out, memstream.Emission{
			Keys: keys, ID: e.Task.ID, Unit: e.Task.Unit, TTL: cmp.Or(e.Task.TTL, markerTTL), Fields: e.Task.Fields,
			Mark: memstream.Mark{Work: e.Task.Work, Type: field(e.Task.Fields, names.Fields.Type)},
		})
	}
	return out, nil
}

// emit adds what the unit emits, or nothing where one of them cannot be.
func (k *committer) emit() error {
	for i, e := range k.emits {
		if k.tx.Taken(e) {
			return k.c.Emits[i].Refused("stream")
		}
	}
	for _, e := range k.emits {
		k.tx.Emit(e)
	}
	return nil
}

// spawn starts the unit's children.
func (k *committer) spawn() {
	kids := make([]memstream.Spawning, 0, len(k.c.Spawns))
	for _, s := range k.c.Spawns {
		kids = append(kids, memstream.Spawning{
			Name: s.Name, ID: s.Task.ID, Unit: s.Task.Unit, Work: s.Task.Work, Type: field(s.Task.Fields, k.names.Type), Fields: s.Task.Fields,
		})
	}
	k.tx.Spawn(k.task, k.unit, kids)
}
