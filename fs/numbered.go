package fs

import (
	"context"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// numbered is a [manifest.Tree] whose directories never change, so that the number
// of an entry is a position for ever. On an immutable mount the kernel then opens
// directories without us, and a listing keeps no state here: an offset is all that
// is needed to go on, whoever comes with it and whenever.
type numbered interface {
	// ReadDirAt gives the entries of dir to yield, beginning with the one numbered
	// position, the first being 0, until it returns false. An entry and its strings
	// hold only during the call.
	ReadDirAt(ctx context.Context, dir string, position int, yield func(*manifest.Entry) bool) error
}

// readNumbered is readDir without an open directory.
func (f *filesystem) readNumbered(cancel <-chan struct{}, in *fuse.ReadIn, add addEntry) fuse.Status {
	n := f.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return fuse.Status(estale)
	case n.kind != manifest.Directory:
		return fuse.ENOTDIR
	}
	ctx := newRequest(&in.Caller, cancel)
	defer ctx.end()
	position := in.Offset
	for ; position < dotEntries; position++ {
		d := dotEntry(n, int(position))
		d.Off = position + 1
		if !add(n, d, nil, manifest.Validity{}) {
			return fuse.OK
		}
	}
	given := position > in.Offset
	err := f.numbered.ReadDirAt(ctx, n.dirPath(), int(position-dotEntries), func(e *manifest.Entry) bool {
		position++
		d := fuse.DirEntry{Name: e.Name, Mode: typeBits(e.Kind), Off: position}
		d.Ino = inodeNumber(e.Kind, n.dirPath(), e.Name, &e.Object)
		more := add(n, d, e, manifest.Validity{})
		given = given || more
		return more
	})
	if err != nil && !given {
		return f.fail("readdir", n, nameErrno(err), err)
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

// owned returns a copy of e with strings of its own, in one allocation: most
// names end their key.
func owned(e *manifest.Entry) manifest.Entry {
	o := *e
	s := strings.Clone(e.Object.Key + e.Object.ETag)
	o.Object = oss.Object{Key: s[:len(e.Object.Key)], ETag: s[len(e.Object.Key):], Size: e.Object.Size, ModTime: e.Object.ModTime}
	key := strings.TrimSuffix(o.Object.Key, "/")
	if strings.HasSuffix(key, e.Name) {
		o.Name = key[len(key)-len(e.Name):]
	} else {
		o.Name = strings.Clone(e.Name)
	}
	o.Cursor = ""
	return o
}
