package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/manifest"
)

// Shown is one name as programs see it.
type Shown struct {
	// Entry is the name. The Object of a file that was changed here is what became of it;
	// where it is Partial, only [Names.Lookup] tells what else is here.
	manifest.Entry
	// Staged says that the bytes of a file are no object yet: Object has their size only.
	Staged bool
	// Mode are the permission bits, with setuid, setgid and sticky.
	Mode     uint32
	UID, GID uint32

	entry entry
}

// Names are what a mount shows by path, to the daemon itself: nobody's rights are asked.
type Names struct{ fs *filesystem }

// Names returns what m shows.
func (m *Mounted) Names() Names { return Names{m.fs} }

// Root returns the mount's root.
func (n Names) Root() Shown {
	root := n.fs.nodes.get(rootID)
	return n.fs.show(root, &entry{Entry: manifest.Entry{Kind: manifest.Directory}})
}

// Lookup returns what name is in the directory at the path dir. What does not exist is
// [io/fs.ErrNotExist].
func (n Names) Lookup(ctx context.Context, dir, name string) (Shown, error) {
	e, _, err := n.fs.names.Lookup(ctx, dir, name)
	if err != nil {
		return Shown{}, err
	}
	return n.fs.showAt(dir, &e), nil
}

// ReadDir returns entries of the directory at the path dir, after the one whose Cursor
// is after, as [manifest.Tree] does.
func (n Names) ReadDir(ctx context.Context, dir, after string, limit int) ([]Shown, error) {
	page, _, err := n.fs.names.ReadDir(ctx, dir, after, limit)
	if err != nil {
		return nil, err
	}
	shown := make([]Shown, len(page))
	for i := range page {
		shown[i] = n.fs.showAt(dir, &page[i])
	}
	return shown, nil
}

// ReadLink returns the target of a symbolic link.
func (n Names) ReadLink(ctx context.Context, s Shown) (string, error) {
	return n.fs.names.ReadLink(ctx, s.entry)
}

// Renames changes when a directory begins to be renamed and when that has ended; it is odd
// in between. What was learnt by paths while it did not change is of one moment.
func (n Names) Renames() uint64 { return n.fs.moves.count.Load() }

// showAt returns the entry e of the directory at the path dir.
func (f *filesystem) showAt(dir string, e *entry) Shown {
	if e.Kind == manifest.Directory {
		if known := f.directory(join(dir, e.Name)); known != nil {
			return f.show(known, e)
		}
	}
	return f.show(newInode(&inode{tree: newDirectory(dir)}, e), e)
}

// show returns e, which is n, with the attributes that programs see.
func (f *filesystem) show(n *inode, e *entry) Shown {
	var a fuse.Attr
	f.attr(n, &a)
	s := Shown{Entry: e.Entry, Mode: a.Mode & permissions, UID: a.Uid, GID: a.Gid, entry: *e}
	if e.Kind != manifest.Directory {
		s.Object, s.Staged = n.version()
		if s.Staged {
			s.Object.Size = int64(a.Size)
		}
	}
	return s
}
