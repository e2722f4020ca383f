package memstate

import (
	"context"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge/memstream"
)

// Send gives a task a message; see actors.StateDesk.
func (s *State) Send(ctx context.Context, m actors.Mailing) (mailed actors.Mailed, err error) {
	if m, err = m.WithDefaults(); err != nil {
		return mailed, err
	}
	err = s.script(ctx, "send", func(tx *memstream.Tx) (refused error) {
		body := messages.Mail{ContentType: m.ContentType, Payload: m.Payload}
		mailed, refused = m.Answer(tx.Send(m.ID, m.Name, m.MessageID, body, m.TTL))
		return refused
	})
	return mailed, err
}
