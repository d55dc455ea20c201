package callers

import "golang.org/x/sys/unix"

// chownCalls are the system calls that change an owner.
var chownCalls = [...]int{unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}
