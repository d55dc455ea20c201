package fs

import "github.com/hanwen/go-fuse/v2/fuse"

// filesystem answers the kernel's requests. Each is answered by one of its parts, which call
// downwards only: naming, attributes, directories; writes; keeps; reads; inodes; reports. What
// it does not define, the embedded default answers with ENOSYS, which the kernel takes once as
// "never ask again": locks, access and statx are then its own business.
//
// Lock order: dirHandle.mu, listing.Directory.mu, listing.Listing.mu; fileState.mu; a shard
// of nodeTable. None is held over a request to the store but dirHandle.mu, which
// belongs to one open directory.
type filesystem struct {
	fuse.RawFileSystem

	cfg         *Config
	reports     reports
	inodes      inodes
	reads       readPath
	writes      writePath
	keeps       keeps
	directories directories
	attributes  attrs
	naming      naming
	follower    follower
}

var _ fuse.RawFileSystem = (*filesystem)(nil)

// String implements [fuse.RawFileSystem].
func (f *filesystem) String() string { return fsType }

// Init implements [fuse.RawFileSystem]: the kernel has accepted the mount and
// sends nothing else before this returns.
func (f *filesystem) Init(server *fuse.Server) {
	f.inodes.notify.Start(server)
	dir := ""
	if ssd := f.reads.cache.Stats().SSD; ssd != nil {
		dir = ssd.Dir
	}
	switch {
	case f.cfg.Passthrough == Off:
		f.reads.passthrough.Refuse("off by configuration")
	case f.reads.noOpen:
		f.reads.passthrough.Refuse("a no-open mount has no OPEN in which to offer a file")
	default:
		f.reads.passthrough.Probe(server, f.cfg.PassthroughMin, dir)
	}
}

// Forget implements [fuse.RawFileSystem].
func (f *filesystem) Forget(id, references uint64) { f.inodes.forget(id, references) }

// forgot lets go of what was kept for an inode that the kernel has forgotten.
func (f *filesystem) forgot(n *inode) {
	f.reads.idle.drop(n)
	f.keeps.late.Drop(n)
	if n.tree != nil {
		f.directories.cursors.Forgotten(n.tree)
	}
}
