package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/bench/reader"
	"github.com/pailfs/pailfs/bench/writer"
)

// cli is the grammar of the command line.
type cli struct {
	Run        runCmd        `cmd:"" default:"withargs" help:"Measure workloads, for example: bench read/seq-cold --client pailfs,bare (the default command)."`
	Targets    targetsCmd    `cmd:"" help:"Measure what must be reached, and write the result to bench/results."`
	Record     recordCmd     `cmd:"" help:"Put later results of single targets among those of all, and write the pages anew."`
	Peers      peersCmd      `cmd:"" help:"Measure pailfs beside other clients and the limits: table, pictures and results."`
	Seeds      seedsCmd      `cmd:"" help:"Measure what a published table says of OSS-FUSE and others, and write the table to bench/results."`
	Growth     growthCmd     `cmd:"" help:"Say how latency, memory and requests grow with size, files, depth and readers, and write the table to bench/results."`
	Where      whereCmd      `cmd:"" help:"Say where the time of workloads goes: program, kernel, daemon, server, disk, waiting."`
	Compare    compareCmd    `cmd:"" help:"Say what became faster or slower between two results, and how sure that is."`
	Demo       demoCmd       `cmd:"" help:"Read a real data set cold, warm, from SSD and from the raw disk; check every byte; draw the result."`
	ReadJob    readJobCmd    `cmd:"" hidden:"" help:"Carry out one job given on standard input."`
	WriteJob   writeJobCmd   `cmd:"" hidden:"" help:"Carry out one job of writing given on standard input."`
	NamesJob   namesJobCmd   `cmd:"" hidden:"" help:"List one tree as said on standard input."`
	MemoryTree memoryTreeCmd `cmd:"" hidden:"" help:"Mount a tree of empty files out of memory."`
	Sink       sinkCmd       `cmd:"" hidden:"" help:"Mount a file system that takes files and does next to nothing."`
}

// program is what a command is given.
type program struct {
	ctx            context.Context
	stdout, stderr io.Writer
	args           []string
}

// say writes a line about what is being done.
func (p program) say(format string, args ...any) { fmt.Fprintf(p.stderr, format+"\n", args...) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var grammar cli
	parsed := kong.Parse(&grammar, kong.Name("bench"),
		kong.Description("Measure pailfs beside the disk and a bare client."), kong.UsageOnError(),
		kong.Vars{"fashion": fashionDir})
	if err := parsed.Run(program{ctx: ctx, stdout: os.Stdout, stderr: os.Stderr, args: os.Args}); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		stop()
		os.Exit(1)
	}
}

// readJobCmd is the reading process.
type readJobCmd struct{}

// Run reads a job from standard input and writes its outcome.
func (readJobCmd) Run(p program) error { return reader.Serve(p.ctx, os.Stdin, p.stdout) }

// writeJobCmd is the writing process.
type writeJobCmd struct{}

// Run reads a job from standard input and writes its outcome.
func (writeJobCmd) Run(p program) error {
	process, err := writerProcess()
	if err != nil {
		return err
	}
	return writer.Serve(p.ctx, process.Command, os.Stdin, p.stdout)
}

// writerProcess is how this program starts itself to write.
func writerProcess() (writer.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return writer.Process{}, fmt.Errorf("find own program: %w", err)
	}
	return writer.Process{Command: []string{self, "write-job"}}, nil
}

// readerProcess is how this program starts itself to read.
func readerProcess() (reader.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return reader.Process{}, fmt.Errorf("find own program: %w", err)
	}
	return reader.Process{Command: []string{self, "read-job"}}, nil
}
