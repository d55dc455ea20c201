// Package fs turns the kernel's requests on a mount into reads of the cache.
//
// A name comes from a [manifest.Tree], its bytes from a [cache.Cache]. Between
// them stands the inode: one inode is one version of one object, so everything
// the kernel remembers of it stays true for as long as it likes. A new version
// is another inode under the same name, met when the kernel looks the name up
// again.
//
// The package speaks the FUSE protocol itself, one request a method of
// filesystem, because the state that decides how a file is read (see ioMode)
// must be taken and dropped at exact points of OPEN and RELEASE. It keeps no
// names, no bytes and no listing of its own beyond what the kernel holds open.
//
// filesystem is thin: requests.go says which of its parts answers what. naming
// changes names, attrs what is told of a file beside names and bytes, directories
// looks names up and lists them. writePath opens what may change, readPath reads,
// keeps holds what lost its name. inodes is what the kernel knows, below them all.
//
// SEMANTICS.md lists what a program that reads a mount may rely on, each claim
// with its test. DESIGN.md says why things are as they are.
package fs
