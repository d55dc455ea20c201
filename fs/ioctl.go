package fs

import (
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/manifest"
)

// Ioctl answers the request of that name. What is asked of a directory goes to
// [Control]; nothing is ever forwarded to a file of the cache, where it could do
// to the disk what was meant for a file.
func (ds *directories) Ioctl(cancel <-chan struct{}, in *fuse.IoctlIn, input []byte, out *fuse.IoctlOut, output []byte) (status fuse.Status) {
	start := time.Now()
	defer func() { ds.reports.metrics.Done(measures.Ioctl, start, status) }()
	n := ds.inodes.nodes.get(in.NodeId)
	if n == nil || n.kind != manifest.Directory || ds.control == nil {
		return fuse.Status(syscall.ENOTTY)
	}
	// Whoever talks to a daemon expects to be interrupted, at any signal.
	ctx := &fuse.Context{Caller: in.Caller, Cancel: cancel}
	caller := Caller{UID: in.Uid, GID: in.Gid, TID: in.Pid, Dir: strings.TrimPrefix(n.path(), "/"), DirID: n.met}
	if h := ds.dirs.Get(in.Fh); h != nil {
		h.controlled.Store(true)
		caller.Handle = in.Fh
	}
	result, errno := ds.control.ServeControl(ctx, caller, in.Cmd, input, output)
	out.Result = result
	return fuse.Status(errno)
}
