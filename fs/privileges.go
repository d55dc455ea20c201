package fs

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
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

// privileged are the bits that lend rights.
const privileged = unix.S_ISUID | unix.S_ISGID

// lent returns what is left of the mode of a file of group gid when it loses the
// rights that it lends. Set-group-ID on a file that its group may not run lends none: by
// tradition it asks for mandatory locks, and stays for members of the group.
func lent(mode, gid uint32, member func(gid uint32) bool) uint32 {
	left := mode &^ unix.S_ISUID
	if mode&unix.S_ISGID != 0 && (mode&unix.S_IXGRP != 0 || !member(gid)) {
		left &^= unix.S_ISGID
	}
	return left
}

// lentTo is lent where the file goes to the group newGID. A mode that changes may keep
// set-group-ID for members of the new group alone.
func lentTo(mode, gid, newGID uint32, member func(gid uint32) bool) uint32 {
	left := lent(mode, gid, member)
	if left != mode && left&unix.S_ISGID != 0 && newGID != gid && !member(newGID) {
		left &^= unix.S_ISGID
	}
	return left
}

// rights are what a caller has beside its user. The request names one group; the others
// and the capabilities are read from /proc, when they are asked for, which a caller in
// another PID namespace does not have.
type rights struct {
	caller *fuse.Caller
	status []byte
	read   bool
}

// field returns a line of the caller's /proc/PID/status; ok is false if there is none.
func (r *rights) field(name string) (value string, ok bool) {
	if !r.read && r.caller.Pid != 0 {
		r.status, _ = os.ReadFile("/proc/" + strconv.FormatUint(uint64(r.caller.Pid), 10) + "/status") // it may have ended
	}
	r.read = true
	return statusField(r.status, name), r.status != nil
}

// capable reports whether the caller has a capability.
func (r *rights) capable(number int) bool {
	value, ok := r.field("CapEff:")
	if !ok {
		return r.caller.Uid == 0
	}
	effective, err := strconv.ParseUint(value, 16, 64)
	return err == nil && effective&(1<<number) != 0
}

// member reports whether the caller is in a group, or may give its files
// set-group-ID without that.
func (r *rights) member(gid uint32) bool {
	if r.caller.Gid == gid || r.capable(unix.CAP_FSETID) {
		return true
	}
	groups, _ := r.field("Groups:")
	return slices.Contains(strings.Fields(groups), strconv.FormatUint(uint64(gid), 10))
}

// owner reports whether the caller may do what the owner uid may.
func (r *rights) owner(uid uint32) bool {
	return r.caller.Uid == uid || r.capable(unix.CAP_FOWNER)
}

// settles is how often a thread is looked at that has not begun to wait for our answer.
const settles = 1000

// inChown reports whether the caller is in chown(2) or its kin at this moment. To see that
// of others takes CAP_SYS_PTRACE, and a PID that is one here: seen is false without.
func (r *rights) inChown() (in, seen bool) {
	if r.caller.Pid == 0 {
		return false, false
	}
	path := "/proc/" + strconv.FormatUint(uint64(r.caller.Pid), 10) + "/syscall"
	for range settles {
		text, err := os.ReadFile(path)
		if err != nil {
			return false, false
		}
		number, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if number != "running" {
			n, err := strconv.Atoi(number)
			return err == nil && slices.Contains(chownCalls[:], n), true
		}
		time.Sleep(100 * time.Microsecond)
	}
	return false, false
}

// writing reports whether a SETATTR that asks for nothing comes before a write. The kernel
// sends the same at chown(-1, -1). Where the call of the caller cannot be seen, a file that
// nobody has open for writing is not being written.
func (r *rights) writing(n *inode) bool {
	if in, seen := r.inChown(); seen {
		return !in
	}
	file := n.file.Load()
	return file != nil && file.HasWriters()
}

// asksNothing reports whether a SETATTR is the kernel's way to say that a file loses
// the rights that it lends.
func asksNothing(in *fuse.SetAttrIn) bool {
	return in.Valid&(askedMode|askedOwner|askedTimes|fuse.FATTR_SIZE) == 0
}

// losesPrivileges adds to a change that was asked for what the file loses by it. now is
// what it has before. Whoever may write takes the bits away by that, but by
// chown(-1, -1) none but the owner.
func losesPrivileges(n *inode, in *fuse.SetAttrIn, change *writeback.SetAttr, now *fuse.Attr) error {
	mode := now.Mode & permissions
	if n.kind != manifest.File || mode&privileged == 0 || in.Valid&fuse.FATTR_KILL_SUIDGID == 0 && !asksNothing(in) {
		return nil
	}
	gid := now.Gid
	if change.GID != nil {
		gid = *change.GID
	}
	caller := rights{caller: &in.Caller}
	left := lentTo(mode, now.Gid, gid, caller.member)
	if left == mode {
		return nil
	}
	if asksNothing(in) && !caller.owner(now.Uid) && !caller.writing(n) {
		return syscall.EPERM
	}
	change.Mode = &left
	return nil
}

// dropPrivileges takes from n the rights that it lends: caller changes its content.
func (f *filesystem) dropPrivileges(ctx context.Context, n *inode, caller *fuse.Caller) error {
	file := n.file.Load()
	if file == nil || !f.cfg.Attrs {
		return nil
	}
	mode, gid := file.Permissions()
	if mode&privileged == 0 {
		return nil
	}
	left := lent(mode, gid, (&rights{caller: caller}).member)
	if left == mode {
		return nil
	}
	return f.space.SetAttrFile(ctx, file, writeback.SetAttr{Mode: &left})
}
