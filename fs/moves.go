package fs

import (
	"context"
	"strings"

	"github.com/pailfs/pailfs/manifest"
)

// lookup asks what name means in dir, wherever that is.
func (t *inodes) lookup(ctx context.Context, dir *inode, name string) (entry, manifest.Validity, error) {
	for {
		before := t.moves.Now()
		path := dir.dirPath()
		e, valid, err := t.names.Lookup(ctx, path, name)
		if t.space == nil || ctx.Err() != nil || dir.dirPath() == path && !t.moves.Touched(join(path, name), before) {
			return e, valid, err
		}
		// Wait for the rename to end, and ask for the name where it is now.
		t.moves.RLock()
		//nolint:staticcheck // it is only waited for
		t.moves.RUnlock()
	}
}

// moved notes that the directory at path from is at path to now, in the directory
// parent, with everything below it. f.moves is held for writing.
func (t *inodes) moved(from string, parent *inode, name string) {
	to := join(parent.dirPath(), name)
	t.specials.moved(from, to)
	for _, n := range t.nodes.all() {
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
			t.changed.drop(old, n)
			if !n.gone.Load() {
				t.changed.put(path, n)
			}
		}
	}
}

// below reports whether the directory dir is path or lies below it.
func below(dir, path string) bool {
	return dir == path || strings.HasPrefix(dir, path) && dir[len(path)] == '/'
}
