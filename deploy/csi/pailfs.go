package csi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/pailfs/pailfs/deploy/csi/mounter"
)

// The exit codes of pailfs.
const (
	exitUsage = 2
	exitDead  = 3
)

// commandError says why a command of pailfs failed, in its words.
type commandError struct {
	code int
	text string
}

func (e *commandError) Error() string { return e.text }

// program runs the commands of pailfs.
type program struct {
	// path is the program's.
	path string
	// environ is what the commands get: no secret.
	environ []string
	// mounter is the socket of who starts daemons; "" if the driver does.
	mounter string
}

// run runs a command to its end, which ctx brings about with SIGTERM. The command inherits the lock of v, if v is not nil.
func (p program) run(ctx context.Context, v *volume, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, p.path, args...)
	c.Cancel = func() error { return c.Process.Signal(unix.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	c.Env = p.environ
	if v != nil {
		c.ExtraFiles = []*os.File{v.lock}
	}
	var out, complaint bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaint
	err := c.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	var exit *exec.ExitError
	if ctx.Err() != nil || !errors.As(err, &exit) || exit.ExitCode() < 0 {
		return nil, interrupted(ctx, args[0], err, complaint.Bytes())
	}
	return out.Bytes(), failed(args[0], exit.ExitCode(), complaint.Bytes())
}

// keep runs a command that leaves a daemon: in the mounter if there is one, so that the daemon outlives the driver.
func (p program) keep(ctx context.Context, v *volume, args ...string) error {
	if p.mounter == "" {
		_, err := p.run(ctx, v, args...)
		return err
	}
	result, err := mounter.Run(ctx, p.mounter, mounter.Command{Args: args, Environ: p.environ}, v.lock)
	switch {
	case err != nil && ctx.Err() == nil:
		return refuse(codes.Unavailable, "%v", err)
	case err != nil || result.Code < 0:
		return interrupted(ctx, args[0], err, result.Complaint)
	case result.Code != 0:
		return failed(args[0], result.Code, result.Complaint)
	}
	return nil
}

// interrupted is the error of a command that did not come to an end of its own.
func interrupted(ctx context.Context, command string, err error, complaint []byte) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	} else if err == nil {
		err = errors.New("killed")
	}
	return fmt.Errorf("pailfs %s: %w: %s", command, err, oneLine(complaint))
}

// failed is the error of a command that says itself why it failed.
func failed(command string, code int, complaint []byte) error {
	text := oneLine(complaint)
	if text == "" {
		text = fmt.Sprintf("pailfs %s: exit status %d", command, code)
	}
	return &commandError{code, text}
}

// oneLine is what a command complained of.
func oneLine(complaint []byte) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(strings.TrimSpace(string(complaint)), "pailfs: ")), " ")
}

// mount starts a daemon and returns when its mount answers. The mount of a dead daemon is replaced.
func (p program) mount(ctx context.Context, v *volume, d daemon) error {
	if d.CacheDir != "" {
		if err := os.MkdirAll(filepath.Dir(d.CacheDir), 0o700); err != nil {
			return fmt.Errorf("make the directory of the caches: %w", err)
		}
	}
	args := append([]string{"mount", "--detach", "--mkdir"}, d.Flags...)
	return p.keep(ctx, v, append(args, "--", d.Source, d.At)...)
}

// asking are the questions that go on: a daemon that hangs may keep its command in the kernel.
type asking struct {
	mu struct {
		sync.Mutex
		of map[string]*answer
	}
}

// answer is what a command of status says. It is set before done is closed.
type answer struct {
	done chan struct{}
	out  []byte
	err  error
}

// statusPatience is how long a daemon may take to say how it is; the command itself waits for 5 seconds.
const statusPatience = 8 * time.Second

// status asks the daemon of the mount at path, with at most one command for a path at a time.
func (a *asking) status(ctx context.Context, p program, path string) ([]byte, error) {
	a.mu.Lock()
	now := a.mu.of[path]
	if now == nil {
		now = &answer{done: make(chan struct{})}
		if a.mu.of == nil {
			a.mu.of = map[string]*answer{}
		}
		a.mu.of[path] = now
		go a.ask(p, path, now)
	}
	a.mu.Unlock()
	timer := time.NewTimer(statusPatience)
	defer timer.Stop()
	select {
	case <-now.done:
		return now.out, now.err
	case <-timer.C:
		return nil, errStuck
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errStuck means that a daemon does not answer.
var errStuck = errors.New("the daemon does not answer")

// ask runs the command.
func (a *asking) ask(p program, path string, now *answer) {
	now.out, now.err = p.run(context.Background(), nil, "status", "--json", path)
	a.mu.Lock()
	delete(a.mu.of, path)
	a.mu.Unlock()
	close(now.done)
}
