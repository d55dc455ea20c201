package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/terminal"
)

// Program is a program as it was started: what a command may use of its surroundings.
type Program struct {
	// Name is what help and messages call it.
	Name string
	// Version is what the linker or the toolchain says of it.
	Version string
	// Args are the arguments without the name.
	Args []string
	// Environ is the environment, as [os.Environ] gives it.
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Started returns the program as this process was started.
func Started(name, version string) Program {
	return Program{
		Name: name, Version: version, Args: os.Args[1:], Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

// Run does what the arguments say and returns the exit code. The grammar is a pointer to a
// structure as kong reads it.
func (p Program) Run(description string, grammar any, options ...kong.Option) int {
	err := p.Call(description, grammar, options...)
	p.Report(err)
	return Code(err)
}

// Call parses the arguments and calls the command that they name. Its method Run may take the
// Program, the [kong.Context] and what the options bind. Without arguments help is shown.
func (p Program) Call(description string, grammar any, options ...kong.Option) error {
	answered := false // --help or its like was given and has been answered
	parser, err := kong.New(grammar, append([]kong.Option{
		kong.Name(p.Name),
		kong.Description(description),
		kong.Writers(p.Stdout, p.Stderr),
		kong.KindMapper(reflect.String, kong.MapperFunc(bytesOf)),
		kong.Exit(func(int) { answered = true }),
		kong.Bind(p),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	}, options...)...)
	if err != nil {
		return fmt.Errorf("build command line: %w", err)
	}
	if len(p.Args) == 0 {
		p.Args = []string{"--help"}
	}
	parsed, err := parser.Parse(p.Args)
	if answered {
		return nil
	}
	if err != nil {
		about := p.Name
		if slices.ContainsFunc(parser.Model.Children, func(c *kong.Node) bool { return c.Name == p.Args[0] }) {
			about += " " + p.Args[0]
		}
		return Usage(fmt.Errorf("%w; see %s --help", err, about))
	}
	return parsed.Run(p)
}

// bytesOf stores an argument as it is. What kong does by itself takes it for text, and makes another
// path of one that is not UTF-8.
func bytesOf(ctx *kong.DecodeContext, target reflect.Value) error {
	t, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, ok := t.Value.(string)
	if !ok {
		return fmt.Errorf("expected text, not %v", t.Value)
	}
	target.SetString(text)
	return nil
}

// Report prints err as the one line that a user gets. No error, and one without a text, is not
// printed.
func (p Program) Report(err error) {
	if err != nil && err.Error() != "" {
		p.Notice(OneLine(err))
	}
}

// Notice tells the user something beside the output.
func (p Program) Notice(text string) { fmt.Fprintf(p.Stderr, "%s: %s\n", p.Name, terminal.Text(text)) }

// Progress tells a user at a terminal what is going on; a script is told nothing.
func (p Program) Progress(text string) {
	if terminal.Is(p.Stderr) {
		p.Notice(text)
	}
}

// Env returns the value of an environment variable, "" if it is not set.
func (p Program) Env(name string) string {
	for _, assignment := range slices.Backward(p.Environ) {
		if len(assignment) > len(name) && assignment[:len(name)] == name && assignment[len(name)] == '=' {
			return assignment[len(name)+1:]
		}
	}
	return ""
}

// PrintJSON writes v for programs.
func (p Program) PrintJSON(v any) error {
	encoder := json.NewEncoder(p.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// Beside returns the path of another program: that beside this one, else that on PATH. The remedy
// ends the error of one that is at neither place.
func (p Program) Beside(name, remedy string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the program %s is neither beside %s nor on PATH: %s", name, p.Name, remedy)
	}
	return path, nil
}

// Interruptible returns a context that ends with the first SIGINT or SIGTERM.
func Interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
}

// VersionCmd is the command version of a program that says no more than its name and version.
type VersionCmd struct{}

// Run prints the version.
func (VersionCmd) Run(p Program) error {
	_, err := fmt.Fprintf(p.Stdout, "%s %s\n", p.Name, p.Version)
	return err
}
