package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/manifest"
)

// numbered is a [manifest.Tree] whose directories never change, so that a position
// in one holds for ever. On an immutable mount the kernel then opens
// directories without us, and a listing keeps no state here: an offset is all that
// is needed to go on, whoever comes with it and whenever. Where answers ended is kept
// for speed alone: it tells who reads on from who seeks.
type numbered interface {
	// ReadDirAt gives the entries of dir with their positions to yield, beginning with
	// that at position, or the next one, until it returns false. Positions grow from 0.
	// namesOnly asks for no more than Name and Kind. e is yield's only until it returns.
	ReadDirAt(ctx context.Context, dir string, position int64, namesOnly bool, yield func(position int64, e *manifest.Entry) bool) error
}

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
	for ; position < dotEntries; position++ {
		d := dotEntry(n, int(position))
		d.Off = position + 1
		if !add(n, d, nil, manifest.Validity{}) {
			return fuse.OK
		}
	}
	given, more := position > in.Offset, false
	limit, entries, next := n.tree.ends.Limit(in.Offset), 0, position
	var shown entry
	path := n.dirPath()
	err := ds.inodes.numbered.ReadDirAt(ctx, path, int64(position-dotEntries), !plus, func(at int64, e *manifest.Entry) bool {
		d := fuse.DirEntry{Name: e.Name, Mode: typeBits(e.Kind), Off: uint64(at) + 1 + dotEntries}
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
		n.tree.ends.Answered(next, limit)
	}
	if err != nil && !given {
		return ds.reports.fail("readdir", n, nameErrno(err), err)
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
