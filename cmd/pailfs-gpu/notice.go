package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// notice says that the machine is about to go. It is what the mount's daemon knows: from
// the spot notice that it watches for, from SIGUSR1 or from pailfs drain.
type notice struct {
	Reason   string    `json:"reason"`
	Deadline time.Time `json:"deadline"`
}

// error says why nothing is started.
func (n notice) error() error {
	return fmt.Errorf("the machine is about to go (%s, %s left): nothing is started on it; if it stays after all, say pailfs drain --stop", n.Reason, left(n.Deadline))
}

// left is how long it is until a time, for people.
func left(t time.Time) string { return max(0, time.Until(t)).Round(time.Second).String() }

// ending says how a command is ended.
type ending struct {
	// grace is the time between SIGTERM and SIGKILL.
	grace time.Duration
	// linger is how long after SIGKILL a command is waited for.
	linger time.Duration
	// signal is what the command gets when the machine is about to go, 0 for nothing.
	signal syscall.Signal
	// upload is the time that is kept for uploads before the machine goes.
	upload time.Duration
	// told remembers the notice that the command was told of.
	told *notice
	out  io.Writer
}

// say tells the user what happens to the command.
func (e *ending) say(format string, args ...any) {
	fmt.Fprintf(e.out, "pailfs: the command: "+format+"\n", args...)
}

// heed tells the command of a notice, and returns when it gets SIGTERM, unless that is
// what it got, and SIGKILL. A notice without a deadline takes the last one back.
func (e *ending) heed(c *child, n notice) (term, kill <-chan time.Time) {
	if n.Deadline.IsZero() {
		*e.told = notice{}
		fmt.Fprintln(e.out, "pailfs: the machine stays after all")
		return nil, nil
	}
	if e.told.Deadline.IsZero() {
		fmt.Fprintf(e.out, "pailfs: the machine is about to go (%s, %s left)\n", n.Reason, left(n.Deadline))
		if e.signal != 0 {
			e.say("%s", unix.SignalName(e.signal))
			c.signal(e.signal)
		}
	}
	*e.told = n
	termIn, killIn := e.schedule(time.Until(n.Deadline))
	if e.signal != syscall.SIGTERM {
		term = time.After(termIn)
	}
	return term, time.After(killIn)
}

// schedule returns after how long a command gets SIGTERM and SIGKILL when the machine goes
// after left. Uploads get their time, at most half of all; of the rest the command has at
// least half to itself before it is asked to end.
func (e *ending) schedule(left time.Duration) (term, kill time.Duration) {
	left = max(0, left)
	kill = left - min(e.upload, left/2)
	return kill - min(e.grace, kill/2), kill
}

// lingering is how long a command that was killed is waited for: at most half of the time
// that the machine stays.
func (e *ending) lingering() time.Duration {
	if e.told.Deadline.IsZero() {
		return e.linger
	}
	return min(e.linger, max(time.Second, time.Until(e.told.Deadline)/2))
}

// parseSignal reads a signal's name, with or without SIG; none is 0.
func parseSignal(name string) (syscall.Signal, error) {
	if strings.EqualFold(name, "none") {
		return 0, nil
	}
	s := unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(name), "SIG"))
	switch s {
	case 0:
		return 0, fmt.Errorf("%q is no signal: want one like TERM or USR1, or none", name)
	case syscall.SIGKILL, syscall.SIGSTOP:
		return 0, errors.New(unix.SignalName(s) + " leaves a command no time: want one that it can catch, such as TERM or USR1")
	}
	return s, nil
}
