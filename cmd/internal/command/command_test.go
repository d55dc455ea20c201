package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// grammar has one command for every way to end.
type grammar struct {
	Say  sayCmd     `cmd:"" help:"Print a word."`
	Fail failCmd    `cmd:"" help:"Fail."`
	Ver  VersionCmd `cmd:"" name:"version" help:"Show the version."`
}

type sayCmd struct {
	Word string `arg:"" help:"The word."`
}

func (c *sayCmd) Run(p Program) error {
	_, err := fmt.Fprintln(p.Stdout, c.Word, p.Env("PLACE"))
	return err
}

type failCmd struct {
	How string `arg:""`
}

func (c *failCmd) Run() error {
	return map[string]error{
		"plain":       errors.New("it did not work"),
		"lines":       errors.Join(errors.New("one"), errors.New("two\r\n\tthree")),
		"coded":       fmt.Errorf("around: %w", &Error{Code: 7, Err: errors.New("seven")}),
		"silent":      &Error{Code: 8},
		"refused":     Usage(errors.New("not so")),
		"interrupted": fmt.Errorf("read: %w", context.Canceled),
	}[c.How]
}

// call runs a program called prog.
func call(args ...string) (code int, stdout, stderr string) {
	var out, said bytes.Buffer
	p := Program{Name: "prog", Version: "1.2", Args: args, Environ: []string{"PLACE=before", "PLACE=here", "PLACES=x"}, Stdout: &out, Stderr: &said}
	code = p.Run("A program for tests.", new(grammar))
	return code, out.String(), said.String()
}

func TestProgramsEndWithACodeAndOneLine(t *testing.T) {
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"say", "hello"}, OK, "hello here\n", ""},
		{[]string{"version"}, OK, "prog 1.2\n", ""},
		{[]string{"fail", "plain"}, Failed, "", "prog: it did not work\n"},
		{[]string{"fail", "lines"}, Failed, "", "prog: one two three\n"},
		{[]string{"fail", "coded"}, 7, "", "prog: around: seven\n"},
		{[]string{"fail", "silent"}, 8, "", ""},
		{[]string{"fail", "refused"}, Refused, "", "prog: not so\n"},
		{[]string{"fail", "interrupted"}, Failed, "", "prog: interrupted\n"},
		{[]string{"say"}, Refused, "", "prog: expected \"<word>\"; see prog say --help\n"},
		{[]string{"sing"}, Refused, "", "prog: unexpected argument sing; see prog --help\n"},
	} {
		code, stdout, stderr := call(c.args...)
		if code != c.code || stdout != c.stdout || stderr != c.stderr {
			t.Errorf("%v: code %d, printed %q, said %q; want %d, %q, %q", c.args, code, stdout, stderr, c.code, c.stdout, c.stderr)
		}
	}
}

func TestHelpIsShownWithoutArgumentsToo(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}} {
		if code, stdout, stderr := call(args...); code != OK || !strings.Contains(stdout, "A program for tests.") || stderr != "" {
			t.Errorf("%v: code %d, printed %q, said %q", args, code, stdout, stderr)
		}
	}
}

func TestProgramsAreFoundOnThePath(t *testing.T) {
	dir := t.TempDir()
	want := filepath.Join(dir, "other")
	if err := os.WriteFile(want, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	p := Program{Name: "prog"}
	if got, err := p.Beside("other", "install both"); err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := p.Beside("none", "install both"); err == nil || err.Error() != "the program none is neither beside prog nor on PATH: install both" {
		t.Errorf("of one that is nowhere: %v", err)
	}
}

// TestArgumentsAreBytes: a path need not be text, and one that is made into text is another.
func TestArgumentsAreBytes(t *testing.T) {
	if code, stdout, stderr := call("say", "/mnt/\xff\xe9"); code != OK || stdout != "/mnt/\xff\xe9 here\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}
