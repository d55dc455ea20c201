package fs

import "github.com/pailfs/pailfs/manifest"

// Changed says that a name came to mean something else by no request of the
// kernel's, which then looks it up again. It must not be called from a request.
func (m *Mounted) Changed(dir, name string) {
	f := m.fs
	n := f.inodes.directory(dir)
	if n == nil {
		return // the kernel does not know it
	}
	n.tree.touch()
	f.inodes.times.entries(n, 0)
	if !f.inodes.notify.Entry(n.id, name) {
		f.reports.counters.dropped.Add(1)
	}
	if !f.inodes.notify.Content(n.id) {
		f.reports.counters.dropped.Add(1)
	}
}

// directory returns the inode of the directory at path if the kernel knows it.
func (t *inodes) directory(path string) *inode {
	if path == "" {
		return t.nodes.get(rootID)
	}
	if n := t.changed.get(path); n != nil && n.kind == manifest.Directory {
		return n
	}
	dir, name := splitPath(path)
	return t.nodes.find(&inode{id: inodeNumber(manifest.Directory, dir, name, nil), kind: manifest.Directory, tree: newDirectory(path)})
}

// splitPath is the inverse of join.
func splitPath(path string) (dir, name string) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return "", path
}
