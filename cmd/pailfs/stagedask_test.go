package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

// openTerminal returns both ends of a pseudoterminal: what a user has, and what a program has.
func openTerminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return user, program
}

// runAtTerminal runs the program to its end for a user who types answer, which is there before
// it is asked for. It returns all that the terminal shows.
func runAtTerminal(t *testing.T, answer string, args ...string) (shown string, code int) {
	t.Helper()
	user, terminal := openTerminal(t)
	if _, err := user.WriteString(answer); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), programtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, programtest.Binary, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = programtest.Environ(), terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	// Reading ends with an error when nobody has the other end any more.
	text, _ := io.ReadAll(user)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%v did not end: %s", args, text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestAcceptAsksAUserAtATerminal and takes nothing but yes for it.
func TestAcceptAsksAUserAtATerminal(t *testing.T) {
	const content = "content of a file whose fsync failed"
	_, at := lostFiles(t, content)
	path := filepath.Join(at, "a")
	for _, c := range []struct {
		name, answer string
		accepted     bool
	}{
		{"no", "n\n", false},
		{"nothing", "\n", false},
		{"another word", "yesterday\n", false},
		{"the end of the input", "\x04", false},
		{"a broken line", "y\x04\x04", false},
		{"yes", " Y \n", true},
	} {
		shown, code := runAtTerminal(t, c.answer, "staged", "accept", path)
		if strings.Count(shown, "Accept it as it is? [y/N]") != 1 || !strings.Contains(shown, fmt.Sprintf("%d bytes", len(content))) {
			t.Errorf("%s: it shows %q, and not what there is and one question", c.name, shown)
		}
		want := command.Refused
		if c.accepted {
			want = command.OK
		}
		if code != want || strings.Contains(shown, "nothing was accepted") == c.accepted {
			t.Errorf("%s: exit code %d, want %d: %s", c.name, code, want, shown)
		}
		if lost := strings.Contains(strings.Join(programtest.WritingStatus(t, at).Suspects, " "), "a"); lost == c.accepted {
			t.Errorf("%s: lost is %v", c.name, lost)
		}
	}
	// Who is asked must see the question: not with the terminal on one side alone.
	user, terminal := openTerminal(t)
	defer terminal.Close()
	if _, err := user.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	o := runWith(t, terminal, "staged", "accept", filepath.Join(at, "removed"))
	if o.Code != command.Refused || strings.Contains(o.Stderr, "[y/N]") {
		t.Errorf("without a terminal to ask at: %+v", o)
	}
	programtest.MustRun(t, "staged", "accept", "--yes", filepath.Join(at, "removed"))
	programtest.MustRun(t, "umount", at)
}

// runWith runs the program to its end with a standard input.
func runWith(t *testing.T, stdin *os.File, args ...string) programtest.Outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	ctx, cancel := context.WithTimeout(t.Context(), programtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, programtest.Binary, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = programtest.Environ(), stdin, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return programtest.Outcome{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}
