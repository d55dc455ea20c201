package fs

import (
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

const rootID = 1

// inode is what the kernel knows by a node id: one version of an object, or a
// directory. All of it but the state behind the pointers is fixed.
type inode struct {
	// id is both the node id of the protocol and the inode number that programs
	// see. It is made of the identity, so it is the same after a FORGET, a remount
	// and on another machine.
	id   uint64
	kind manifest.Kind
	// object is the version, or for a directory whatever its entry had. version tells
	// what a file is now that was changed here.
	object oss.Object
	// file is what a file became when it was changed through this mount. It stays as
	// long as the kernel knows the inode.
	file atomic.Pointer[writeback.File]
	// where says where the inode was met first, and, on a mount that is written,
	// where it was moved to since.
	where atomic.Pointer[place]

	// met tells it from all others that the mount has had, also of the same id and name; 0
	// for one that the kernel does not know.
	met uint64

	// lookups counts the references that the kernel holds; guarded by the shard of
	// the node table.
	lookups uint64

	// attr is what the manifest knows beyond the object, or nil.
	attr atomic.Pointer[manifest.Attr]
	// special is the fifo or socket that it is, nil for what the bucket can have.
	special *names.Special
	// target is that of a symbolic link that was made here: it outlives the name.
	target atomic.Pointer[string]
	// given are the attributes that programs gave to a directory.
	given atomic.Pointer[writeback.SetAttr]
	// told are the times that programs were told where neither the object nor a file of the
	// space tells them, or nil.
	told atomic.Pointer[writeback.Times]
	// gone says that the name was removed through this mount, while the kernel may
	// still use the inode.
	gone atomic.Bool
	// stale says that the version was read and is not there any more.
	stale atomic.Bool
	// damaged says that the kernel may have cached bytes that were found wrong.
	damaged atomic.Bool
	// state is made when a file is opened first, path and listings only for
	// directories.
	state atomic.Pointer[fileState]
	tree  *listing.Directory
}

// place is a name in a directory.
type place struct {
	parent uint64 // the inode of the directory
	dir    string // its path
	name   string
}

// path returns the path relative to the root.
func (p *place) path() string { return names.Join(p.dir, p.name) }

// newInode returns an inode for entry e of the directory parent, not yet known
// to the kernel.
func newInode(parent *inode, e *names.Entry) *inode {
	at := &place{parent: parent.id, dir: parent.dirPath(), name: e.Name}
	n := &inode{kind: e.Kind, object: e.Object, id: entryNumber(at.dir, e)}
	n.where.Store(at)
	n.attr.Store(e.Attr)
	n.file.Store(e.File)
	n.told.Store(e.Told)
	if e.Kind == manifest.Directory {
		n.tree = listing.New(at.path())
	}
	return n
}

// newRoot returns the inode of the mount's root, which the kernel never forgets.
func newRoot() *inode {
	root := &inode{id: rootID, kind: manifest.Directory, lookups: 1, tree: listing.New("")}
	root.where.Store(&place{})
	return root
}

// same reports whether n and other have one identity.
func (n *inode) same(other *inode) bool {
	if n.kind != other.kind {
		return false
	}
	if n.kind == manifest.Directory {
		return n.dirPath() == other.dirPath() && !n.gone.Load()
	}
	return n.sameFile(other)
}

// path returns the name of n relative to the root, for people.
func (n *inode) path() string {
	if n.id == rootID {
		return "/"
	}
	return "/" + n.at().path()
}

// at returns where n is.
func (n *inode) at() *place { return n.where.Load() }

// dirPath returns the path of a directory as the tree knows it.
func (n *inode) dirPath() string { return *n.tree.Path.Load() }

// opened returns the open state of n.
func (n *inode) opened() *fileState {
	if st := n.state.Load(); st != nil {
		return st
	}
	n.state.CompareAndSwap(nil, &fileState{})
	return n.state.Load()
}

// entry returns n as the tree knows it, without a cursor.
func (n *inode) entry() names.Entry {
	return names.Entry{Entry: manifest.Entry{Name: n.at().name, Kind: n.kind, Object: n.object, Attr: n.attr.Load()}, File: n.file.Load()}
}

// inodeNumber hashes an identity: the path of a directory, the version of
// anything else. The top bit stays clear because some programs keep inode
// numbers in signed integers.
func inodeNumber(kind manifest.Kind, dir, name string, o *oss.Object) uint64 {
	if kind == manifest.Symlink {
		kind = manifest.File // a listing may not know yet which of them it is
	}
	if kind == manifest.Directory {
		return nameNumber(kind, dir, name)
	}
	h := uint64(kind) + 1
	h = mix(h, xxhash.Sum64String(o.Key))
	h = mix(h, xxhash.Sum64String(o.ETag))
	h = mix(h, uint64(o.Size))
	h = mix(h, uint64(o.ModTime.Unix()))
	return usable(h &^ (1 << 63))
}

// nameNumber hashes a name, which is identity enough where it never means anything
// else.
func nameNumber(kind manifest.Kind, dir, name string) uint64 {
	h := mix(uint64(kind)+1, xxhash.Sum64String(dir))
	return usable(mix(h, xxhash.Sum64String(name)) &^ (1 << 63))
}

// mix folds v into h.
func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo ^ bits.RotateLeft64(v, 29)
}

// usable returns id, or a larger one where the protocol gives id a meaning.
func usable(id uint64) uint64 {
	if id <= rootID {
		return id + rootID + 1
	}
	return id
}

// nextNumber returns the id that is tried where another inode has id.
func nextNumber(id uint64) uint64 { return usable((id + 1) &^ (1 << 63)) }
