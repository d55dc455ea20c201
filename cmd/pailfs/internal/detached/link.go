package detached

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// detachedEnv tells the program that it is the detached child of another, with
// two pipes: it reports on the one and reads the secrets from the other.
const detachedEnv = "_PAILFS_DETACHED"

// The child's descriptors of the two pipes.
const (
	parentReportFD = 3
	parentSecretFD = 4
)

// message is one line that the child writes to its parent.
type message struct {
	// Notice is something to tell the user.
	Notice string `json:"notice,omitempty"`
	// Ready says that the mount answers.
	Ready bool `json:"ready,omitempty"`
	// Error says why there is no mount, with the exit code.
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
}

// Link is the child's end of the pipes.
type Link struct {
	report *os.File
	once   sync.Once
}

// LinkToParent returns the link to the parent if this process is a detached
// child, after taking over the secrets that the parent handed down.
func LinkToParent(environ []string) (*Link, error) {
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
	link := &Link{report: os.NewFile(parentReportFD, "report")}
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
func (l *Link) send(m message) {
	_ = json.NewEncoder(l.report).Encode(m)
}

// release tells the parent m, the last message, and lets its terminal go.
func (l *Link) release(m message) {
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

// Notice has the parent tell the user text, and tells whether there is a parent.
func (l *Link) Notice(text string) bool {
	if l == nil {
		return false
	}
	l.send(message{Notice: text})
	return true
}

// Ready tells the parent, if there is one, that the mount answers.
func (l *Link) Ready() {
	if l != nil {
		l.release(message{Ready: true})
	}
}

// Fail has the parent print err, and tells whether there is a parent.
func (l *Link) Fail(err error) bool {
	if l == nil {
		return false
	}
	l.release(message{Error: command.OneLine(err), Code: command.Code(err)})
	return true
}
