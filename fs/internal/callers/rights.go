package callers

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// The set-user-ID and set-group-ID bits of a file lend rights of its owner and its
// group to whoever runs it, so what others may have changed loses them. With
// CAP_HANDLE_KILLPRIV_V2 the kernel leaves that to us. It says when:
//
//   - SETATTR, WRITE, OPEN and CREATE carry a flag where the size or the content
//     changes and the caller has no CAP_FSETID, and a change of owner carries it always;
//   - before what carries none (a write in passthrough, fallocate, copy_file_range), and
//     at chown(-1, -1), comes a SETATTR that asks for nothing, if the file has the bits.
//
// What chmod(2) may set, and what a new file may have, the kernel decides.

// SetIDs are the bits that lend rights.
const SetIDs = unix.S_ISUID | unix.S_ISGID

// Lent returns what is left of the mode of a file of group gid when it loses the
// rights that it lends. Set-group-ID on a file that its group may not run lends none: by
// tradition it asks for mandatory locks, and stays for members of the group.
func Lent(mode, gid uint32, member func(gid uint32) bool) uint32 {
	left := mode &^ unix.S_ISUID
	if mode&unix.S_ISGID != 0 && (mode&unix.S_IXGRP != 0 || !member(gid)) {
		left &^= unix.S_ISGID
	}
	return left
}

// LentTo is [Lent] where the file goes to the group newGID. A mode that changes may keep
// set-group-ID for members of the new group alone.
func LentTo(mode, gid, newGID uint32, member func(gid uint32) bool) uint32 {
	left := Lent(mode, gid, member)
	if left != mode && left&unix.S_ISGID != 0 && newGID != gid && !member(newGID) {
		left &^= unix.S_ISGID
	}
	return left
}

// Rights are what a caller has beside its user. The request names one group; the others
// and the capabilities are read from /proc, when they are asked for, which a caller in
// another PID namespace does not have.
type Rights struct {
	Caller *fuse.Caller
	status []byte
	read   bool
}

// field returns a line of the caller's /proc/PID/status; ok is false if there is none.
func (r *Rights) field(name string) (value string, ok bool) {
	if !r.read && r.Caller.Pid != 0 {
		r.status, _ = os.ReadFile("/proc/" + strconv.FormatUint(uint64(r.Caller.Pid), 10) + "/status") // it may have ended
	}
	r.read = true
	return statusField(r.status, name), r.status != nil
}

// capable reports whether the caller has a capability.
func (r *Rights) capable(number int) bool {
	value, ok := r.field("CapEff:")
	if !ok {
		return r.Caller.Uid == 0
	}
	effective, err := strconv.ParseUint(value, 16, 64)
	return err == nil && effective&(1<<number) != 0
}

// Member reports whether the caller is in a group, or may give its files
// set-group-ID without that.
func (r *Rights) Member(gid uint32) bool {
	if r.Caller.Gid == gid || r.capable(unix.CAP_FSETID) {
		return true
	}
	return r.inGroup(gid)
}

// inGroup reports whether gid is among the caller's supplementary groups.
func (r *Rights) inGroup(gid uint32) bool {
	groups, _ := r.field("Groups:")
	return slices.Contains(strings.Fields(groups), strconv.FormatUint(uint64(gid), 10))
}

// Owner reports whether the caller may do what the owner uid may.
func (r *Rights) Owner(uid uint32) bool {
	return r.Caller.Uid == uid || r.capable(unix.CAP_FOWNER)
}

// settles is how often a thread is looked at that has not begun to wait for our answer.
const settles = 1000

// InChown reports whether the caller is in chown(2) or its kin at this moment. To see that
// of others takes CAP_SYS_PTRACE, and a PID that is one here: seen is false without.
func (r *Rights) InChown() (in, seen bool) {
	number, _, seen := r.call()
	return seen && slices.Contains(chownCalls[:], number), seen
}

// call returns the number and the arguments of the system call that the caller is in, as InChown
// sees it; the number is -1 for none.
func (r *Rights) call() (number int, arguments []uint64, seen bool) {
	if r.Caller.Pid == 0 {
		return 0, nil, false
	}
	path := "/proc/" + strconv.FormatUint(uint64(r.Caller.Pid), 10) + "/syscall"
	for range settles {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, nil, false
		}
		words := strings.Fields(string(text))
		if len(words) == 0 {
			return -1, nil, true
		}
		if words[0] == "running" {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		if number, err = strconv.Atoi(words[0]); err != nil {
			return -1, nil, true
		}
		for _, word := range words[1:] {
			argument, err := strconv.ParseUint(word, 0, 64)
			if err != nil {
				break
			}
			arguments = append(arguments, argument)
		}
		return number, arguments, true
	}
	return 0, nil, false
}

// AsksNothing reports whether a SETATTR is the kernel's way to say that a file loses
// the rights that it lends.
func AsksNothing(in *fuse.SetAttrIn) bool {
	return in.Valid&(AskedMode|AskedOwner|AskedTimes|fuse.FATTR_SIZE) == 0
}

// What the kernel may ask to be changed beside the size.
const (
	AskedMode  = fuse.FATTR_MODE
	AskedOwner = fuse.FATTR_UID | fuse.FATTR_GID
	AskedTimes = fuse.FATTR_ATIME | fuse.FATTR_MTIME
)
