package cache

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
)

// directLeast is the least that is written past the page cache. A smaller write
// costs less when the kernel gathers it.
const directLeast = 256 << 10

// directWriter writes to a file past the page cache: whole pages, from memory that
// begins with one.
type directWriter interface {
	io.WriterAt
	io.Closer
}

// openDirect opens the file a second time, for direct writes.
func (f osIO) openDirect() (directWriter, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// directFile is what a diskFile has for direct writes, opened with the first.
type directFile struct {
	once   sync.Once
	writer directWriter
	err    error // why there is no writer
}

// direct returns what f is written with past the page cache.
func (f *diskFile) direct() (directWriter, error) {
	f.directly.once.Do(func() { f.directly.writer, f.directly.err = f.openDirect() })
	return f.directly.writer, f.directly.err
}

// writeBlocks writes p at off. Most of a large p goes past the page cache, which
// would cost as much time as fetching it: a copy, and new pages to copy to. As long
// as the disk keeps up, that is; otherwise the page cache takes what comes in a
// burst.
//
// The kernel drops what the page cache has of the range, before and after, so that
// readers of the page cache meet what was written. They begin only when it is
// marked as there. That a write is durable is still fdatasync's to say: the disk
// may hold it back, and the blocks were allocated with it.
func (t *ssdTier) writeBlocks(f *diskFile, p []byte, off int64) error {
	if whole := len(p) &^ (content.PageSize - 1); whole >= directLeast && off%content.PageSize == 0 && !t.noDirect.Load() && t.queue.calm() {
		w, err := f.direct()
		if err == nil {
			_, err = w.WriteAt(p[:whole], off)
		}
		switch {
		case err == nil:
			t.metrics.directBytes.Add(int64(whole))
			p, off = p[whole:], off+int64(whole)
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
			t.noDirect.Store(true) // the file system has none, or its blocks are larger than a page
		case !shortage(err):
			return err
		}
	}
	if len(p) == 0 {
		return nil
	}
	_, err := f.WriteAt(p, off)
	return err
}

// calm tells whether the disk keeps up: less than half of what may wait does.
func (q *writeQueue) calm() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes <= q.limit/2
}
