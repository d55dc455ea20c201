package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/child"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/detached"
)

// version is set by the linker; without it the build information is asked.
var version = ""

func main() {
	if code, served := child.Serve(os.Args, ask.Verbs()); served {
		os.Exit(code)
	}
	p := command.Started("pailfs", versionText())
	link, err := detached.LinkToParent(p.Environ)
	if err != nil {
		p.Report(err)
		os.Exit(command.Failed)
	}
	if isMountHelper(os.Args[0], p.Args) {
		os.Exit(runMountHelper(p))
	}
	err = runCommand(p, link)
	if err != nil && !link.Fail(err) {
		p.Report(err)
	}
	os.Exit(command.Code(err))
}

// isMountHelper reports whether mount(8) called: by the name of a helper or, as
// mount.fuse does with a program named like the type, with the source first.
func isMountHelper(name string, args []string) bool {
	switch filepath.Base(name) {
	case "mount.pailfs", "mount.fuse.pailfs":
		return true
	}
	return len(args) > 0 && strings.HasPrefix(args[0], "oss://")
}
