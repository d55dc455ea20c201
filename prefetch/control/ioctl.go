package control

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fuseMagic is f_type of every FUSE mount, from linux/magic.h.
const fuseMagic = 0x65735546

// The ways in which a path can fail to lead to a daemon, for errors.Is.
var (
	// ErrNotPailfs means that the path is not in a pailfs mount.
	ErrNotPailfs = errors.New("not a pailfs mount")
	// ErrDaemonGone means that the path is in a FUSE mount whose daemon has ended.
	// Such a mount has to be unmounted before it can be mounted again.
	ErrDaemonGone = errors.New("the daemon that served this mount is gone")
)

// openMount opens the directory at path and checks that it is in a FUSE mount.
func openMount(path string) (*os.File, error) {
	// O_NONBLOCK has no meaning for directories, and keeps the open of anything
	// else, a FIFO say, from blocking before O_DIRECTORY refuses it.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, mountError(err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var st unix.Statfs_t
	if _, err := ignoringEINTR(func() (int, error) { return 0, unix.Fstatfs(fd, &st) }); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("statfs: %w", mountError(err))
	}
	if uint32(st.Type) != fuseMagic {
		_ = dir.Close()
		return nil, fmt.Errorf("%w: file system type %#x is not FUSE", ErrNotPailfs, uint32(st.Type))
	}
	return dir, nil
}

// ioctl exchanges buf, of BufferSize bytes, with the daemon that serves dir. It
// returns the ioctl's result.
func ioctl(dir *os.File, buf []byte) (int, error) {
	if len(buf) != BufferSize {
		return 0, unix.EINVAL
	}
	conn, err := dir.SyscallConn()
	if err != nil {
		return 0, err
	}
	var (
		result uintptr
		errno  unix.Errno
	)
	err = conn.Control(func(fd uintptr) {
		for {
			result, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, uintptr(Command), uintptr(unsafe.Pointer(&buf[0])))
			// The daemon never answers EINTR, so the kernel took the request back
			// before the daemon saw it.
			if errno != unix.EINTR {
				break
			}
		}
	})
	runtime.KeepAlive(buf)
	if err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, mountError(errno)
	}
	return int(result), nil
}

// mountError says what an errno of a FUSE mount means.
func mountError(err error) error {
	switch {
	case errors.Is(err, unix.ENOTCONN), errors.Is(err, unix.ECONNABORTED):
		return fmt.Errorf("%w (%w)", ErrDaemonGone, err)
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: its daemon does not know pailfs control calls (%w)", ErrNotPailfs, err)
	}
	return err
}

// ignoringEINTR repeats call until it fails otherwise or succeeds.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
