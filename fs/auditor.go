package fs

import (
	"context"
	"syscall"
	"time"
)

// Auditor is told what programs do with the files of a mount: each operation once, when it has
// been answered.
type Auditor interface {
	// Process tells the process of a thread that waits for an answer.
	Process(tid uint32) *Process
	// Admit is called before an operation, and may wait for room for its record. An error is
	// ctx's: then the operation is not done, and not told of. Otherwise Done follows.
	Admit(ctx context.Context) error
	// Done takes the record of an operation. It keeps what op points to. CloseFile is not
	// admitted: nobody waits for it, and there are no more of them than opens.
	Done(op Operation)
}

// Process is what is known of a process. It does not change.
type Process struct {
	// PID is its number, 0 if it lives outside the daemon's PID namespace; nothing else is
	// known then.
	PID uint32
	// Command is its name as the kernel has it, up to 15 bytes, and Program the file that it
	// runs. Its arguments are not looked at: they may hold secrets.
	Command, Program string
	// Pod and Container are those of Kubernetes whose control group it is in, or "".
	Pod, Container string
}

// Verb is a kind of operation.
type Verb string

// The verbs.
const (
	OpenFile    Verb = "open"
	CloseFile   Verb = "close"
	Create      Verb = "create"
	Mknod       Verb = "mknod"
	Mkdir       Verb = "mkdir"
	Symlink     Verb = "symlink"
	Link        Verb = "link"
	Tmpfile     Verb = "tmpfile"
	Unlink      Verb = "unlink"
	Rmdir       Verb = "rmdir"
	Rename      Verb = "rename"
	Truncate    Verb = "truncate"
	Fallocate   Verb = "fallocate"
	Chmod       Verb = "chmod"
	Chown       Verb = "chown"
	Utimens     Verb = "utimens"
	SetXAttr    Verb = "setxattr"
	RemoveXAttr Verb = "removexattr"
)

// Version is a version of an object as far as it was known without a request. The zero value
// is none: the bucket does not have it, or not yet.
type Version struct{ Key, ETag string }

// Operation is what a program did, or tried to do.
type Operation struct {
	Verb Verb
	// UID and GID are the caller's effective ids, as the daemon's user namespace sees them.
	UID, GID uint32
	Process  *Process
	// Began is when the request came, Took how long it was until the answer. Of CloseFile
	// they are when the file was closed, and for how long it had been open.
	Began time.Time
	Took  time.Duration
	// Path is where it was, from the root of the mount, and To where Rename put it.
	Path, To string
	// Object is what the path meant before, Replaced what To did.
	Object, Replaced Version
	// Handle is the same for OpenFile or Create and for the CloseFile that follows. A number is
	// not used again.
	Handle uint64
	// Access is read, write or read-write, for OpenFile, Create and CloseFile.
	Access string
	// Truncated says that OpenFile or Create was to empty the file.
	Truncated bool
	// Passthrough says that the kernel reads and writes the file itself: Read and Written,
	// which count what came to the daemon until CloseFile, then miss that.
	Passthrough   bool
	Read, Written int64
	// Change is what Truncate, Fallocate, Chmod, Chown and Utimens asked for, the mode of what
	// is made, and the size that a file has at CloseFile which may have been written.
	Change *Change
	// Name is that of an extended attribute, or the target of Symlink.
	Name string
	// Errno is why it failed, or 0. Of CloseFile it is the first error that reading, writing
	// or closing met.
	Errno syscall.Errno
	// ByKernel says that the kernel refused it, by the mode of Path, which may be a directory on
	// the way: the daemon was asked for that mode alone.
	ByKernel bool
}

// Change is what was asked to be changed of a file; nil means left as it is. A zero time means
// the present.
type Change struct {
	Size           *int64
	Mode, UID, GID *uint32
	Mtime          *time.Time
}
