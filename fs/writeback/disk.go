package writeback

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
)

// disk is what promises of durability rest on. Tests put one in its place that
// loses what it was not asked to keep.
type disk interface {
	journal.Disk
	// room returns the bytes of the file system at path, and those that are free.
	room(path string) (size, free int64, err error)
}

type realDisk struct{}

func (realDisk) WriteAt(f *os.File, b []byte, off int64) error {
	_, err := f.WriteAt(b, off)
	return err
}

func (realDisk) Sync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (realDisk) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %q: %w", path, err)
	}
	return nil
}

func (realDisk) room(path string) (size, free int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("ask for the room of %q: %w", path, err)
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, nil
}

// openStagedFile opens a staged file, or makes it, as [os.OpenFile] does, but that the
// runtime does not try to poll it: files of a disk cannot be, and to find that out
// took three quarters of the system calls of an open.
func openStagedFile(path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// sealed reports whether nobody can change the file any more: no descriptor and no
// mapping of it that could be written through is left. The kernel grants a read
// lease only then. That the lease cannot be given back (EAGAIN) means that it is gone: who
// opens the file has broken it, or somebody else who asks by the same descriptor has let go of
// it. What it told may not be so any more: it is no success and no error.
func sealed(f *os.File) (bool, error) {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		if _, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK); err == nil {
			return true, nil
		}
	}
	if errors.Is(err, unix.EAGAIN) {
		return false, nil
	}
	return false, fmt.Errorf("seal %q: %w", f.Name(), err)
}
