package callers

import "golang.org/x/sys/unix"

// chownCalls are the system calls that change an owner.
var chownCalls = [...]int{unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}

// oldCalls are system calls that newer machines do not have.
var oldCalls = map[int]attempted{
	unix.SYS_OPEN:      {Open, 1},
	unix.SYS_CREAT:     {Open, creates},
	unix.SYS_UNLINK:    {kind: Unlink},
	unix.SYS_RMDIR:     {kind: Rmdir},
	unix.SYS_MKDIR:     {kind: Mkdir},
	unix.SYS_MKNOD:     {kind: Mknod},
	unix.SYS_SYMLINK:   {kind: Symlink},
	unix.SYS_LINK:      {kind: Link},
	unix.SYS_RENAME:    {kind: Rename},
	unix.SYS_CHMOD:     {kind: Chmod},
	unix.SYS_CHOWN:     {kind: Chown},
	unix.SYS_LCHOWN:    {kind: Chown},
	unix.SYS_UTIME:     {kind: Utimens},
	unix.SYS_UTIMES:    {kind: Utimens},
	unix.SYS_FUTIMESAT: {kind: Utimens},
	unix.SYS_RENAMEAT:  {kind: Rename},
}
