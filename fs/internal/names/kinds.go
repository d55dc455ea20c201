package names

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/manifest"
)

// The kinds of names that are local: they have no place in an object store.
const (
	Fifo manifest.Kind = 0x80 + iota
	Socket
)

// IsLocal reports whether a kind is one of names that are never published.
func IsLocal(k manifest.Kind) bool { return k == Fifo || k == Socket }

// Permissions are the bits of a mode that chmod(2) sets.
const Permissions = 0o7777

// TypeBits returns the file type of a directory entry.
func TypeBits(k manifest.Kind) uint32 {
	switch k {
	case manifest.Directory:
		return fuse.S_IFDIR
	case manifest.Symlink:
		return fuse.S_IFLNK
	case Fifo:
		return syscall.S_IFIFO
	case Socket:
		return syscall.S_IFSOCK
	}
	return fuse.S_IFREG
}
