// Package machine says what this machine gives a mount, and takes from the process what a file
// system's daemon should not have.
//
// The checks (mount point, /dev/fuse, cache directory, memory) change nothing, and say what to do.
// [PrepareProcess], [LimitHeap] and [DropPrivileges] change the process they are called in.
package machine
