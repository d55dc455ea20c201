package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// mount is a pailfs mount, asked through the pailfs program.
type mount struct {
	// pailfs is the program's path.
	pailfs string
	// path is a directory in the mount.
	path string
	p    program
}

// openMount finds the program: beside this one, else on PATH.
func openMount(p program, path string) (*mount, error) {
	at, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	m := &mount{path: at, p: p}
	if self, err := os.Executable(); err == nil {
		m.pailfs = filepath.Join(filepath.Dir(self), "pailfs")
		if _, err := os.Stat(m.pailfs); err == nil {
			return m, nil
		}
	}
	if m.pailfs, err = exec.LookPath("pailfs"); err != nil {
		return nil, errors.New("the program pailfs is neither beside pailfs-gpu nor on PATH: install both")
	}
	return m, nil
}

// state is what run needs to know of a mount.
type state struct {
	// Writing is there where the mount takes writes.
	Writing *struct{} `json:"writing"`
}

// check asks the daemon how it is. It returns soon, also if the mount hangs: the
// question is asked by another process, which is ended if it takes too long.
func (m *mount) check(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	c := exec.CommandContext(ctx, m.pailfs, "status", "--json", m.path)
	c.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		if text := strings.TrimPrefix(strings.TrimSpace(complaint.String()), "pailfs: "); text != "" {
			return state{}, errors.New(text)
		}
		return state{}, fmt.Errorf("the mount %s does not answer: %w", m.path, err)
	}
	var s state
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return state{}, fmt.Errorf("read the status of %s: %w", m.path, err)
	}
	return s, nil
}

const (
	checkPatience = 15 * time.Second
	checkEvery    = 2 * time.Second
)

// await waits until the mount answers, at most for patience.
func (m *mount) await(ctx context.Context, patience time.Duration) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := false
	for {
		s, err := m.check(ctx)
		if err == nil {
			return s, nil
		}
		if !said {
			fmt.Fprintf(m.p.stderr, "pailfs: waiting for a healthy mount: %v\n", err)
			said = true
		}
		if !sleep(ctx, checkEvery) {
			return state{}, fmt.Errorf("no healthy mount within %s: %w", patience, err)
		}
	}
}

// warm brings a file or folder of the mount to this node's cache.
func (m *mount) warm(ctx context.Context, path string) error {
	return m.do(ctx, "warm", filepath.Join(m.path, path))
}

// drain waits until everything that was written is in the object store.
func (m *mount) drain(ctx context.Context, patience time.Duration) error {
	return m.do(ctx, "flush", "--timeout", patience.String(), m.path)
}

// do runs pailfs with the terminal that this program has. When ctx ends it is
// interrupted, and gets a while to say what is left.
func (m *mount) do(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, m.pailfs, args...)
	c.Stdout, c.Stderr = m.p.stderr, m.p.stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	if err := c.Run(); err != nil {
		return fmt.Errorf("pailfs %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// sleep waits for d and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
