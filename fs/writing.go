package fs

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// writing reports whether a SETATTR that asks for nothing comes before a write. The kernel
// sends the same at chown(-1, -1). Where the call of the caller cannot be seen, a file that
// nobody has open for writing is not being written.
func writing(caller *callers.Rights, n *inode) bool {
	if in, seen := caller.InChown(); seen {
		return !in
	}
	file := n.file.Load()
	return file != nil && file.HasWriters()
}

// losesPrivileges adds to a change that was asked for what the file loses by it. now is
// what it has before. Whoever may write takes the bits away by that, but by
// chown(-1, -1) none but the owner.
func losesPrivileges(n *inode, in *fuse.SetAttrIn, change *writeback.SetAttr, now *fuse.Attr) error {
	mode := now.Mode & names.Permissions
	if n.kind != manifest.File || mode&callers.SetIDs == 0 || in.Valid&fuse.FATTR_KILL_SUIDGID == 0 && !callers.AsksNothing(in) {
		return nil
	}
	gid := now.Gid
	if change.GID != nil {
		gid = *change.GID
	}
	caller := callers.Rights{Caller: &in.Caller}
	left := callers.LentTo(mode, now.Gid, gid, caller.Member)
	if left == mode {
		return nil
	}
	if callers.AsksNothing(in) && !caller.Owner(now.Uid) && !writing(&caller, n) {
		return syscall.EPERM
	}
	change.Mode = &left
	return nil
}

// dropPrivileges takes from n the rights that it lends: caller changes its content.
func (w *writePath) dropPrivileges(ctx context.Context, n *inode, caller *fuse.Caller) error {
	file := n.file.Load()
	if file == nil || !w.cfg.Attrs {
		return nil
	}
	mode, gid := file.Permissions()
	if mode&callers.SetIDs == 0 {
		return nil
	}
	left := callers.Lent(mode, gid, (&callers.Rights{Caller: caller}).Member)
	if left == mode {
		return nil
	}
	return w.space.SetAttrFile(ctx, file, writeback.SetAttr{Mode: &left})
}
