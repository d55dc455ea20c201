//go:build !amd64

package callers

import "golang.org/x/sys/unix"

// chownCalls are the system calls that change an owner.
var chownCalls = [...]int{unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}

// oldCalls are system calls that newer machines do not have.
var oldCalls = map[int]attempted{}
