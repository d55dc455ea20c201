package fs

import (
	"sync"

	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// entryNumber is the inode number of an entry of dir. A file that was changed here
// keeps that of the object that it was made from.
func entryNumber(dir string, e *names.Entry) uint64 {
	if e.File == nil {
		return inodeNumber(e.Kind, dir, e.Name, &e.Object)
	}
	if origin, ok := e.File.Origin(); ok {
		return inodeNumber(e.Kind, dir, e.Name, &origin)
	}
	return usable(mix(newFileSalt, e.File.ID()) &^ (1 << 63))
}

// newFileSalt keeps the numbers of files that were made here apart from others.
const newFileSalt = 0x5fd1_e3b7_11c9_42a3

// version returns the object that a file is. staged says that it is none: its bytes
// were changed here and are not published.
func (n *inode) version() (o oss.Object, staged bool) {
	if file := n.file.Load(); file != nil {
		return file.Content()
	}
	return n.object, false
}

// sameFile reports whether n and other, which is not known to the kernel yet, are
// one file: the same file of ours, or the same version. If n learns by that that it
// was changed here, it takes the file over.
func (n *inode) sameFile(other *inode) bool {
	mine, want := n.file.Load(), other.file.Load()
	switch {
	case mine == want && mine != nil:
		return true
	case want == nil:
		o, staged := n.version()
		return !staged && o == other.object
	}
	// It was changed by its name, or again after it had been published.
	origin, ok := want.Origin()
	if o, staged := n.version(); !ok || staged || o != origin {
		return false
	}
	return n.file.CompareAndSwap(mine, want) || n.file.Load() == want
}

// byPath finds inodes whose number does not follow from what the tree says of their
// name, or will not when what they became is published: files that were changed
// here, and directories that were renamed.
type byPath struct {
	mu struct {
		sync.Mutex
		nodes map[string]*inode
	}
}

func (b *byPath) get(path string) *inode {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.nodes[path]
}

// put notes that n is at path.
func (b *byPath) put(path string, n *inode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.nodes == nil {
		b.mu.nodes = make(map[string]*inode)
	}
	b.mu.nodes[path] = n
}

// drop notes that n is not at path, if it was.
func (b *byPath) drop(path string, n *inode) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.nodes[path] == n {
		delete(b.mu.nodes, path)
	}
}

// node returns the inode of an entry of dir, with a reference of the kernel's.
func (t *inodes) node(dir *inode, e *names.Entry) *inode {
	want := newInode(dir, e)
	if names.IsLocal(e.Kind) {
		want.special = t.specials.Get(want.at().dir, e.Name)
	}
	if t.numbered != nil {
		want.id = nameNumber(e.Kind, want.at().dir, e.Name)
	}
	if t.space == nil {
		return t.acquire(want)
	}
	path := want.at().path()
	if n := t.changed.get(path); n != nil && n.same(want) && t.nodes.again(n) {
		return n
	}
	n := t.acquire(want)
	if e.File != nil {
		t.changed.put(path, n)
	}
	return n
}

// acquire returns the inode with the identity of want, with a reference of the kernel's.
func (t *inodes) acquire(want *inode) *inode {
	if want.kind == manifest.Directory && t.numbered == nil {
		return t.times.acquire(t.nodes, want)
	}
	return t.nodes.acquire(want)
}

// number is the inode number that an entry of dir has, or will have.
func (t *inodes) number(dir *inode, e *names.Entry) uint64 {
	path := dir.dirPath()
	if t.numbered != nil {
		return nameNumber(e.Kind, path, e.Name)
	}
	if t.space != nil {
		if n := t.changed.get(names.Join(path, e.Name)); n != nil && n.kind == e.Kind && (e.File == n.file.Load() || e.File == nil && n.same(newInode(dir, e))) {
			return n.id
		}
	}
	return entryNumber(path, e)
}

// bind notes what n became.
func (t *inodes) bind(n *inode, file *writeback.File) {
	if told := n.told.Load(); told != nil && n.file.Load() == nil {
		file.CarryChanged(told.Ctime)
	}
	n.file.Store(file)
	t.changed.put(n.at().path(), n)
}
