package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/deploy/gpu"
)

// version is set by the linker.
var version = "devel"

// Exit codes. Those of run are in its help.
const (
	exitFailed = 1
	exitUsage  = 2
)

// cli is the grammar of the command line.
type cli struct {
	Library string `name:"nvml-library" env:"PAILFS_NVML_LIBRARY" placeholder:"PATH" help:"NVML to load; libnvidia-ml.so.1 where the loader finds it, unless given."`
	State   string `name:"state-dir" env:"PAILFS_GPU_STATE_DIR" default:"/run/pailfs" help:"Where the GPUs seen since the host booted are remembered."`

	Patience time.Duration `name:"driver-patience" default:"30s" hidden:"" help:"How long the driver may take to tell of all GPUs; while it is initialised it takes seconds for each."`

	GPU     gpuCmd     `cmd:"" name:"gpu" help:"Show the GPUs of this host, their health and who uses them."`
	Run     runCmd     `cmd:"" name:"run" help:"Run a command on healthy, free GPUs beside a healthy mount."`
	Version versionCmd `cmd:"" help:"Show the version."`
}

// program is what a command may use of its surroundings.
type program struct {
	cli            *cli
	stdout, stderr io.Writer
}

// exitError is an error with its exit code; without an error nothing is said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}
func (e *exitError) Unwrap() error { return e.err }

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(p program) error {
	_, err := fmt.Fprintf(p.stdout, "pailfs-gpu %s\n", version)
	return err
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run does what the arguments say and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var grammar cli
	answered := false
	parser := kong.Must(&grammar, kong.Name("pailfs"), kong.Description("GPUs of this host, and trainers on them."),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { answered = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Vars{"lockdir": gpu.LockDir})
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if answered {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "pailfs: %v; see pailfs %s --help\n", err, args[0])
		return exitUsage
	}
	err = parsed.Run(program{cli: &grammar, stdout: stdout, stderr: stderr})
	if coded, ok := errors.AsType[*exitError](err); ok {
		if coded.err != nil {
			report(stderr, coded.err)
		}
		return coded.code
	}
	if err != nil {
		report(stderr, err)
		return exitFailed
	}
	return 0
}

// report writes err as one line.
func report(w io.Writer, err error) {
	fmt.Fprintf(w, "pailfs: %s\n", strings.Join(strings.Fields(err.Error()), " "))
}

// interrupted returns a context that ends with the first SIGINT or SIGTERM.
func interrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}
