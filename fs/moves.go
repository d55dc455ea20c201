package fs

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pailfs/pailfs/manifest"
)

// moves keep what is known by path right while directories are renamed. What
// changes a name holds the lock for reading, from the moment at which it learns the
// path of the directory; the rename of a directory holds it for writing. Waits for
// room and for publication come before or after. A lookup,
// which may wait for the store, holds nothing: it begins anew if what it asks for, or a
// directory above, was renamed meanwhile. Who renames others keeps nobody from anything.
type moves struct {
	sync.RWMutex
	// count changes at the beginning and at the end of a rename of a directory, and is odd
	// during one.
	count atomic.Uint64
	mu    struct {
		sync.Mutex
		// last has the count at the last rename from or to a path. Paths are hashed: who is
		// taken for another asks once more.
		last map[uint64]uint64
		seed maphash.Seed
		// forgotten is the count of the last rename of which the paths are not known any more.
		forgotten uint64
	}
}

// movesMost bounds the renames of which the paths are remembered, at some 40 bytes each.
// Who wants to hold up a lookup that has nothing to do with it has to rename as many, all
// of them named differently, in the time that the lookup takes.
const movesMost = 1 << 15

// begins notes that a directory begins to be renamed. The lock is held for writing. end
// must be called when all of it has taken effect.
func (m *moves) begins(from, to string) (end func()) {
	m.note(from, to)
	return func() { m.note(from, to) }
}

func (m *moves) note(paths ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.count.Add(1)
	if m.mu.last == nil {
		m.mu.seed = maphash.MakeSeed()
	}
	if m.mu.last == nil || len(m.mu.last) >= movesMost {
		m.mu.last = make(map[uint64]uint64)
		m.mu.forgotten = now - 1
	}
	for _, path := range paths {
		m.mu.last[maphash.String(m.mu.seed, path)] = now
	}
}

// touched reports whether the directory at path may have been another one at some time
// since count was since: it, or one above, has been renamed, or another one to there.
func (m *moves) touched(path string, since uint64) bool {
	if since%2 == 0 && m.count.Load() == since {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A rename that was under way at that time counts, one that had ended does not.
	after := since - since%2
	if m.mu.forgotten > after {
		return true
	}
	for path != "" {
		if m.mu.last[maphash.String(m.mu.seed, path)] > after {
			return true
		}
		path, _ = splitPath(path)
	}
	return false
}

// lookup asks what name means in dir, wherever that is.
func (f *filesystem) lookup(ctx context.Context, dir *inode, name string) (entry, manifest.Validity, error) {
	for {
		before := f.moves.count.Load()
		path := dir.dirPath()
		e, valid, err := f.names.Lookup(ctx, path, name)
		if f.space == nil || ctx.Err() != nil || dir.dirPath() == path && !f.moves.touched(join(path, name), before) {
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
