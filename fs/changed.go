package fs

import "github.com/pailfs/pailfs/manifest"

// Changed says that a name came to mean something else by no request of the
// kernel's, which then looks it up again. It must not be called from a request.
func (m *Mounted) Changed(dir, name string) {
	f := m.fs
	n := f.directory(dir)
	if n == nil {
		return // the kernel does not know it
	}
	n.tree.touch()
	f.times.entries(n, 0)
	if !f.notify.Entry(n.id, name) {
		f.counters.dropped.Add(1)
	}
	if !f.notify.Content(n.id) {
		f.counters.dropped.Add(1)
	}
}

// directory returns the inode of the directory at path if the kernel knows it.
func (f *filesystem) directory(path string) *inode {
	if path == "" {
		return f.nodes.get(rootID)
	}
	if n := f.changed.get(path); n != nil && n.kind == manifest.Directory {
		return n
	}
	dir, name := splitPath(path)
	return f.nodes.find(&inode{id: inodeNumber(manifest.Directory, dir, name, nil), kind: manifest.Directory, tree: newDirectory(path)})
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
