package fs

import (
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/manifest"
)

// Readlink answers the request of that name.
func (ds *directories) Readlink(cancel <-chan struct{}, in *fuse.InHeader) (target []byte, status fuse.Status) {
	start := time.Now()
	defer func() { ds.reports.metrics.done(opReadlink, start, status) }()
	n := ds.inodes.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return nil, fuse.Status(estale)
	case n.kind != manifest.Symlink:
		return nil, fuse.EINVAL
	}
	if known := n.target.Load(); known != nil {
		return []byte(*known), fuse.OK
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	s, err := ds.inodes.names.ReadLink(ctx, n.entry())
	if err != nil {
		errno := versionErrno(err)
		if n.file.Load() != nil && (errors.Is(err, syscall.EINVAL) || errors.Is(err, estale)) {
			errno = estale // it was replaced meanwhile: the kernel looks the name up again
		}
		if errno == estale && n.file.Load() == nil {
			ds.inodes.replaced(n)
		}
		return nil, ds.reports.fail("readlink", n, errno, err)
	}
	return []byte(s), fuse.OK
}
