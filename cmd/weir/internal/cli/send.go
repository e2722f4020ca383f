package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-run/weir/actors"
)

// sendView is what `weir send` prints.
type sendView struct {
	TaskID    string `json:"task_id"`
	Name      string `json:"name"`
	MessageID string `json:"message_id,omitempty"`
	// Known says that this very message was there before.
	Known bool `json:"known"`
	// TaskKnown is false when nothing is known of the task yet: the message waits for it.
	TaskKnown bool `json:"task_known"`
}

type sendFlags struct {
	name, messageID, payload, contentType string
	maxPayload                            int
}

func (a *app) sendCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send ID --name NAME",
		Short: "Send a message to a task, such as the approval that it waits for",
		Long: `Send a message to a task, such as the approval that it waits for. It may come before the task waits for it, and before there
is the task. The first message of a name counts; with --message-id each id is another message. What comes second, too
late, or after the task's end is refused: exit code 1.`,
		Example: `  weir send order-17 --name approve --payload '{"By":"ann"}'`,
		Args:    oneArg("task"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.name == "":
				return usagef("--name is missing")
			case isJSON(f.contentType) && !json.Valid([]byte(f.payload)):
				return usagef("--payload is not JSON (say --content-type text/plain for text)")
			}
			d, err := a.openDesk(cmd.Context(), actors.MaxPayload(f.maxPayload))
			if err != nil {
				return err
			}
			defer d.close()
			v := sendView{TaskID: args[0], Name: f.name, MessageID: f.messageID}
			var opts []actors.SendOption
			if f.messageID != "" {
				opts = append(opts, actors.MessageID(f.messageID))
			}
			task := d.client.Task(v.TaskID)
			err = task.Send(cmd.Context(), f.name, actors.Raw{ContentType: f.contentType, Bytes: []byte(f.payload)}, opts...)
			if v.Known = errors.Is(err, actors.ErrRepeated); err != nil && !v.Known {
				return err
			}
			if _, err = task.Status(cmd.Context()); err != nil && !errors.Is(err, actors.ErrNoTask) {
				return err
			}
			v.TaskKnown = err == nil
			if a.json {
				return a.printJSON(v)
			}
			return a.showSend(v)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "the message's name, as the task awaits it")
	fs.StringVar(&f.messageID, "message-id", "", "tells messages of one name apart (default: only the first counts)")
	fs.StringVar(&f.payload, "payload", "{}", "payload")
	fs.StringVar(&f.contentType, "content-type", "application/json", "media type of --payload")
	fs.IntVar(&f.maxPayload, "max-payload", 1<<20, "largest payload in bytes; what the workers allow")
	env(fs, "max-payload")
	a.groupFlags(cmd)
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) showSend(v sendView) error {
	name := oneLine(v.Name, 256)
	if v.MessageID != "" {
		name = fmt.Sprintf("%s (%s)", name, oneLine(v.MessageID, 256))
	}
	text := fmt.Sprintf("task %s has the message %s", oneLine(v.TaskID, 1024), name)
	switch {
	case !v.TaskKnown:
		text += "; nothing is known of such a task yet, and the message waits for it"
	case v.Known:
		text += " already"
	}
	_, err := fmt.Fprintln(a.std.Out, text)
	return err
}
