package fs

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pailfs/pailfs/manifest"
)

// moves keep what is known by path right while directories are renamed. What
// changes a name holds the lock for reading, from the moment at which it learns the
// path of the directory; the rename of a directory holds it for writing. Waits for
// room and for publication come before or after. A lookup,
// which may wait for the store, holds nothing: it begins anew if a directory was
// renamed meanwhile.
type moves struct {
	sync.RWMutex
	// count changes at the beginning and at the end of a rename of a directory.
	count atomic.Uint64
}

// lookup asks what name means in dir, wherever that is.
func (f *filesystem) lookup(ctx context.Context, dir *inode, name string) (entry, manifest.Validity, error) {
	for {
		before := f.moves.count.Load()
		e, valid, err := f.names.Lookup(ctx, dir.dirPath(), name)
		if f.space == nil || before%2 == 0 && before == f.moves.count.Load() || ctx.Err() != nil {
			return e, valid, err
		}
		// Wait for the rename to end, and ask for the name where it is now.
		f.moves.RLock()
		//nolint:staticcheck // it is only waited for
		f.moves.RUnlock()
	}
}

// moved notes that the directory at path from is at path to now, in the directory
// parent, with everything below it. f.moves is held for writing.
func (f *filesystem) moved(from string, parent *inode, name string) {
	to := join(parent.dirPath(), name)
	f.specials.moved(from, to)
	for _, n := range f.nodes.all() {
		if n.id == rootID {
			continue
		}
		at := n.at()
		old := at.path()
		switch {
		case old == from && n.kind == manifest.Directory && !n.gone.Load():
			n.where.Store(&place{parent: parent.id, dir: parent.dirPath(), name: name})
		case below(at.dir, from):
			n.where.Store(&place{parent: at.parent, dir: to + strings.TrimPrefix(at.dir, from), name: at.name})
		default:
			continue
		}
		path := n.at().path()
		if n.kind == manifest.Directory {
			n.tree.path.Store(&path)
		}
		if n.kind == manifest.Directory || n.file.Load() != nil {
			f.changed.drop(old, n)
			if !n.gone.Load() {
				f.changed.put(path, n)
			}
		}
	}
}

// below reports whether the directory dir is path or lies below it.
func below(dir, path string) bool {
	return dir == path || strings.HasPrefix(dir, path) && dir[len(path)] == '/'
}
