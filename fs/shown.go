package fs

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
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
	// ID tells a directory from others that had its path before or will have it; 0 if no
	// program uses it. Whoever has it open, or works in it, keeps it.
	ID uint64

	entry names.Entry
}

// Names are what a mount shows by path, to the daemon itself: nobody's rights are asked.
type Names struct{ fs *filesystem }

// Names returns what m shows.
func (m *Mounted) Names() Names { return Names{m.fs} }

// Root returns the mount's root.
func (n Names) Root() Shown {
	root := n.fs.inodes.nodes.get(rootID)
	return n.fs.inodes.show(root, &names.Entry{Entry: manifest.Entry{Kind: manifest.Directory}})
}

// Lookup returns what name is in the directory at the path dir. What does not exist is
// [io/fs.ErrNotExist].
func (n Names) Lookup(ctx context.Context, dir, name string) (Shown, error) {
	e, _, err := n.fs.inodes.names.Lookup(ctx, dir, name)
	if err != nil {
		return Shown{}, err
	}
	return n.fs.inodes.showAt(dir, &e), nil
}

// ReadDir returns entries of the directory at the path dir, after the one whose Cursor
// is after, as [manifest.Tree] does.
func (n Names) ReadDir(ctx context.Context, dir, after string, limit int) ([]Shown, error) {
	page, _, err := n.fs.inodes.names.ReadDir(ctx, dir, after, limit)
	if err != nil {
		return nil, err
	}
	shown := make([]Shown, len(page))
	for i := range page {
		shown[i] = n.fs.inodes.showAt(dir, &page[i])
	}
	return shown, nil
}

// ReadLink returns the target of a symbolic link.
func (n Names) ReadLink(ctx context.Context, s Shown) (string, error) {
	return n.fs.inodes.names.ReadLink(ctx, s.entry)
}

// Moment returns a number for [Names.Renamed].
func (n Names) Moment() uint64 { return n.fs.inodes.moves.Now() }

// Renamed reports whether since a moment the path dir may have meant another directory than
// now, because it or one above was renamed. If not, what was learnt by that path since then is
// of one directory. Renames elsewhere do not count, and nobody waits.
func (n Names) Renamed(dir string, since uint64) bool { return n.fs.inodes.moves.Touched(dir, since) }

// showAt returns the entry e of the directory at the path dir.
func (t *inodes) showAt(dir string, e *names.Entry) Shown {
	if e.Kind == manifest.Directory {
		if known := t.directory(names.Join(dir, e.Name)); known != nil {
			return t.show(known, e)
		}
	}
	n := newInode(&inode{tree: listing.New(dir)}, e)
	if names.IsLocal(e.Kind) {
		n.special = t.specials.Get(dir, e.Name)
	}
	return t.show(n, e)
}

// show returns e, which is n, with the attributes that programs see.
func (t *inodes) show(n *inode, e *names.Entry) Shown {
	var a fuse.Attr
	t.attr(n, &a)
	s := Shown{Entry: e.Entry, Mode: a.Mode & names.Permissions, UID: a.Uid, GID: a.Gid, entry: *e}
	switch {
	case names.IsLocal(e.Kind): // it has neither bytes nor an object
		s.Object = oss.Object{}
	case e.Kind == manifest.Directory:
		s.ID = n.met
	default:
		s.Object, s.Staged = n.version()
		if s.Staged {
			s.Object.Size = int64(a.Size)
		}
	}
	return s
}
