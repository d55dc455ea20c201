package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/pailfs/pailfs/cmd/internal/command"
)

// The exit codes of a run that did not come to the command's own, as env(1) and
// timeout(1) have them.
const (
	exitNotRun     = 125
	exitNotAllowed = 126
	exitNotFound   = 127
)

// forwarded are the signals that the command gets when this program gets them.
// Those of job control and the window belong to the terminal's whole group.
var forwarded = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// child is a command that runs, and what it leaves running when it ends.
type child struct {
	cmd     *exec.Cmd
	signals chan os.Signal
	// stopped says that this program was told to end.
	stopped bool
	// ended says that the command has, and that what it left is waited for.
	ended bool
	// told are the processes it left that were asked to end.
	told map[int]bool
}

// startChild starts a command. It dies with this program, should that be killed.
func startChild(args, environ []string, signals chan os.Signal) (*child, error) {
	if err := adopt(); err != nil {
		return nil, &command.Error{Code: exitNotRun, Err: fmt.Errorf("run %s: become the parent of what it leaves: %w", args[0], err)}
	}
	c := &child{cmd: exec.Command(args[0], args[1:]...), signals: signals, told: map[int]bool{}}
	c.cmd.Env = environ
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err := startOwn(c.cmd)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return nil, &command.Error{Code: exitNotFound, Err: fmt.Errorf("run %s: no such command: give its path, or put it on PATH", args[0])}
	case errors.Is(err, os.ErrPermission):
		return nil, &command.Error{Code: exitNotAllowed, Err: fmt.Errorf("run %s: %w", args[0], err)}
	case err != nil:
		return nil, &command.Error{Code: exitNotRun, Err: fmt.Errorf("run %s: %w", args[0], err)}
	}
	return c, nil
}

// listen returns the channel of the signals that are forwarded.
func listen() chan os.Signal {
	// The kernel sends Pdeathsig when the thread that started the child ends.
	runtime.LockOSThread()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	return signals
}

var (
	// errKilled is the cause of an end that was forced upon the command.
	errKilled = errors.New("the mount failed")
	// errStuck is the error of a process that cannot be ended: it waits in the kernel, past
	// SIGKILL, for a mount whose daemon hangs.
	errStuck = errors.New("it waits in the kernel and cannot be ended; pailfs umount --force frees it")
)

// signal signals the command or, when it has ended, what it left.
func (c *child) signal(s syscall.Signal) {
	if !c.ended {
		_ = c.cmd.Process.Signal(s) // it may have ended
		return
	}
	for _, pid := range orphans() {
		_ = syscall.Kill(pid, s) // likewise
	}
}

// dismiss asks what the command left to end, each process once, or kills it, and returns
// what is left. A process whose parent ends comes to be left later: whoever looks after
// workers gets to end them first.
func (c *child) dismiss(kill bool) (left []int) {
	left = orphans()
	for _, pid := range left {
		switch {
		case kill:
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		case !c.told[pid]:
			c.told[pid] = true
			_ = syscall.Kill(pid, syscall.SIGTERM) // likewise
		}
	}
	return left
}

// wait waits for the command to end, and for what it leaves, which is asked to. It hands
// signals on, and ends the command when its mount has failed or the machine goes, as e
// says. The code is the command's. The error is errKilled where the mount failed, and wraps
// errStuck where something cannot be ended.
func (c *child) wait(n *news, e ending) (code int, err error) {
	ended := make(chan error, 1)
	go func() { ended <- waitOwn(c.cmd) }()
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, syscall.SIGCHLD)
	defer signal.Stop(deaths)
	failed, code := n.failed, exitNotRun
	var end, kill, rest, lost <-chan time.Time
	for {
		select {
		case werr := <-ended:
			c.ended, code = true, exitCode(c.cmd.ProcessState, werr)
			left := c.dismiss(lost != nil)
			if len(left) == 0 {
				return code, err
			}
			if lost == nil {
				e.say("it ended and left processes running (%d): SIGTERM", len(left))
				rest = time.After(e.grace)
			}
		case <-deaths:
			if !c.ended {
				_ = orphans() // reaped
			} else if len(c.dismiss(lost != nil)) == 0 {
				return code, err
			}
		case s := <-c.signals:
			c.stopped = c.stopped || s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGHUP
			if (s == syscall.SIGINT || s == syscall.SIGQUIT) && term.IsTerminal(int(os.Stdin.Fd())) {
				continue // the terminal has sent it to the command as well
			}
			if s, ok := s.(syscall.Signal); ok {
				c.signal(s)
			}
		case <-failed:
			failed, err = nil, errKilled
			c.signal(syscall.SIGTERM)
			end, kill = nil, time.After(e.grace)
		case notice := <-n.notices:
			if err == nil {
				end, kill = e.heed(c, notice)
			}
		case <-end:
			e.say("its time is over: SIGTERM")
			c.signal(syscall.SIGTERM)
		case <-kill:
			if err == nil {
				e.say("its time is over: SIGKILL, so that what it wrote can be uploaded")
			}
			kill, rest, lost = nil, nil, c.kill(e)
		case <-rest:
			e.say("what it left does not end: SIGKILL")
			rest, lost = nil, c.kill(e)
		case <-lost:
			if c.ended {
				return c.remains(code, err)
			}
			return code, fmt.Errorf("the command, process %d, does not end: %w", c.cmd.Process.Pid, errStuck)
		}
	}
}

// remains is how wait ends with something left that was killed. It may write still, so
// success is none.
func (c *child) remains(code int, err error) (int, error) {
	left := orphans()
	if len(left) == 0 {
		return code, err
	}
	if code == 0 {
		code = exitNotSaved
	}
	return code, fmt.Errorf("the command has ended and left process %d, which does not end: %w", left[0], errStuck)
}

// kill kills the command or what it left, and returns when it is waited for no longer.
func (c *child) kill(e ending) (lost <-chan time.Time) {
	c.signal(syscall.SIGKILL)
	return time.After(e.lingering())
}

// exitCode is the code that a shell would report.
func exitCode(s *os.ProcessState, err error) int {
	if s == nil {
		_ = err // Wait failed without a state: nothing is known of the end
		return exitNotRun
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}

// untilSignal returns a context that ends with the first signal that ends
// programs. The signal stays noted in got.
func untilSignal(signals chan os.Signal) (ctx context.Context, stop func(), got func() os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var first os.Signal
	go func() {
		defer close(done)
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGUSR1 || s == syscall.SIGUSR2 {
					continue // there is no command yet that it could mean
				}
				first = s
				cancel()
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(); <-done }, func() os.Signal { <-done; return first }
}
