package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// longest is how long a program may take to begin or to end, on a machine that is busy
// with other things too.
const longest = 2 * time.Minute

// process is a program that runs until it is told to stop. What it says goes to
// a file.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	// ended is closed when the process has ended, after err was set.
	ended chan struct{}
	err   error
}

// processConfig says what to start.
type processConfig struct {
	name string
	args []string
	// env is added to this process's environment.
	env []string
	// log is the file for standard error, and for standard output unless stdout
	// is set.
	log    string
	stdout io.Writer
	// stays says that the process must outlive this one.
	stays bool
}

func startProcess(cfg processConfig) (*process, error) {
	log, err := os.OpenFile(cfg.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.name, err)
	}
	defer log.Close()
	c := exec.Command(cfg.args[0], cfg.args[1:]...)
	c.Env = append(os.Environ(), cfg.env...)
	c.Stdout, c.Stderr = log, log
	if cfg.stdout != nil {
		c.Stdout = cfg.stdout
	}
	// A group of its own keeps a terminal's interrupt away from it: this process
	// ends its children in order. Unless one is to stay, it dies with us.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !cfg.stays {
		c.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.name, err)
	}
	p := &process{name: cfg.name, cmd: c, log: cfg.log, ended: make(chan struct{})}
	go func() {
		p.err = c.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// died describes a process that should not have ended.
func (p *process) died() error {
	err := p.err
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return fmt.Errorf("%s: %w: %s", p.name, err, p.lastWords())
}

// lastWords are the last lines of the log.
func (p *process) lastWords() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}

// stop asks the process to end, and kills it when it has not done so in time.
func (p *process) stop(patience time.Duration) error {
	if !p.running() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(patience):
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.ended
	return fmt.Errorf("stop %s: it was killed, for it had not ended %v after SIGTERM: %s", p.name, patience, p.lastWords())
}

// waitFor calls ready until it says yes, the process ends, or patience does.
func (p *process) waitFor(ctx context.Context, what string, patience time.Duration, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !ready() {
		select {
		case <-p.ended:
			return p.died()
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of %s: %w: %s", what, p.name, ctx.Err(), p.lastWords())
		case <-poll.C:
		}
	}
	return nil
}
