package fs

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// What pailfs itself tells of a file. A directory has xattrKey alone. They answer to
// their names, but are not listed: who copies a file would give them to the copy.
const (
	xattrPrefix = "user.pailfs."
	xattrETag   = xattrPrefix + "etag"
	xattrKey    = xattrPrefix + "key"
	xattrTier   = xattrPrefix + "tier"
)

// GetXAttr answers the request of that name. Namespaces other than user. are not
// supported at all, which the tools that ask for them remember.
func (a *attrs) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (size uint32, status fuse.Status) {
	start := time.Now()
	defer func() { a.reports.metrics.Done(measures.Getxattr, start, status) }()
	n := a.inodes.nodes.get(in.NodeId)
	if n == nil {
		return 0, fuse.Status(estale)
	}
	if !strings.HasPrefix(name, "user.") {
		return 0, fuse.Status(syscall.EOPNOTSUPP)
	}
	value, ok := a.xattr(n, name)
	if !ok && !strings.HasPrefix(name, xattrPrefix) {
		var kept []byte
		kept, ok = writeback.XAttrValue(a.keptXAttrs(n), name)
		value = string(kept)
	}
	if !ok {
		return 0, fuse.ENODATA
	}
	return xattrReply(value, dest)
}

// ListXAttr answers the request of that name.
func (a *attrs) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (size uint32, status fuse.Status) {
	start := time.Now()
	defer func() { a.reports.metrics.Done(measures.Listxattr, start, status) }()
	n := a.inodes.nodes.get(in.NodeId)
	if n == nil {
		return 0, fuse.Status(estale)
	}
	var list strings.Builder
	for _, name := range writeback.XAttrNames(a.keptXAttrs(n)) {
		if !strings.HasPrefix(name, xattrPrefix) {
			list.WriteString(name)
			list.WriteByte(0)
		}
	}
	return xattrReply(list.String(), dest)
}

// xattr returns the value of an attribute of n that pailfs itself tells.
func (a *attrs) xattr(n *inode, name string) (string, bool) {
	switch {
	case n.special != nil:
		return "", false
	case name == xattrKey && n.id != rootID:
		if n.kind == manifest.Directory {
			return n.object.Key, n.object.Key != ""
		}
		o, staged := n.version()
		return o.Key, !staged
	case n.kind == manifest.Directory:
		return "", false
	}
	o, staged := n.version()
	switch {
	case staged:
		return "staged", name == xattrTier
	case name == xattrETag:
		return o.ETag, true
	case name == xattrTier && n.kind == manifest.File:
		r := a.cache.Residency(o)
		return fmt.Sprintf("memory=%d ssd=%d oss=%d whole=%t", r.Memory, r.SSD, o.Size, r.Whole), true
	}
	return "", false
}

// xattrReply answers with value, or with its size if dest is too small for it.
func xattrReply(value string, dest []byte) (uint32, fuse.Status) {
	if len(value) > len(dest) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

// keptXAttrs returns the extended attributes that programs gave to n, as the metadata of
// its object has them. That was asked with the name, if ever: this asks nothing.
func (a *attrs) keptXAttrs(n *inode) string {
	if n.kind != manifest.File {
		return ""
	}
	if file := n.file.Load(); file != nil {
		if given, ok := file.XAttrs(); ok {
			return given
		}
	}
	return manifest.XAttrs(n.attr.Load())
}

// SetXAttr answers the request of that name.
func (a *attrs) SetXAttr(cancel <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) (status fuse.Status) {
	start := time.Now()
	defer func() { a.reports.metrics.Done(measures.Setxattr, start, status) }()
	return a.changeXAttr(cancel, &in.InHeader, "setxattr", &writeback.SetXAttr{
		Name: name, Value: bytes.Clone(value), Create: in.Flags&unix.XATTR_CREATE != 0, Replace: in.Flags&unix.XATTR_REPLACE != 0,
	})
}

// RemoveXAttr answers the request of that name.
func (a *attrs) RemoveXAttr(cancel <-chan struct{}, in *fuse.InHeader, name string) (status fuse.Status) {
	start := time.Now()
	defer func() { a.reports.metrics.Done(measures.Removexattr, start, status) }()
	return a.changeXAttr(cancel, in, "removexattr", &writeback.SetXAttr{Name: name, Remove: true})
}

// changeXAttr changes an extended attribute of a file; a symbolic link has none in user.,
// as on Linux.
func (a *attrs) changeXAttr(cancel <-chan struct{}, in *fuse.InHeader, doing string, change *writeback.SetXAttr) fuse.Status {
	n := a.inodes.nodes.get(in.NodeId)
	switch {
	case a.space == nil:
		return fuse.EROFS
	case n == nil:
		return fuse.Status(estale)
	case !a.cfg.Attrs, !strings.HasPrefix(change.Name, "user."), n.kind == manifest.Directory:
		return fuse.Status(syscall.EOPNOTSUPP)
	case strings.HasPrefix(change.Name, xattrPrefix), n.kind != manifest.File:
		return fuse.EPERM
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	before := a.keptXAttrs(n)
	if err := a.setFile(ctx, n, writeback.SetAttr{XAttr: change}); err != nil {
		return a.reports.refuse(doing, n, err)
	}
	if a.keptXAttrs(n) != before {
		a.inodes.times.status(n)
	}
	return fuse.OK
}
