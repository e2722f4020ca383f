package actors

import (
	"fmt"
	"time"

	"github.com/weir-run/weir/messages"
)

// Stored is the wait as a store keeps it. It refuses one that nothing could end as it is meant.
func (w Wait) Stored() (messages.Wait, error) {
	s := messages.Wait{Closes: w.Closes, Children: w.Children, Need: w.Need, KeepGoing: w.KeepGoing}
	for _, slot := range w.Slots {
		if slot.Nth < 1 {
			return s, fmt.Errorf("wait %.80q: message %.80q has the number %d, they begin at 1", w.Name, slot.Message, slot.Nth)
		}
		s.Slots = append(s.Slots, messages.Slot(slot))
	}
	switch {
	case w.Kind == WaitJoin:
		s.Kind = messages.WaitJoin
	case len(w.Slots) == 0:
		s.Kind = messages.WaitTimer
	case w.Kind == WaitFirst:
		s.Kind = messages.WaitFirst
	case w.Kind == WaitAll:
		s.Kind = messages.WaitAll
	default:
		return s, fmt.Errorf("wait %.80q: nothing is said of what ends it (%d)", w.Name, w.Kind)
	}
	return s, nil
}

// WaitRecord is an open wait.
type WaitRecord struct {
	Name string            `json:"name"`
	Kind messages.WaitKind `json:"kind"`
	// Slots are the messages that it waits for.
	Slots    []messages.Slot `json:"messages,omitempty"`
	Children []string        `json:"children,omitempty"`
	Since    time.Time       `json:"since"`
	// Deadline is when its time is over; zero for a wait without an end.
	Deadline time.Time `json:"deadline,omitzero"`
}

// Record is what a person sees of a wait that lies open; at is when its time is over, zero for never.
func Record(name string, w messages.Wait, at time.Time) WaitRecord {
	return WaitRecord{
		Name: name, Kind: w.Kind, Slots: w.Slots, Children: w.Children, Since: time.UnixMilli(w.SinceMS), Deadline: at,
	}
}
