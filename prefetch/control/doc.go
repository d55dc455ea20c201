// Package control carries requests from programs to the daemon that serves a
// mount, through one ioctl on any directory of it.
//
// A request is a method name and parameters in JSON; so is its answer. Both
// travel in one buffer of fixed size that the kernel copies in and out
// ([Command], [BufferSize]). A longer answer is fetched piece by piece with a
// cursor, and a call that takes longer than a second is asked after again, so
// that no system call blocks for long. PROTOCOL.md describes every byte, and
// testdata/golden holds exchanges that any client can be tested with.
//
// [Mux] is the daemon's side. Methods are registered with [Handle] before it
// serves; the file system hands it each ioctl with the caller's ids as the
// kernel reports them, and it refuses what a caller's user may not do. [Client]
// is the other side: it needs no path but the mount's own, and works through
// read-only and bind mounts of any subdirectory.
//
// The mux knows no method but hello. What the methods do belongs to the packages
// that register them; [HandleLoader] registers those of package prefetch.
package control
