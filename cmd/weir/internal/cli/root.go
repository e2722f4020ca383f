package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Std is what a command has of its process.
type Std struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	// Exit ends the process at once: what a second signal asks for, and some of the worker's agents.
	Exit func(code int)
}

// usageError is a mistake in how the command was called: exit code 2.
type usageError struct {
	err error
	cmd *cobra.Command
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{err: fmt.Errorf(format, args...)} }

// errSilent is a failure that was shown already: exit code 1 without a word.
var errSilent = errors.New("failed")

// Main runs one command and returns the exit code.
func Main(ctx context.Context, std Std, args []string) int {
	ctx, stop := withSignals(ctx, std)
	defer stop()
	root := newRoot(std) //nolint:contextcheck // commands get it from ExecuteContextC
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	var usage *usageError
	switch {
	case errors.Is(err, errSilent):
		return exitFailed
	case errors.As(err, &usage):
		if usage.cmd != nil {
			cmd = usage.cmd
		}
		fmt.Fprintf(std.Err, "%s: %s (see %s --help)\n", cmd.CommandPath(), oneSentence(err), cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(std.Err, "%s: %s\n", cmd.CommandPath(), oneSentence(err))
		return exitFailed
	}
}

// oneSentence keeps an error on one line, whatever a server or a joined error put into it.
func oneSentence(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

func newRoot(std Std) *cobra.Command {
	a := &app{std: std}
	root := &cobra.Command{
		Use:   "weir",
		Short: "An actor runtime for AI agents fed by Redis Streams",
		Long: `weir runs, feeds and watches agents on Redis Streams.

  weir demo                              see it work, with nothing installed
  weir worker                            run the built-in agent types on a stream
  weir submit --type echo --payload '{}' give them work
  weir status, weir task ID, weir dead   see what became of it
  weir schedule add NAME --every 1h …    have it done by the clock

Exit codes: 0 done, 1 failed, 2 usage. Flags that are marked so can be set by an environment variable instead.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          group,
	}
	root.Version = versionOf(debug.ReadBuildInfo()).String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(std.In)
	root.SetOut(std.Out)
	root.SetErr(std.Err)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{err: err, cmd: cmd} })
	root.AddCommand(a.demoCmd(), a.workerCmd(), a.submitCmd(), a.statusCmd(), a.taskCmd(), a.tasksCmd(), a.sendCmd(), a.cancelCmd(), a.doubtCmd(), a.deadCmd(), a.scheduleCmd(),
		a.benchCmd(), a.versionCmd())
	prepare(root, a)
	return root
}

// group is what a command does that only holds others.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf(", did you mean %q?", near[0])
	}
	return usagef("unknown command %q%s", args[0], hint)
}

// noArgs is for commands that take flags only.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("takes no arguments, and was given %q", args[0])
	}
	return nil
}

// oneArg is for commands that work on one thing.
func oneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("give the id of one %s", what)
		}
		return nil
	}
}

// prepare makes every command's argument errors usage errors, and reads the environment before it runs.
func prepare(cmd *cobra.Command, a *app) {
	cmd.SuggestionsMinimumDistance = 2
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &usageError{err: err, cmd: cmd}
			}
			return nil
		}
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := fromEnvironment(cmd.Flags(), a.std.Getenv); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		prepare(sub, a)
	}
}
