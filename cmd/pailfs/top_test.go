package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/top"
	"github.com/pailfs/pailfs/fs/mounttest"
)

// TestTopShowsWhatAMountDoes: once, with a file read between the looks and one open.
func TestTopShowsWhatAMountDoes(t *testing.T) {
	s := programtest.NewScene(t)
	programtest.StartForeground(t, programtest.Environ(), s.At, s.MountArgs()...)
	open, err := os.Open(filepath.Join(s.At, "dir", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	s.Reads()
	var f top.Frame
	o := programtest.MustRun(t, "top", "--once", "--json", "--interval=200ms", "--timeout=1m", s.At)
	if err := json.Unmarshal([]byte(o.Stdout), &f); err != nil || len(f.Mounts) != 1 {
		t.Fatalf("%v: %s", err, o.Stdout)
	}
	m := f.Mounts[0]
	if m.Health != "ok" || m.Rates == nil || m.Rates.Seconds <= 0 || m.Hits.OSS == 0 || m.Uploads == nil || m.Link.Endpoint != s.Endpoint {
		t.Errorf("%+v", m)
	}
	mine := false
	for _, u := range m.Readers {
		mine = mine || u.PID == os.Getpid() && u.Files > 0
	}
	if !mine {
		t.Errorf("this process, %d, is not among the readers %+v", os.Getpid(), m.Readers)
	}
	if o := programtest.MustRun(t, "top", "--once", "--interval=100ms", "--timeout=1m", s.At); !strings.Contains(o.Stdout, "everything is in the object store") {
		t.Errorf("%s", o.Stdout)
	}
}

// TestTopPrintsLinesIntoAPipeUntilInterrupted: also while the mount hangs.
func TestTopPrintsLinesIntoAPipeUntilInterrupted(t *testing.T) {
	at := mounttest.Hung(t, mountpoint.Type, "oss://hung")
	cmd := exec.Command(programtest.Binary, "top", "--interval=100ms", "--timeout=100ms", at)
	cmd.Env = programtest.Environ()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	text := bufio.NewScanner(out)
	for n := 0; n < 4 && text.Scan(); n++ {
		if n > 0 && !strings.Contains(text.Text(), " hung ") {
			t.Errorf("line %q", text.Text())
		}
	}
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	for text.Scan() { // what was printed before it ended
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("interrupted it ends with %v", err)
	}
}

// TestTopIsAScreenAtATerminal: which q ends.
func TestTopIsAScreenAtATerminal(t *testing.T) {
	at := mounttest.Hung(t, mountpoint.Type, "oss://hung")
	user, terminal := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(user.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 60}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(programtest.Binary, "top", "--interval=100ms", "--timeout=200ms", at)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = programtest.Environ("TERM=xterm"), terminal, terminal, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_ = terminal.Close()
	shown, asked := "", false
	buffer := make([]byte, 1<<16)
	for {
		n, err := user.Read(buffer)
		shown += string(buffer[:n])
		if !asked && strings.Contains(shown, "hung") && strings.Contains(shown, "WRONG") {
			asked = true
			if _, err := user.WriteString("q"); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break // nobody has the other end any more
		}
	}
	if err := cmd.Wait(); err != nil || !asked {
		t.Errorf("it ended with %v and had shown %q", err, shown)
	}
}

// TestTopPrintsLinesWhereNobodyTypes: at a terminal, with an input from which no keys come.
func TestTopPrintsLinesWhereNobodyTypes(t *testing.T) {
	at := mounttest.Hung(t, mountpoint.Type, "oss://hung")
	user, terminal := openTerminal(t)
	cmd := exec.Command(programtest.Binary, "top", "--interval=100ms", "--timeout=200ms", at)
	cmd.Env, cmd.Stdout, cmd.Stderr = programtest.Environ("TERM=xterm"), terminal, terminal // the input is /dev/null
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	_ = terminal.Close()
	shown, interrupted := "", false
	buffer := make([]byte, 1<<16)
	for {
		n, err := user.Read(buffer)
		shown += string(buffer[:n])
		if !interrupted && strings.Contains(shown, " hung ") {
			interrupted = true
			if err := cmd.Process.Signal(unix.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break // nobody has the other end any more
		}
	}
	if err := cmd.Wait(); err != nil || !interrupted || strings.Contains(shown, "\x1b") {
		t.Errorf("it ended with %v and had shown %q", err, shown)
	}
}

// TestNoCommandAsksTheTerminal: one that does not answer would be waited for. The program has a
// session of its own, with the terminal in the foreground, as users have.
func TestNoCommandAsksTheTerminal(t *testing.T) {
	user, terminal := openTerminal(t)
	cmd := exec.Command(programtest.Binary, "version")
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = programtest.Environ("TERM=xterm"), terminal, terminal, terminal
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	shown, err := io.ReadAll(user) // which ends with an error, as nobody has the other end any more
	if !strings.HasPrefix(string(shown), "pailfs ") {
		t.Errorf("the terminal was sent %q, %v", shown, err)
	}
}

func TestTopRefusesWhatCannotBe(t *testing.T) {
	if o := programtest.Run(t, programtest.Environ(), "top", "--interval=1ms"); o.Code != 2 || !strings.Contains(o.Stderr, "an interval is 100ms or more") {
		t.Errorf("exit code %d, %s", o.Code, o.Stderr)
	}
	if o := programtest.Run(t, programtest.Environ(), "top", t.TempDir()); o.Code != 1 || !strings.Contains(o.Stderr, "nothing is mounted") {
		t.Errorf("exit code %d, %s", o.Code, o.Stderr)
	}
}
