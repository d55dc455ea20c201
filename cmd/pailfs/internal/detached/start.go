package detached

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/ask"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/reach"
)

// Start starts this program again in a session of its own and returns when its
// mount answers, or with the reason why it does not. The secrets in the
// environment go through a pipe, so that they are not in the daemon's
// /proc/PID/environ for as long as it lives.
func Start(p command.Program, path string) error {
	ctx, cancel := command.Interruptible()
	defer cancel()
	child, err := startChild(p)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = child.cmd.Process.Signal(unix.SIGTERM) })
	defer stop()
	if err := child.wait(p.Stderr); err != nil {
		return err
	}
	if err := confirm(path); err != nil {
		_ = child.cmd.Process.Signal(unix.SIGTERM) // it may have ended
		_ = child.cmd.Wait()
		return fmt.Errorf("the daemon said that it is ready, but %w", err)
	}
	return child.cmd.Process.Release()
}

// child is a detached child that starts.
type child struct {
	cmd    *exec.Cmd
	report *os.File
	stderr *bytes.Buffer
}

// startChild starts the child and hands it the secrets.
func startChild(p command.Program) (*child, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("detach: %w", err)
	}
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("detach: %w", err)
	}
	secretRead, secretWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("detach: %w", err)
	}
	plain, secret := reach.SplitSecrets(p.Environ)
	c := &child{report: reportRead, stderr: new(bytes.Buffer)}
	c.cmd = exec.Command(executable, p.Args...)
	c.cmd.Args[0] = "pailfs"
	c.cmd.Env = append(plain, detachedEnv+"=1")
	c.cmd.ExtraFiles = []*os.File{reportWrite, secretRead}
	c.cmd.Stderr = &cappedWriter{to: c.stderr, left: 64 << 10}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	keepDescriptors()
	err = c.cmd.Start()
	_ = reportWrite.Close() // the child's
	_ = secretRead.Close()  // the child's
	if err != nil {
		return nil, fmt.Errorf("detach: %w", err)
	}
	_, err = secretWrite.WriteString(strings.Join(secret, "\x00"))
	if closeErr := secretWrite.Close(); err == nil {
		err = closeErr
	}
	if err != nil && !errors.Is(err, unix.EPIPE) { // a child that died says why itself
		return nil, errors.Join(fmt.Errorf("detach: hand over environment: %w", err), c.cmd.Process.Kill())
	}
	return c, nil
}

// keepDescriptors keeps what the caller left open to itself: a daemon that
// inherited the lock of a script or the end of a pipe would hold it for as long as
// it is mounted.
func keepDescriptors() {
	// Kernels before 5.11 refuse, and then it is as it is with most programs.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// wait returns when the child says that its mount is ready, or why there is none.
func (c *child) wait(notices io.Writer) error {
	defer func() { _ = c.report.Close() }() // only read
	messages := json.NewDecoder(c.report)
	for {
		var m message
		err := messages.Decode(&m)
		switch {
		case err != nil:
			_ = c.cmd.Wait() // how it ended is in its state
			return fmt.Errorf("the daemon ended before it was ready (%s): %s", c.cmd.ProcessState, firstLine(c.stderr.String()))
		case m.Error != "":
			_ = c.cmd.Wait() // it has said why it ends
			return &command.Error{Code: m.Code, Err: errors.New(m.Error)}
		case m.Notice != "":
			fmt.Fprintf(notices, "pailfs: %s\n", m.Notice)
		case m.Ready:
			return nil
		}
	}
}

// confirm asks the mount itself, through the kernel, whether it answers.
func confirm(path string) error {
	state, err := mountpoint.Probe(path, mountpoint.Patience)
	switch {
	case err != nil:
		return err
	case state != mountpoint.Alive:
		return fmt.Errorf("the mount at %s does not answer", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mountpoint.Patience)
	defer cancel()
	return ask.Hello(ctx, path)
}

// cappedWriter writes the first bytes to another writer and swallows the rest.
type cappedWriter struct {
	to   io.Writer
	left int
}

// Write implements [io.Writer].
func (w *cappedWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	if _, err := w.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// firstLine returns the first line of text that says something.
func firstLine(text string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return "it said nothing"
}
