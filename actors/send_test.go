package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-run/weir/actors"
)

func (d *desk) Send(_ context.Context, m actors.Mailing) (actors.Mailed, error) {
	d.mail = append(d.mail, m)
	if d.sent != nil {
		return d.sent(m)
	}
	return actors.Mailed{Nth: 1}, nil
}

func TestSend(t *testing.T) {
	d := &desk{}
	task := client(t, d).Task("o-1")
	require.NoError(t, task.Send(t.Context(), "approve", approval{By: "ada"}))
	require.NoError(t, task.Send(t.Context(), "cancel", nil, actors.MessageID("m-1"), actors.KeepMessage(time.Hour)))
	require.NoError(t, task.Send(t.Context(), "file", actors.Raw{ContentType: "image/png", Bytes: []byte{1}}))
	require.Equal(t, []actors.Mailing{
		{ID: "o-1", Name: "approve", ContentType: "application/json", Payload: []byte(`{"Granted":false,"By":"ada"}`)},
		{ID: "o-1", Name: "cancel", MessageID: "m-1", TTL: time.Hour},
		{ID: "o-1", Name: "file", ContentType: "image/png", Payload: []byte{1}},
	}, d.mail)
}

// Nothing that can never count is sent.
func TestBadMessages(t *testing.T) {
	d := &desk{}
	task := client(t, d, actors.MaxPayload(10)).Task("o-1")
	for name, send := range map[string]func() error{
		"no name":          func() error { return task.Send(t.Context(), "", 1) },
		"a long name":      func() error { return task.Send(t.Context(), strings.Repeat("x", 257), 1) },
		"not UTF-8":        func() error { return task.Send(t.Context(), "\xff", 1) },
		"unstorable":       func() error { return task.Send(t.Context(), "m", make(chan int)) },
		"an empty id":      func() error { return task.Send(t.Context(), "m", 1, actors.MessageID("")) },
		"kept for no time": func() error { return task.Send(t.Context(), "m", 1, actors.KeepMessage(0)) },
	} {
		require.ErrorIs(t, send(), actors.ErrInvalid, name)
	}
	require.ErrorIs(t, task.Send(t.Context(), "m", strings.Repeat("x", 11)), actors.ErrTooLarge)
	require.Empty(t, d.mail)
}

// The second of two is told so, and so is who repeats what counted.
func TestSendIsTold(t *testing.T) {
	answered := fmt.Errorf("message: %w", actors.ErrAnswered)
	for name, c := range map[string]struct {
		mailed actors.Mailed
		err    error
		is     []error
		isNot  []error
	}{
		"another came first": {actors.Mailed{Nth: 1}, answered, []error{actors.ErrAnswered}, []error{actors.ErrRepeated}},
		"itself":             {actors.Mailed{Nth: 1, Known: true}, answered, []error{actors.ErrAnswered, actors.ErrRepeated}, nil},
		"the end":            {actors.Mailed{}, actors.ErrEnded, []error{actors.ErrEnded}, []error{actors.ErrAnswered}},
		"no answer":          {actors.Mailed{}, errors.New("i/o timeout"), nil, []error{actors.ErrAnswered, actors.ErrEnded}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &desk{sent: func(actors.Mailing) (actors.Mailed, error) { return c.mailed, c.err }}
			err := client(t, d).Task("o-1").Send(t.Context(), "approve", true)
			require.Error(t, err)
			for _, is := range c.is {
				require.ErrorIs(t, err, is)
			}
			for _, not := range c.isNot {
				require.NotErrorIs(t, err, not)
			}
		})
	}
}
