package cache

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache/internal/content"
	"github.com/pailfs/pailfs/cache/internal/disk"
)

// directLeast is the least that is written past the page cache. A smaller write
// costs less when the kernel gathers it.
const directLeast = 256 << 10

// writeBlocks writes p at off. Most of a large p goes past the page cache, which
// would cost as much time as fetching it: a copy, and new pages to copy to. As long
// as the disk keeps up, that is; otherwise the page cache takes what comes in a
// burst.
//
// The kernel drops what the page cache has of the range, before and after, so that
// readers of the page cache meet what was written. They begin only when it is
// marked as there. That a write is durable is still fdatasync's to say: the disk
// may hold it back, and the blocks were allocated with it.
func (w *writeBehind) writeBlocks(f *disk.File, p []byte, off int64) error {
	if whole := len(p) &^ (content.PageSize - 1); whole >= directLeast && off%content.PageSize == 0 && !w.noDirect.Load() && w.queue.calm() {
		direct, err := f.Direct()
		if err == nil {
			_, err = direct.WriteAt(p[:whole], off)
		}
		switch {
		case err == nil:
			w.metrics.directBytes.Add(int64(whole))
			p, off = p[whole:], off+int64(whole)
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
			w.noDirect.Store(true) // the file system has none, or its blocks are larger than a page
		case !disk.Shortage(err):
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
