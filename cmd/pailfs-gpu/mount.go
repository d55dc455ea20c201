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

	"github.com/pailfs/pailfs/deploy/pause"
)

// mount is a pailfs mount, asked through the pailfs program.
type mount struct {
	// pailfs is the program's path.
	pailfs string
	// path is a directory in the mount.
	path string
	p    program
	// patience is how long the daemon may take to answer.
	patience time.Duration
	// stuck is closed when the process has ended that could not be, nil if there is none.
	stuck <-chan struct{}
}

// openMount finds the program: beside this one, else on PATH.
func openMount(p program, path string, patience time.Duration) (*mount, error) {
	at, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	m := &mount{path: at, p: p, patience: patience}
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
	// Drain is there while the machine is about to go.
	Drain *notice `json:"drain"`
}

// notice returns the notice, without a deadline if there is none.
func (s state) notice() notice {
	if s.Drain == nil {
		return notice{}
	}
	return *s.Drain
}

// check asks the daemon how it is. It returns soon, also if the mount hangs: the
// question is asked by another process, which is ended if it takes too long. One
// that cannot be ended is left behind, and no other one is started before it is gone.
// One goroutine at a time may call it.
func (m *mount) check(ctx context.Context) (state, error) {
	select {
	case <-m.stuck:
	default:
		if m.stuck != nil {
			return state{}, m.hangs(errStuck)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	c := exec.CommandContext(ctx, m.pailfs, "status", "--json", m.path)
	c.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	gone, err := finish(ctx, c)
	m.stuck = gone
	switch {
	case errors.Is(err, errStuck):
		return state{}, m.hangs(err)
	case err != nil:
		if text := strings.TrimPrefix(strings.TrimSpace(complaint.String()), "pailfs: "); text != "" {
			return state{}, errors.New(text)
		}
		return state{}, m.hangs(err)
	}
	var s state
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		return state{}, fmt.Errorf("read the status of %s: %w", m.path, err)
	}
	return s, nil
}

// hangs is the error of a mount that does not answer.
func (m *mount) hangs(err error) error {
	return fmt.Errorf("the mount %s does not answer: %w", m.path, err)
}

// finish runs a command made with ctx. When ctx ends and the command does not, though it
// was told to, the error is errStuck, and gone is closed when it has ended after all;
// what it writes to is its own until then.
func finish(ctx context.Context, c *exec.Cmd) (gone <-chan struct{}, err error) {
	if err := startOwn(c); err != nil {
		return nil, err
	}
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- waitOwn(c)
		close(done)
	}()
	select {
	case err := <-ended:
		return nil, err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return nil, err
	case <-time.After(c.WaitDelay + time.Second):
		return done, errStuck
	}
}

// await waits until the mount answers, at most for patience. A machine that is about to
// go is an error.
func (m *mount) await(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := false
	for {
		s, err := m.check(ctx)
		switch {
		case err == nil && s.Drain != nil:
			return s.Drain.error()
		case err == nil:
			return nil
		case !said:
			fmt.Fprintf(m.p.Stderr, "pailfs: waiting for a healthy mount: %v\n", err)
			said = true
		}
		if !pause.For(ctx, checkEvery) {
			return fmt.Errorf("no healthy mount within %s: %w", patience, err)
		}
	}
}

// warm brings a file or folder of the mount to this node's cache.
func (m *mount) warm(ctx context.Context, path string) error {
	return m.do(ctx, "warm", filepath.Join(m.path, path))
}

// drain waits until everything that was written is in the object store.
func (m *mount) drain(patience time.Duration) error {
	// It ends by itself, unless the daemon hangs.
	ctx, cancel := context.WithTimeout(context.Background(), patience+m.patience)
	defer cancel()
	return m.do(ctx, "flush", "--timeout", patience.String(), m.path)
}

// do runs pailfs with the terminal that this program has. When ctx ends it is
// interrupted, and gets a while to say what is left.
func (m *mount) do(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, m.pailfs, args...)
	c.Stdout, c.Stderr = m.p.Stderr, m.p.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	if _, err := finish(ctx, c); err != nil {
		return fmt.Errorf("pailfs %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
