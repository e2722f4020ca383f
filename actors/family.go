package actors

import (
	"fmt"
	"strings"

	"github.com/weir-run/weir/messages"
)

// ParentRecord says whose child a unit is.
type ParentRecord struct {
	ID   string `json:"task_id"`
	Unit string `json:"unit,omitempty"`
	// Name is that of the Spawn.
	Name string `json:"name"`
}

// Parent reads what a child's record says of its parent: "<escaped id>:<escaped unit>:<escaped name>". nil for nothing.
func Parent(stored string) *ParentRecord {
	f := strings.SplitN(stored, ":", 3)
	if len(f) != 3 {
		return nil
	}
	return &ParentRecord{ID: messages.Unescape(f[0]), Unit: messages.Unescape(f[1]), Name: messages.Unescape(f[2])}
}

// ChildRecord is a child as its parent's checkpoints have it.
type ChildRecord struct {
	// Name is that of its Spawn.
	Name string `json:"name"`
	// ID is the child's task; it is known while the child is open.
	ID string `json:"task_id,omitempty"`
	// State is that of its end; 0 while the child is open.
	State messages.State `json:"-"`
	Error string         `json:"error,omitempty"`
}

// Children are the children of a unit, as its Steps tell: in the order of their spawns. A unit that has ended does not hear
// any more of those that were open then; one that has FAILED does.
func (u *UnitRecord) Children() (all []ChildRecord) {
	for _, s := range u.Steps {
		switch s.Status {
		case messages.StepSpawned:
			all = append(all, ChildRecord{Name: s.Name, ID: string(s.Value)})
		case messages.StepChild:
			c := ChildRecord{Name: s.Name, State: messages.State_STATE_SUCCEEDED, Error: s.Error}
			if s.Error != "" {
				c.State = taskErrorOf("", s.Error).State
			}
			all = append(all, c)
		default: // a step, or a wait
		}
	}
	return all
}

// Refused is why a store does not add an emission: what its stream's key is, "stream" or "none" where the id is taken there
// by other work.
func (e Emission) Refused(kind string) error {
	if kind == "stream" || kind == "none" {
		return fmt.Errorf("%w: task %.80q to %q: %w", ErrNotEmitted, e.Task.ID, e.Stream, ErrConflict)
	}
	return fmt.Errorf("%w: task %.80q to %q: the key is a %s and no stream", ErrNotEmitted, e.Task.ID, e.Stream, kind)
}
