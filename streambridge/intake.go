package streambridge

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-run/weir/messages"
)

// intake makes arrivals of entries. It runs on the goroutines of the reader and of the reaper, never in Receive.
type intake struct {
	decode func([]messages.Pair, messages.Ref, messages.DecodeOptions) (*messages.Task, uint64, error)
	opts   messages.DecodeOptions
	inbox  string
	// serves are the agents of this node; nil serves all.
	serves map[string]bool
}

func newIntake(cfg Config) (*intake, error) {
	keys, err := messages.NewKeys(cfg.Names)
	if err != nil {
		return nil, err
	}
	in := &intake{decode: cfg.Decode, inbox: keys.Inbox(), opts: messages.DecodeOptions{
		Names: cfg.Names.Fields, MaxPayload: cfg.MaxPayload, HashIdentity: cfg.HashIdentity,
	}}
	if cfg.Node.Types != nil {
		in.serves = map[string]bool{}
		for _, name := range cfg.Node.Types {
			in.serves[name] = true
		}
	}
	return in, nil
}

// arrivals decodes a batch and counts its bytes.
func (in *intake) arrivals(entries []Entry) (batch []arrival, bytes, largest int64) {
	if len(entries) == 0 {
		return nil, 0, 0
	}
	batch = make([]arrival, len(entries))
	for i := range entries {
		in.arrival(&batch[i], &entries[i])
		bytes += batch[i].size
		largest = max(largest, batch[i].size)
	}
	return batch, bytes, largest
}

func (in *intake) arrival(a *arrival, e *Entry) {
	a.Ref, a.at, a.deliveries, a.size = e.Ref, placeOf(e.ID), e.Deliveries, e.Size()
	a.task, a.wake, a.bad = in.try(e)
	if a.bad != nil || in.serves == nil || a.task.GetMessage() != "" { // a message needs no agent here
		return
	}
	if agent, _, _ := strings.Cut(a.task.Type, "/"); !in.serves[agent] {
		a.moveTo = agent
	}
}

// try decodes one entry. What a decoder of the host's does wrong concerns this entry only.
func (in *intake) try(e *Entry) (task *messages.Task, wake uint64, bad *messages.DecodeError) {
	defer func() {
		if r := recover(); r != nil {
			task, bad = nil, undecodable(fmt.Sprintf("decoding panicked: %v", r))
		}
	}()
	opts := in.opts
	opts.Inbox = e.Stream == in.inbox
	task, wake, err := in.decode(e.Fields, e.Ref, opts)
	switch {
	case errors.As(err, &bad) && bad != nil:
		return nil, wake, bad
	case err != nil:
		return nil, wake, undecodable(err.Error())
	case task.GetTaskId() == "":
		return nil, wake, undecodable("decoding gave no task id")
	}
	return task, wake, nil
}

func undecodable(detail string) *messages.DecodeError {
	return &messages.DecodeError{Reason: messages.Reason_REASON_UNDECODABLE, Detail: detail}
}
