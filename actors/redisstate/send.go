package redisstate

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

// letterTTL is how long a dead letter is kept where the caller cannot say: 30 days.
const letterTTL = 30 * 24 * time.Hour

// Send gives a task a message; see actors.StateDesk.
func (s *State) Send(ctx context.Context, m actors.Mailing) (actors.Mailed, error) {
	b, err := s.binding()
	if err == nil {
		m, err = m.WithDefaults()
	}
	if err != nil {
		return actors.Mailed{}, err
	}
	reply, err := s.batch.do(ctx, sendScript, []string{b.keys.Task(m.ID)}, b.keys.Prefix, messages.Escape(m.Name),
		messages.Escape(m.MessageID), m.ContentType, string(m.Payload), number(ttlMS(m.TTL)), number(messages.MaxUnread),
		number(letterTTL.Milliseconds()))
	if err != nil {
		return actors.Mailed{}, fmt.Errorf("send message %.80q to task %.80q: %w", m.Name, m.ID, err)
	}
	r := replyReader{list: asList(reply)}
	what, nth := messages.Receipt(r.int()), int(r.int())
	if r.err != nil {
		return actors.Mailed{}, fmt.Errorf("send message %.80q to task %.80q: %w", m.Name, m.ID, r.err)
	}
	return m.Answer(what, nth)
}
