package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// version is set by the linker; without it the build information is asked.
var version = ""

// program is how the process was started: everything that a command may use of
// its surroundings.
type program struct {
	// name is argv[0].
	name string
	// args are the arguments without the name.
	args []string
	// environ is the environment, as [os.Environ] gives it.
	environ        []string
	stdout, stderr io.Writer
	// parent is the process that waits for a detached daemon, nil in all others.
	parent *parentLink
}

func main() {
	p := program{name: os.Args[0], args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	var err error
	if p.parent, err = linkToParent(p.environ); err != nil {
		report(p.stderr, err)
		os.Exit(exitFailed)
	}
	os.Exit(p.run())
}

// run does what the arguments say and returns the exit code.
func (p program) run() int {
	if p.isMountHelper() {
		return p.runMountHelper()
	}
	err := p.runCommand()
	if err != nil && !p.reportToParent(err) {
		report(p.stderr, err)
	}
	return exitCode(err)
}

// isMountHelper reports whether mount(8) called: by the name of a helper or, as
// mount.fuse does with a program named like the type, with the source first.
func (p program) isMountHelper() bool {
	switch filepath.Base(p.name) {
	case "mount.pailfs", "mount.fuse.pailfs":
		return true
	}
	return len(p.args) > 0 && strings.HasPrefix(p.args[0], "oss://")
}
