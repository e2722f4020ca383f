// Command weir runs, feeds and watches Weir's agents. See `weir help`.
package main

import (
	"context"
	"os"

	"github.com/weir-run/weir/cmd/weir/internal/cli"
)

func main() {
	std := cli.Std{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Exit: os.Exit}
	os.Exit(cli.Main(context.Background(), std, os.Args[1:]))
}
