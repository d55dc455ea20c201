package kernelclock

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Clock tells the time as the kernel stamps files with it. Staged files have their
// times from the kernel, which may tell a coarser time than the clock that programs read:
// of two changes the later must not look older because it was stamped by another clock.
type Clock struct{ file *os.File }

// New returns a clock, which [Clock.Close] ends.
func New() (Clock, error) {
	fd, err := unix.MemfdCreate("pailfs-clock", unix.MFD_CLOEXEC)
	if err != nil {
		return Clock{}, fmt.Errorf("make a file in memory, which the kernel stamps: %w", err)
	}
	return Clock{file: os.NewFile(uintptr(fd), "pailfs-clock")}, nil
}

// Now returns the time in nanoseconds since 1970.
func (c Clock) Now() int64 {
	// The space tells of changes also while the mount ends: the descriptor must not be
	// another file's by then.
	if conn, err := c.file.SyscallConn(); err == nil {
		at := int64(0)
		err = conn.Control(func(fd uintptr) {
			var st unix.Stat_t
			if unix.Fchmod(int(fd), 0o600) == nil && unix.Fstat(int(fd), &st) == nil {
				at = st.Ctim.Nano()
			}
		})
		if err == nil && at != 0 {
			return at
		}
	}
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) // it cannot fail
	return now.Nano()
}

// Close ends the use of the file. Who asks for the time after that is told a coarse one.
func (c Clock) Close() { _ = c.file.Close() } // it has no content
