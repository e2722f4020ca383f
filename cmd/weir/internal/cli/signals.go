package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// errSignal is the cause of a context that a signal ended.
var errSignal = errors.New("interrupted")

// withSignals returns a context that the first SIGINT or SIGTERM ends, with errSignal as the cause: long commands
// then end in order. A second signal ends the process at once.
func withSignals(ctx context.Context, std Std) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-signals:
			cancel(errSignal)
		case <-done:
			return
		}
		select {
		case <-signals:
			fmt.Fprintln(std.Err, "weir: ended at once by a second signal")
			std.Exit(exitFailed)
		case <-done:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		watch.Wait()
		cancel(nil)
	}
}

// signalled reports whether a signal ended the context.
func signalled(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errSignal) }
