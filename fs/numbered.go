package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
)

// readNumbered is readDir without an open directory.
func (ds *directories) readNumbered(cancel <-chan struct{}, in *fuse.ReadIn, plus bool, add addEntry) fuse.Status {
	n := ds.inodes.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return fuse.Status(estale)
	case n.kind != manifest.Directory:
		return fuse.ENOTDIR
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	position := in.Offset
	for ; position < listing.DotEntries; position++ {
		d := dotEntry(n, int(position))
		d.Off = position + 1
		if !add(n, d, nil, manifest.Validity{}) {
			return fuse.OK
		}
	}
	given, more := position > in.Offset, false
	limit, entries, next := n.tree.Ends.Limit(in.Offset), 0, position
	var shown names.Entry
	path := n.dirPath()
	err := ds.inodes.numbered.ReadDirAt(ctx, path, int64(position-listing.DotEntries), !plus, func(at int64, e *manifest.Entry) bool {
		d := fuse.DirEntry{Name: e.Name, Mode: names.TypeBits(e.Kind), Off: uint64(at) + 1 + listing.DotEntries}
		d.Ino = nameNumber(e.Kind, path, e.Name)
		shown.Entry = *e
		if more = !add(n, d, &shown, manifest.Validity{}); more {
			return false
		}
		given, next = true, d.Off
		entries++
		more = entries == limit
		return !more
	})
	if more {
		n.tree.Ends.Answered(next, limit)
	}
	if err != nil && !given {
		return ds.reports.fail("readdir", n, errnos.OfName(err), err)
	}
	// What came before an error is given out; the next call meets it again.
	return fuse.OK
}

// dotEntry returns "." and "..", which have the first two positions.
func dotEntry(n *inode, position int) fuse.DirEntry {
	if position == 0 {
		return fuse.DirEntry{Name: ".", Mode: fuse.S_IFDIR, Ino: n.id}
	}
	return fuse.DirEntry{Name: "..", Mode: fuse.S_IFDIR, Ino: max(n.at().parent, rootID)}
}
