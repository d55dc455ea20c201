package callers

import (
	"golang.org/x/sys/unix"
)

// Where the kernel itself refuses access to a file, by its mode, it asks for the attributes once
// more before it says so, and for nothing else. What is refused by that can be told from what the
// caller is doing at the moment, and from the mode.

// Kind is what a system call does.
type Kind uint8

// The kinds.
const (
	// Nothing is a call that is not known, or asks only.
	Nothing Kind = iota
	Open
	Execute
	Truncate
	Utimens
	SetXAttr
	RemoveXAttr
	Chmod
	Chown
	Unlink
	Rmdir
	Mkdir
	Mknod
	Symlink
	Link
	Rename
)

// attempted is what is known of a system call.
type attempted struct {
	kind Kind
	// flags is which argument holds the flags of Open, or creates.
	flags int
}

// creates is in the place of flags for a call that has those of creat(2).
const creates = -1

// calls are the system calls by their number.
var calls = map[int]attempted{
	unix.SYS_OPENAT:       {Open, 2},
	unix.SYS_EXECVE:       {kind: Execute},
	unix.SYS_EXECVEAT:     {kind: Execute},
	unix.SYS_TRUNCATE:     {kind: Truncate},
	unix.SYS_UTIMENSAT:    {kind: Utimens},
	unix.SYS_SETXATTR:     {kind: SetXAttr},
	unix.SYS_LSETXATTR:    {kind: SetXAttr},
	unix.SYS_REMOVEXATTR:  {kind: RemoveXAttr},
	unix.SYS_LREMOVEXATTR: {kind: RemoveXAttr},
	unix.SYS_FCHMODAT:     {kind: Chmod},
	unix.SYS_FCHOWNAT:     {kind: Chown},
	unix.SYS_UNLINKAT:     {kind: Unlink},
	unix.SYS_MKDIRAT:      {kind: Mkdir},
	unix.SYS_MKNODAT:      {kind: Mknod},
	unix.SYS_SYMLINKAT:    {kind: Symlink},
	unix.SYS_LINKAT:       {kind: Link},
	unix.SYS_RENAMEAT2:    {kind: Rename},
}

// Attempt is what a caller is refused.
type Attempt struct {
	Kind Kind
	// Flags are those of Open.
	Flags uint32
}

// Permission bits, as a mode has them for one class.
const (
	read    = 4
	write   = 2
	execute = 1
)

// Refused returns what the caller is doing that the kernel refuses it, for what a file or
// directory has the mode and the owners given. It is sure of what it returns, and does not see
// everything: of a directory only that it may not be passed or listed, for which directory a name
// is to be changed in does not show; nothing of callers with capabilities, nor of those that
// InChown does not see.
func (r *Rights) Refused(mode, uid, gid uint32) (a Attempt, refused bool) {
	lacks := ^r.allowed(mode, uid, gid) & 7
	if lacks == 0 || r.capable(unix.CAP_DAC_OVERRIDE) || r.capable(unix.CAP_DAC_READ_SEARCH) {
		return Attempt{}, false
	}
	number, arguments, seen := r.call()
	if !seen {
		return Attempt{}, false
	}
	known, ok := calls[number]
	if !ok {
		known, ok = oldCalls[number]
	}
	if !ok {
		return Attempt{}, false
	}
	a.Kind = known.kind
	switch {
	case a.Kind != Open:
	case known.flags == creates:
		a.Flags = unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC
	case known.flags < len(arguments):
		a.Flags = uint32(arguments[known.flags])
	}
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return a, lacks&a.passing() != 0
	}
	return a, lacks&a.wants() != 0
}

// passing returns what is needed of a directory on the way, where it is not the directory
// itself that is opened.
func (a Attempt) passing() uint32 {
	if a.Kind == Open && a.Flags&unix.O_DIRECTORY != 0 {
		return 0
	}
	return execute
}

// wants returns what is needed of a file.
func (a Attempt) wants() uint32 {
	switch a.Kind {
	case Open:
		if a.Flags&unix.O_PATH != 0 {
			return 0
		}
		bits := [...]uint32{unix.O_RDONLY: read, unix.O_WRONLY: write, unix.O_RDWR: read | write, 3: read | write}[a.Flags&unix.O_ACCMODE]
		if a.Flags&unix.O_TRUNC != 0 {
			bits |= write
		}
		return bits
	case Execute:
		return execute
	case Truncate, SetXAttr, RemoveXAttr:
		return write
	}
	return 0
}

// allowed returns the permission bits that the caller has by its user and groups.
func (r *Rights) allowed(mode, uid, gid uint32) uint32 {
	switch {
	case r.Caller.Uid == uid:
		return mode >> 6 & 7
	case r.Caller.Gid == gid || r.inGroup(gid):
		return mode >> 3 & 7
	}
	return mode & 7
}
