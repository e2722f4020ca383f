package redisstream

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

// Ack acknowledges entries; those of the inbox, which nobody else reads, are deleted with it.
func (s *Stream) Ack(ctx context.Context, refs []messages.Ref) error {
	b, err := s.open("ack")
	if err != nil {
		return err
	}
	for len(refs) > 0 {
		n := min(len(refs), 2*chunk)
		if err := s.ack(ctx, b, refs[:n]); err != nil {
			return fmt.Errorf("ack %d entries: %w", len(refs), err)
		}
		refs = refs[n:]
	}
	return nil
}

func (s *Stream) ack(ctx context.Context, b *binding, refs []messages.Ref) error {
	inbox := b.keys.Inbox()
	var public, own []string
	for _, r := range refs {
		if r.Stream == inbox {
			own = append(own, r.ID)
		} else {
			public = append(public, r.ID)
		}
	}
	copies := s.copied(refs)
	if len(own) == 0 && len(copies) == 0 {
		return b.rdb.XAck(ctx, b.keys.Stream, b.names.Group, public...).Err()
	}
	// In this order: an entry that is deleted and pending is one that a foreigner seems to have deleted.
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		if len(public) > 0 {
			p.XAck(ctx, b.keys.Stream, b.names.Group, public...)
		}
		if len(own) > 0 {
			p.XAck(ctx, inbox, b.names.Group, own...)
			p.XDel(ctx, inbox, own...)
		}
		if len(copies) > 0 {
			p.HDel(ctx, b.keys.Prefix+"saved", copies...)
		}
		return nil
	})
	if err == nil {
		s.forget(refs)
	}
	return err
}

// copied names those of refs that have a copy beside their task.
func (s *Stream) copied(refs []messages.Ref) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.saved) == 0 {
		return nil
	}
	var out []string
	for _, r := range refs {
		if _, ok := s.saved[r]; ok {
			out = append(out, r.Stream+"\x00"+r.ID)
		}
	}
	return out
}

func (s *Stream) remember(refs []messages.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range refs {
		s.saved[r] = struct{}{}
	}
}

func (s *Stream) forget(refs []messages.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.saved) == 0 {
		return
	}
	for _, r := range refs {
		delete(s.saved, r)
	}
}

// Bury sets entries aside as dead letters, one script each. After an error those before the failing one are buried;
// repeating all is harmless.
func (s *Stream) Bury(ctx context.Context, dead []streambridge.Burial) error {
	b, err := s.open("bury")
	if err != nil {
		return err
	}
	for i, d := range dead {
		_, err := b.run(ctx, buryScript, []string{d.Stream}, b.keys.Prefix, b.names.Group, b.node.Consumer, s.deadTTL.Load(),
			d.ID, reasonName(d.Reason), d.Detail, d.TaskID, d.Unit, d.Type, name(d.TaskID, d.Unit), flag(d.Fail), d.Wake)
		if err != nil {
			return fmt.Errorf("bury %d entries, %s first: %w", len(dead)-i, d.ID, err)
		}
		s.forget([]messages.Ref{d.Ref})
	}
	return nil
}

// Move gives entries to the stream of an agent type, one script each. After an error those before the failing one have
// moved; repeating all is harmless.
func (s *Stream) Move(ctx context.Context, agentType string, entries []streambridge.Held) error {
	b, err := s.open("move")
	if err != nil {
		return err
	}
	for i, e := range entries {
		_, err := b.run(ctx, moveScript, []string{e.Stream, b.keys.Stream}, b.keys.Prefix, b.names.Group, b.node.Consumer,
			e.ID, e.TaskID, agentType)
		if err != nil {
			return fmt.Errorf("move %d entries of type %q, %s first: %w", len(entries)-i, agentType, e.ID, err)
		}
		s.forget([]messages.Ref{e.Ref})
	}
	return nil
}

// Deliver gives messages to their tasks, one script each; see streambridge.Upkeep. One for a task that has waited for
// nothing is kept for 7 days.
func (s *Stream) Deliver(ctx context.Context, mail []streambridge.Mail) (receipts []messages.Receipt, err error) {
	b, err := s.open("deliver")
	if err != nil {
		return nil, err
	}
	for i, m := range mail {
		reply, err := b.run(ctx, deliverScript, []string{m.Stream}, b.keys.Prefix, b.names.Group, b.node.Consumer, s.deadTTL.Load(),
			m.ID, m.TaskID, m.Name, m.MessageID, m.ContentType, m.Payload, messages.MailTTL.Milliseconds(), messages.MaxUnread)
		if err != nil {
			return receipts, fmt.Errorf("deliver %d messages, %s first: %w", len(mail)-i, m.ID, err)
		}
		receipts = append(receipts, messages.Receipt(asInt(reply)))
		s.forget([]messages.Ref{m.Ref})
	}
	return receipts, nil
}

func flag(v bool) string {
	if v {
		return "1"
	}
	return "0"
}
