package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// versionCmd is `pailfs version`.
type versionCmd struct{}

// Help gives examples.
func (versionCmd) Help() string { return "Examples:\n\n\tpailfs version" }

// Run prints the version, the toolchain and the platform.
func (versionCmd) Run(p command.Program) error {
	_, err := fmt.Fprintf(p.Stdout, "pailfs %s (%s, %s/%s)\n", p.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// versionText returns the version that the linker set or else what the toolchain
// recorded of the source.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + modified
}
