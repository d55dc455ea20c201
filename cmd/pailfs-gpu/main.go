package main

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/internal/manual"
	"github.com/pailfs/pailfs/deploy/gpu"
)

// version is set by the linker.
var version = "devel"

// cli is the grammar of the command line.
type cli struct {
	Library string `name:"nvml-library" env:"PAILFS_NVML_LIBRARY" placeholder:"PATH" help:"NVML to load; libnvidia-ml.so.1 where the loader finds it, unless given."`
	State   string `name:"state-dir" env:"PAILFS_GPU_STATE_DIR" default:"/run/pailfs" help:"Where the GPUs seen since the host booted are remembered."`

	Patience time.Duration `name:"driver-patience" default:"30s" hidden:"" help:"How long the driver may take to tell of all GPUs; while it is initialised it takes seconds for each."`

	GPU     gpuCmd     `cmd:"" name:"gpu" help:"Show the GPUs of this host, their health and who uses them."`
	Run     runCmd     `cmd:"" name:"run" help:"Run a command on healthy, free GPUs beside a healthy mount."`
	Version versionCmd `cmd:"" help:"Show the version."`
	Manual  manualCmd  `cmd:"" hidden:"" help:"Write the manual pages into a directory."`
}

// program is what a command may use of its surroundings.
type program struct {
	command.Program
	cli *cli
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(p program) error {
	_, err := fmt.Fprintf(p.Stdout, "pailfs-gpu %s\n", p.Version)
	return err
}

// manualCmd writes the pages that pailfs manual leaves to this program.
type manualCmd struct {
	Dir string `arg:"" placeholder:"DIR" help:"Directory to write into; it must exist."`
}

// Run writes the pages.
func (c manualCmd) Run(p program, parsed *kong.Context) error {
	pages := manual.Commands(parsed.Model, p.Version)
	// pailfs has a page of its own for the command version.
	return manual.Write(c.Dir, slices.DeleteFunc(pages, func(page manual.Page) bool { return page.File == "pailfs-version.1" }))
}

func main() {
	os.Exit(run(command.Started("pailfs", version)))
}

// run does what the arguments say and returns the exit code. The program is called pailfs, for
// that is what its users call.
func run(p command.Program) int {
	grammar := new(cli)
	return p.Run("GPUs of this host, and trainers on them.", grammar,
		kong.Vars{"lockdir": gpu.LockDir}, kong.Bind(program{p, grammar}))
}
