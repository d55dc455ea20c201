package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// blockSize is the unit of statfs. It is not a hint for the size of reads, which
// comes with each file's attributes.
const blockSize = 4096

// StatFs implements [fuse.RawFileSystem]. A bucket has no size; everything is
// shown as free so that nothing that watches disks takes the mount for full.
func (f *filesystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	start := time.Now()
	blocks := f.cfg.StatfsBytes / blockSize
	*out = fuse.StatfsOut{
		Blocks: blocks, Bfree: blocks, Bavail: blocks,
		Files: blocks, Ffree: blocks,
		Bsize: blockSize, Frsize: blockSize, NameLen: nameMax,
	}
	f.metrics.done(opStatfs, start, fuse.OK)
	return fuse.OK
}
