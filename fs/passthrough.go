package fs

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

// backing offers files of the cache to the kernel.
type backing struct {
	server  *fuse.Server
	minimum int64
	on      bool
	reason  string
	// failures counts registrations that failed after the probe had worked.
	failures atomic.Int64
}

// probe finds out whether the kernel would read files in dir, the directory of
// the cache, for us.
func (b *backing) probe(server *fuse.Server, cfg Config, noOpen bool, dir string) {
	b.server, b.minimum = server, cfg.PassthroughMin
	switch {
	case cfg.Passthrough == Off:
		b.reason = "off by configuration"
	case noOpen:
		b.reason = "a no-open mount has no OPEN in which to offer a file"
	case server.KernelSettings().Flags64()&fuse.CAP_PASSTHROUGH == 0:
		b.reason = "the kernel does not offer it (it needs Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)"
	case dir == "":
		b.reason = "there is no cache directory"
	default:
		if err := b.try(dir); err != nil {
			b.reason = err.Error()
			return
		}
		b.on, b.reason = true, fmt.Sprintf("files of %d bytes and more that are whole in %s", b.minimum, dir)
	}
}

// try registers a file in dir once.
func (b *backing) try(dir string) error {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("no file could be made in %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }() // it has no name and no content
	id, errno := b.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	switch errno {
	case 0:
		b.unregister(id)
		return nil
	case syscall.EPERM:
		return errors.New("the kernel refused: the daemon lacks CAP_SYS_ADMIN")
	case syscall.ELOOP:
		return fmt.Errorf("the kernel refused: %s lies on a stacked file system such as overlayfs; put the cache on a disk", dir)
	}
	return fmt.Errorf("the kernel refused: %w", errno)
}

// wants reports whether a file of size bytes is passed through if it is whole.
func (b *backing) wants(size int64) bool { return b.on && size >= b.minimum }

// register gives the kernel file to read from. One failure is a file that is read
// through us, no more: the next file is tried again.
func (b *backing) register(file *os.File, log *slog.Logger) (int32, bool) {
	id, errno := b.server.RegisterBackingFd(&fuse.BackingMap{Fd: int32(file.Fd())})
	if errno != 0 {
		if b.failures.Add(1) == 1 {
			log.Warn("the kernel refused a file for passthrough; it is read through the daemon", "file", file.Name(), "err", errno)
		}
		return 0, false
	}
	return id, true
}

// unregister takes a file back from later opens. Files that are open keep it.
func (b *backing) unregister(id int32) { _ = b.server.UnregisterBackingFd(id) }
