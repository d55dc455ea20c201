package main

import (
	"io"

	"github.com/alecthomas/kong"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/internal/manual"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/detached"
)

// helpCmd is `pailfs help`.
type helpCmd struct {
	Command []string `arg:"" optional:"" placeholder:"COMMAND" help:"A command, and one below it; the program itself if not given."`
}

// Help gives examples.
func (helpCmd) Help() string {
	return "Says the same as --help after the command.\n\nExamples:\n\n\tpailfs help\n\tpailfs help mount\n\tpailfs help manifest build"
}

// Run shows the help of a command.
func (c helpCmd) Run(p command.Program, link *detached.Link) error {
	p.Args = append(c.Command, "--help")
	return runCommand(p, link)
}

// completionCmd is `pailfs completion`.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" placeholder:"SHELL" help:"One of bash, zsh and fish."`
}

// Help gives examples.
func (completionCmd) Help() string {
	return `A package installs these scripts where the shells look for them. The commands gpu and run are completed, their flags are not.

Examples:

	source <(pailfs completion bash)
	pailfs completion zsh > ~/.zsh/completions/_pailfs
	pailfs completion fish > ~/.config/fish/completions/pailfs.fish`
}

// Run prints the script.
func (c completionCmd) Run(p command.Program, parsed *kong.Context) error {
	_, err := io.WriteString(p.Stdout, manual.Completion(parsed.Model, c.Shell))
	return err
}

// manualCmd is `pailfs manual`.
type manualCmd struct {
	Dir string `arg:"" placeholder:"DIR" help:"Directory to write into; it must exist."`
}

// Help gives examples.
func (manualCmd) Help() string {
	return "A page a command, in section 1. A package installs them; the pages of gpu and run come from pailfs-gpu manual.\n\n" +
		"Examples:\n\n\tpailfs manual /usr/local/share/man/man1 && man pailfs-mount"
}

// Run writes the pages.
func (c manualCmd) Run(p command.Program, parsed *kong.Context) error {
	pages := append(manual.Commands(parsed.Model, p.Version), manual.Overview(parsed.Model, p.Version))
	return manual.Write(c.Dir, pages)
}

// versionFlag is --version: it says what the command version says, whatever else is given.
type versionFlag bool

// BeforeReset answers before anything else is looked at.
func (versionFlag) BeforeReset(parser *kong.Kong, p command.Program) error {
	err := versionCmd{}.Run(p)
	parser.Exit(0)
	return err
}
