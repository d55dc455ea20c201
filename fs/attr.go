package fs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// forever is the lifetime of an answer that stays true: as long as the kernel's
// clock arithmetic allows without doubt.
const forever = 10 * 365 * 24 * time.Hour

// dirBlock is the block size of directories in bytes, a power of two. The C library
// reads a directory by as much at a time, and asks for one request each.
const dirBlock = 256 << 10

// lifetime returns for how long the kernel may believe an answer.
func lifetime(v manifest.Validity) time.Duration {
	t := time.Time(v)
	if t.IsZero() {
		return forever
	}
	return min(max(time.Until(t), 0), forever)
}

// writtenFor is for how long the kernel may believe the attributes of a file that
// was changed here.
const writtenFor = time.Second

// attrLifetime returns for how long the attributes of n stay true.
func attrLifetime(n *inode) time.Duration {
	file := n.file.Load()
	switch {
	case file != nil && file.Loose():
		return 0
	case file != nil, n.gone.Load():
		return writtenFor
	}
	return forever
}

// attr fills the attributes of n. Those of a file change only here, and when a
// manifest tells more of the same version than one before; a new version from
// elsewhere is a new inode.
func (t *inodes) attr(n *inode, a *fuse.Attr) {
	*a = fuse.Attr{Ino: n.id, Nlink: 1, Blksize: 4096, Owner: fuse.Owner{Uid: t.cfg.UID, Gid: t.cfg.GID}}
	if file := n.file.Load(); file != nil {
		t.fileAttr(n, file, a)
		return
	}
	if n.gone.Load() {
		a.Nlink = 0
	}
	if n.special != nil {
		n.special.Attr(a)
		return
	}
	mtime := n.object.ModTime
	switch n.kind {
	case manifest.Directory:
		n.tree.Show()
		// One link says that the number of subdirectories is not known; two would
		// tell tree walkers that there are none.
		a.Mode = fuse.S_IFDIR | t.cfg.DirMode
		a.Blksize = dirBlock
		if mtime.IsZero() {
			mtime = t.mounted
		}
	case manifest.Symlink:
		a.Mode = fuse.S_IFLNK | 0o777
		a.Size = uint64(n.object.Size)
	default:
		a.Mode = fuse.S_IFREG | t.cfg.FileMode
		a.Size = uint64(n.object.Size)
		a.Blocks = (a.Size + 511) / 512
	}
	if known := n.attr.Load(); known != nil {
		if known.Known&manifest.AttrMode != 0 && n.kind != manifest.Symlink {
			a.Mode = a.Mode&^names.Permissions | known.Mode&names.Permissions
		}
		if known.Known&manifest.AttrUID != 0 {
			a.Uid = known.UID
		}
		if known.Known&manifest.AttrGID != 0 {
			a.Gid = known.GID
		}
		if known.Known&manifest.AttrMTime != 0 {
			mtime = known.MTime
		}
	}
	a.SetTimes(&mtime, &mtime, &mtime)
	n.giveAttributes(a)
	n.layTimes(a)
}

// fileAttr fills the attributes of a file that was changed here.
func (t *inodes) fileAttr(n *inode, file *writeback.File, a *fuse.Attr) {
	now, err := file.Stat()
	if err != nil {
		t.reports.log.Warn("the attributes of a staged file cannot be read", "path", n.path(), "err", err)
	}
	if !now.Linked || n.gone.Load() {
		a.Nlink = 0 // the file says it, unless it was left to the store before its name went
	}
	a.Mode = fuse.S_IFREG | t.cfg.FileMode
	if n.kind == manifest.Symlink {
		a.Mode = fuse.S_IFLNK | 0o777
	}
	if t.cfg.Attrs && now.Set {
		if n.kind != manifest.Symlink {
			a.Mode = fuse.S_IFREG | now.Mode
		}
		a.Owner = fuse.Owner{Uid: now.UID, Gid: now.GID}
	}
	a.Size = uint64(now.Size)
	a.Blocks = uint64(now.Blocks)
	a.SetTimes(&now.Mtime, &now.Mtime, &now.Ctime)
}

// GetAttr answers the request of that name.
func (a *attrs) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) (status fuse.Status) {
	start := time.Now()
	defer func() { a.reports.metrics.Done(measures.Getattr, start, status) }()
	n := a.inodes.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(estale)
	}
	a.inodes.attr(n, &out.Attr)
	out.SetTimeout(attrLifetime(n))
	return fuse.OK
}
