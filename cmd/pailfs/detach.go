package main

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
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
	"github.com/pailfs/pailfs/cmd/pailfs/internal/mountpoint"
)

// detachedEnv tells the program that it is the detached child of another, with
// two pipes: it reports on the one and reads the secrets from the other.
const detachedEnv = "_PAILFS_DETACHED"

// The child's descriptors of the two pipes.
const (
	parentReportFD = 3
	parentSecretFD = 4
)

// parentMessage is one line that the child writes to its parent.
type parentMessage struct {
	// Notice is something to tell the user.
	Notice string `json:"notice,omitempty"`
	// Ready says that the mount answers.
	Ready bool `json:"ready,omitempty"`
	// Error says why there is no mount, with the exit code.
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
}

// parentLink is the child's end of the pipes.
type parentLink struct {
	report *os.File
	once   sync.Once
}

// linkToParent returns the link to the parent if this process is a detached
// child, after taking over the secrets that the parent handed down.
func linkToParent(environ []string) (*parentLink, error) {
	child := false
	for _, assignment := range environ {
		child = child || assignment == detachedEnv+"=1"
	}
	if !child {
		return nil, nil
	}
	if err := os.Unsetenv(detachedEnv); err != nil {
		return nil, fmt.Errorf("detach: %w", err)
	}
	unix.CloseOnExec(parentReportFD)
	unix.CloseOnExec(parentSecretFD)
	link := &parentLink{report: os.NewFile(parentReportFD, "report")}
	handed := os.NewFile(parentSecretFD, "secrets")
	defer func() { _ = handed.Close() }() // read to its end
	text, err := io.ReadAll(handed)
	if err != nil {
		return link, fmt.Errorf("detach: read environment: %w", err)
	}
	for assignment := range bytes.SplitSeq(text, []byte{0}) {
		if name, value, ok := strings.Cut(string(assignment), "="); ok {
			if err := os.Setenv(name, value); err != nil {
				return link, fmt.Errorf("detach: set environment: %w", err)
			}
		}
	}
	return link, nil
}

// send writes a message. If the parent is gone nobody needs it any more.
func (l *parentLink) send(m parentMessage) {
	_ = json.NewEncoder(l.report).Encode(m)
}

// release tells the parent m, the last message, and lets its terminal go.
func (l *parentLink) release(m parentMessage) {
	l.once.Do(func() {
		l.send(m)
		_ = l.report.Close() // the parent reads to its end
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return
		}
		defer func() { _ = null.Close() }() // duplicated
		for fd := range 3 {
			_ = unix.Dup3(int(null.Fd()), fd, 0) // both descriptors are open
		}
	})
}

// notice has the parent tell the user text, and tells whether there is a parent.
func (l *parentLink) notice(text string) bool {
	if l == nil {
		return false
	}
	l.send(parentMessage{Notice: text})
	return true
}

// ready tells the parent, if there is one, that the mount answers.
func (l *parentLink) ready() {
	if l != nil {
		l.release(parentMessage{Ready: true})
	}
}

// fail has the parent print err, and tells whether there is a parent.
func (l *parentLink) fail(err error) bool {
	if l == nil {
		return false
	}
	l.release(parentMessage{Error: command.OneLine(err), Code: command.Code(err)})
	return true
}

// detach starts this program again in a session of its own and returns when its
// mount answers, or with the reason why it does not. The secrets in the
// environment go through a pipe, so that they are not in the daemon's
// /proc/PID/environ for as long as it lives.
func detach(p command.Program, path string) error {
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
	plain, secret := splitSecrets(p.Environ)
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
		var m parentMessage
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
	state, err := mountpoint.Probe(path, probePatience)
	switch {
	case err != nil:
		return err
	case state != mountpoint.Alive:
		return fmt.Errorf("the mount at %s does not answer", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), probePatience)
	defer cancel()
	return callHello(ctx, path)
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
