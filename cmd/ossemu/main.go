package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the linker.
var version = "devel"

func main() {
	if os.Getenv("GOGC") == "" {
		// A small server that answers tens of thousands of requests a second would
		// spend a tenth of its time collecting a few megabytes again and again.
		debug.SetGCPercent(400)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// cli is the grammar of the command line.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Serve a directory until SIGTERM."`
	Fill    fillCmd    `cmd:"" help:"Store many small objects, past the protocol."`
	Version versionCmd `cmd:"" help:"Show the version."`
}

const description = `An object storage server that speaks the OSS protocol over a local directory, with latency, bandwidth and faults on demand.`

// surroundings are what a command needs beside its flags.
type surroundings struct {
	ctx            context.Context //nolint:containedctx // handed to one command, which runs until it ends
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	var grammar cli
	exit := -1
	parser, err := kong.New(&grammar,
		kong.Name("ossemu"),
		kong.Description(description),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exit = code }),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100}),
		kong.ExplicitGroups(flagGroups),
	)
	if err != nil {
		fmt.Fprintf(stderr, "ossemu: %v\n", err)
		return 1
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if exit >= 0 {
		return exit
	}
	if err != nil {
		fmt.Fprintf(stderr, "ossemu: %v; see ossemu serve --help\n", err)
		return 2
	}
	if err := parsed.Run(surroundings{ctx, os.Stdin, stdout, stderr, getenv}); err != nil {
		fmt.Fprintf(stderr, "ossemu: %v\n", err)
		if errors.Is(err, errUsage) {
			return 2
		}
		return 1
	}
	return 0
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(s surroundings) error {
	fmt.Fprintf(s.stdout, "ossemu %s\n", version)
	return nil
}
