package backing

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Files offers files of the cache to the kernel.
type Files struct {
	server  *fuse.Server
	minimum int64
	// On says that files are passed through, and Reason why, or why not.
	On     bool
	Reason string
	// Failures counts registrations that failed after the probe had worked.
	Failures atomic.Int64
}

// Probe finds out whether the kernel would read files in dir, the directory of
// the cache, for us, if they have minimum bytes.
func (b *Files) Probe(server *fuse.Server, minimum int64, dir string) {
	b.server, b.minimum = server, minimum
	switch {
	case server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH == 0:
		b.Reason = "the kernel does not offer it (it needs Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)"
	case dir == "":
		b.Reason = "there is no cache directory"
	default:
		if err := b.try(dir); err != nil {
			b.Reason = err.Error()
			return
		}
		b.On, b.Reason = true, fmt.Sprintf("files of %d bytes and more that are whole in %s", b.minimum, dir)
	}
}

// Refuse says that nothing is passed through, and why.
func (b *Files) Refuse(reason string) { b.On, b.Reason = false, reason }

// try registers a file in dir once.
func (b *Files) try(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("no file could be made in %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }() // it has no name and no content
	id, errno := b.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	switch errno {
	case 0:
		b.Unregister(id)
		return nil
	case syscall.EPERM:
		return errors.New("the kernel refused: the daemon lacks CAP_SYS_ADMIN")
	case syscall.ELOOP:
		return fmt.Errorf("the kernel refused: %s lies on a stacked file system such as overlayfs; put the cache on a disk", dir)
	}
	return fmt.Errorf("the kernel refused: %w", errno)
}

// Wants reports whether a file of size bytes is passed through if it is whole.
func (b *Files) Wants(size int64) bool { return b.On && size >= b.minimum }

// Register gives the kernel file to read from. One failure is a file that is read
// through us, no more: the next file is tried again.
func (b *Files) Register(file *os.File, log *slog.Logger) (int32, bool) {
	id, errno := b.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(file.Fd())})
	if errno != 0 {
		if b.Failures.Add(1) == 1 {
			log.Warn("the kernel refused a file for passthrough; it is read through the daemon", "file", file.Name(), "err", errno)
		}
		return 0, false
	}
	return id, true
}

// Unregister takes a file back from later opens. Files that are open keep it.
func (b *Files) Unregister(id int32) { _ = b.server.UnregisterBackingFd(id) }
