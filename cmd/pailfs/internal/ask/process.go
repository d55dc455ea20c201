package ask

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/machine"
)

// Process is a process that is watched until it ends.
type Process struct {
	// fd is -1 if the process cannot be seen from here.
	fd int
}

// Watch watches the process pid if it began at the given time.
func Watch(pid int, ticks uint64) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return &Process{fd: -1}, nil // it has ended, or is in another namespace
	}
	now, err := machine.StartTicks(pid)
	if err != nil || now != ticks {
		return &Process{fd: -1}, unix.Close(fd)
	}
	return &Process{fd: fd}, nil
}

// Seen reports whether the process can be seen from here.
func (p *Process) Seen() bool { return p.fd >= 0 }

// Ended reports whether the process is known to have ended.
func (p *Process) Ended() bool { return p.fd >= 0 && p.Poll(0) }

// Poll waits for the end at most the given time and reports whether it came.
func (p *Process) Poll(patience time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, int(patience.Milliseconds()))
	return err == nil && n > 0
}

// Close ends watching.
func (p *Process) Close() {
	if p.fd >= 0 {
		_ = unix.Close(p.fd) // only watched
	}
}
