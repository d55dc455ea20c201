package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/measures"
)

// blockSize is the unit of statfs. It is not a hint for the size of reads, which
// comes with each file's attributes.
const blockSize = 4096

// StatFs implements [fuse.RawFileSystem]. A bucket has no size; everything is
// shown as free so that nothing that watches disks takes the mount for full. A
// mount that can be written shows what can be staged: that is what a writer can
// write at once.
func (f *filesystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	start := time.Now()
	blocks := f.cfg.StatfsBytes / blockSize
	free := blocks
	if f.inodes.space != nil {
		size, room, err := f.inodes.space.Room()
		if err != nil {
			// Programs ask statfs whether the mount lives, and it does. Nothing can be
			// written.
			f.reports.fail("statfs", f.inodes.nodes.get(rootID), errnos.OfChange(err), err)
			free = 0
		} else {
			blocks, free = uint64(size)/blockSize, uint64(room)/blockSize
		}
	}
	*out = fuse.StatfsOut{
		Blocks: blocks, Bfree: free, Bavail: free,
		Files: blocks, Ffree: free,
		Bsize: blockSize, Frsize: blockSize, NameLen: nameMax,
	}
	f.reports.metrics.Done(measures.Statfs, start, fuse.OK)
	return fuse.OK
}
