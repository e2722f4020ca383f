package cli

import (
	"cmp"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-run/weir/actors"
	"github.com/weir-run/weir/messages"
)

const defaultRedis = "redis://127.0.0.1:6379"

// app is what commands share: the process, and the flags that more than one of them has.
type app struct {
	std  Std
	json bool
	conn connFlags
}

// connFlags say which group of which stream on which Redis is meant.
type connFlags struct {
	redis         string
	stream, group string
	fields        map[string]string
}

const envAnnotation = "weir_env"

// env lets an environment variable stand in for a flag.
func env(fs *pflag.FlagSet, flag string) {
	name := "WEIR_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	f := fs.Lookup(flag)
	f.Usage += " [$" + name + "]"
	f.Annotations = map[string][]string{envAnnotation: {name}}
}

// fromEnvironment sets the flags that the command line did not. An empty variable counts as none.
func fromEnvironment(fs *pflag.FlagSet, getenv func(string) string) error {
	var bad error
	fs.VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[envAnnotation]
		if len(names) == 0 || f.Changed || bad != nil {
			return
		}
		if v := getenv(names[0]); v != "" {
			if err := fs.Set(f.Name, v); err != nil {
				bad = usagef("$%s: %w", names[0], flagCause(err))
			}
		}
	})
	return bad
}

// flagCause drops what pflag says about the flag: the variable is named already.
func flagCause(err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("invalid value %q: %w", invalid.GetValue(), errors.Unwrap(err))
	}
	return err
}

// jsonFlag is for commands that print data.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
}

// groupFlags are for commands that work on one group of a stream.
func (a *app) groupFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	a.redisFlag(cmd, defaultRedis)
	fs.StringVar(&a.conn.stream, "stream", "agent:tasks", "stream of tasks")
	fs.StringVar(&a.conn.group, "group", "agent-workers", "consumer group")
	fs.StringToStringVar(&a.conn.fields, "fields", nil, "names of the entry's fields, such as task_id=id,payload=body")
	for _, f := range []string{"stream", "group", "fields"} {
		env(fs, f)
	}
}

// redisFlag names the server. The last resort is for the help only.
func (a *app) redisFlag(cmd *cobra.Command, lastResort string) {
	cmd.Flags().StringVar(&a.conn.redis, "redis", "", "Redis as redis://, rediss:// or unix:// URL (default $REDIS_URL, else "+lastResort+")")
	env(cmd.Flags(), "redis")
}

// redisURL is the flag, else $REDIS_URL, else the local one.
func (a *app) redisURL() string {
	return cmp.Or(a.conn.redis, a.std.Getenv("REDIS_URL"), defaultRedis)
}

// names are the flags as the library takes them.
func (a *app) names(consumer string) (actors.Names, error) {
	n := actors.Names{Stream: a.conn.stream, Group: a.conn.group, Consumer: consumer}
	for meaning, name := range a.conn.fields {
		to := fieldByMeaning(&n.Fields, meaning)
		if to == nil {
			return n, usagef("--fields: there is no field %q, only %s", meaning, strings.Join(fieldMeanings(), ", "))
		}
		*to = name
	}
	n = n.WithDefaults()
	if a.conn.stream == "" || a.conn.group == "" {
		return n, usagef("--stream (%q) and --group (%q) must not be empty", a.conn.stream, a.conn.group)
	}
	if err := n.Validate(); err != nil {
		return n, &usageError{err: err}
	}
	return n, nil
}

// fieldByMeaning finds a field by its default name, which is also its meaning.
func fieldByMeaning(f *messages.FieldNames, meaning string) *string {
	return map[string]*string{
		"task_id": &f.TaskID, "type": &f.Type, "payload": &f.Payload, "step": &f.Step, "attempt": &f.Attempt,
		"created_at": &f.CreatedAt, "content_type": &f.ContentType, "event_id": &f.EventID, "source": &f.Source,
		"traceparent": &f.TraceParent, "message": &f.Message, "root": &f.Root, "due": &f.Due,
	}[meaning]
}

func fieldMeanings() []string {
	all := []string{"task_id", "type", "payload", "step", "attempt", "created_at", "content_type", "event_id", "source", "traceparent", "message", "root", "due"}
	sort.Strings(all)
	return all
}
