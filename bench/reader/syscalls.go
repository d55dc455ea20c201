package reader

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"unsafe"
)

// The raw calls do not tell Go's scheduler that the thread may block. Callers
// run on locked threads with more processor slots than readers; see runFiles.
// An interrupted call is made again: the runtime's signals must not look like
// errors of the file system.

func cString(s string) (*byte, error) { return syscall.BytePtrFromString(s) }

func rawOpen(path *byte) (int, error) {
	for {
		fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, atCWD,
			uintptr(unsafe.Pointer(path)), syscall.O_RDONLY|syscall.O_CLOEXEC, 0, 0, 0)
		if errno == 0 {
			return int(fd), nil
		}
		if errno != syscall.EINTR {
			return -1, errno
		}
	}
}

// atCWD is AT_FDCWD, -100, as the kernel takes it.
const atCWD = ^uintptr(99)

func rawRead(fd int, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

func rawPread(fd int, p []byte, offset int64) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(offset), 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// rawClose never repeats: the descriptor is gone whatever close says.
func rawClose(fd int) error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0); errno != 0 && !errors.Is(errno, syscall.EINTR) {
		return errno
	}
	return nil
}

// list reads all directories below root.
func list(root string) error {
	err := filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err })
	if err != nil {
		return fmt.Errorf("list %q: %w", root, err)
	}
	return nil
}
