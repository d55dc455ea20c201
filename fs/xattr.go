package fs

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/manifest"
)

// The extended attributes of a file. A directory has xattrKey alone.
const (
	xattrPrefix = "user.pailfs."
	xattrETag   = xattrPrefix + "etag"
	xattrKey    = xattrPrefix + "key"
	xattrTier   = xattrPrefix + "tier"
)

// GetXAttr implements [fuse.RawFileSystem]. Namespaces other than user. are not
// supported at all, which the tools that ask for them remember.
func (f *filesystem) GetXAttr(_ <-chan struct{}, in *fuse.InHeader, name string, dest []byte) (size uint32, status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opGetxattr, start, status) }()
	n := f.nodes.get(in.NodeId)
	if n == nil {
		return 0, fuse.Status(estale)
	}
	if !strings.HasPrefix(name, "user.") {
		return 0, fuse.Status(syscall.EOPNOTSUPP)
	}
	value, ok := f.xattr(n, name)
	if !ok {
		return 0, fuse.ENODATA
	}
	return xattrReply(value, dest)
}

// ListXAttr implements [fuse.RawFileSystem].
func (f *filesystem) ListXAttr(_ <-chan struct{}, in *fuse.InHeader, dest []byte) (size uint32, status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opListxattr, start, status) }()
	n := f.nodes.get(in.NodeId)
	if n == nil {
		return 0, fuse.Status(estale)
	}
	var list strings.Builder
	for _, name := range []string{xattrETag, xattrKey, xattrTier} {
		if _, ok := f.xattr(n, name); ok {
			list.WriteString(name)
			list.WriteByte(0)
		}
	}
	return xattrReply(list.String(), dest)
}

// xattr returns the value of an attribute of n.
func (f *filesystem) xattr(n *inode, name string) (string, bool) {
	switch {
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
		r := f.cache.Residency(o)
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
