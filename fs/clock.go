package fs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// kernelClock tells the time as the kernel stamps files with it. Staged files have their
// times from the kernel, which may tell a coarser time than the clock that programs read:
// of two changes the later must not look older because it was stamped by another clock.
type kernelClock struct{ file *os.File }

func newKernelClock() (kernelClock, error) {
	fd, err := unix.MemfdCreate("pailfs-clock", unix.MFD_CLOEXEC)
	if err != nil {
		return kernelClock{}, fmt.Errorf("make a file in memory, which the kernel stamps: %w", err)
	}
	return kernelClock{file: os.NewFile(uintptr(fd), "pailfs-clock")}, nil
}

// now returns the time in nanoseconds since 1970.
func (c kernelClock) now() int64 {
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

// close ends the use of the file. Who asks for the time after that is told a coarse one.
func (c kernelClock) close() { _ = c.file.Close() } // it has no content
