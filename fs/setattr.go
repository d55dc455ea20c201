package fs

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// attrs tells and changes what inodes have beside names and bytes.
type attrs struct {
	cfg     *Config
	reports *reports
	inodes  *inodes
	writes  *writePath
	space   *writeback.Space
	cache   *cache.Cache
}

// SetAttr answers the request of that name. What asks for what is there already
// succeeds. Times of access are not kept anywhere: they are always shown as the
// time of modification, as with the mount option noatime.
func (a *attrs) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) (status fuse.Status) {
	start := time.Now()
	defer func() { a.reports.metrics.Done(measures.Setattr, start, status) }()
	if a.space == nil {
		return fuse.EROFS
	}
	n := a.inodes.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(estale)
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	var err error
	if n.special != nil {
		err = n.special.Set(in, a.inodes.specials.Now())
	} else if err = a.setSize(ctx, n, in); err == nil {
		err = a.setAttributes(ctx, n, in)
	}
	if err != nil {
		return a.reports.refuse("setattr", n, err)
	}
	if in.Valid&fuse.FATTR_SIZE == 0 || in.Valid&(callers.AskedMode|callers.AskedOwner|callers.AskedTimes) != 0 {
		a.inodes.times.status(n) // also where it is what it was
	}
	a.inodes.attr(n, &out.Attr)
	out.SetTimeout(attrLifetime(n))
	return fuse.OK
}

// setSize truncates or extends n, if that was asked for.
func (a *attrs) setSize(ctx context.Context, n *inode, in *fuse.SetAttrIn) error {
	switch {
	case in.Valid&fuse.FATTR_SIZE == 0:
		return nil
	case n.kind == manifest.Directory:
		return syscall.EISDIR
	case n.kind != manifest.File || int64(in.Size) < 0:
		return syscall.EINVAL
	}
	h, err := a.writes.openToChange(ctx, n)
	if err != nil {
		return err
	}
	defer h.Release()
	size := int64(in.Size)
	if in.Valid&fuse.FATTR_KILL_SUIDGID != 0 {
		if err := a.writes.dropPrivileges(ctx, n, &in.Caller); err != nil {
			return err
		}
	}
	before, err := h.File().Stat()
	if err != nil {
		return err
	}
	if err := a.space.SetAttrFile(ctx, h.File(), writeback.SetAttr{Size: &size}); err != nil {
		return err
	}
	if in.Valid&fuse.FATTR_FH != 0 && before.Size == size {
		return h.File().TouchNow() // ftruncate(2) counts as a write, truncate(2) does not
	}
	return nil
}

// setAttributes changes mode, owner and time of modification, as far as they are
// not what is asked for.
func (a *attrs) setAttributes(ctx context.Context, n *inode, in *fuse.SetAttrIn) error {
	if in.Valid&(callers.AskedMode|callers.AskedOwner|callers.AskedTimes) == 0 && !callers.AsksNothing(in) {
		return nil
	}
	var now fuse.Attr
	a.inodes.attr(n, &now)
	var change writeback.SetAttr
	if mode, ok := in.GetMode(); ok && mode&0o7777 != now.Mode&0o7777 {
		mode &= 0o7777
		change.Mode = &mode
	}
	if uid, ok := in.GetUID(); ok && uid != now.Uid {
		change.UID = &uid
	}
	if gid, ok := in.GetGID(); ok && gid != now.Gid {
		change.GID = &gid
	}
	if mtime, ok := a.askedMtime(in); ok && !mtime.Equal(time.Unix(int64(now.Mtime), int64(now.Mtimensec))) {
		change.Mtime = &mtime
	}
	if a.cfg.Attrs {
		if err := losesPrivileges(n, in, &change, &now); err != nil {
			return err
		}
	}
	switch {
	case change == writeback.SetAttr{}:
		return nil
	case n.kind == manifest.Directory:
		return a.setDirectory(ctx, n, change, &now)
	case !a.cfg.Attrs:
		return a.touch(n, change)
	}
	return a.setFile(ctx, n, complete(change, &now))
}

// complete returns a change of mode or owner with what it leaves as it is now: of what has no
// metadata that is the mount's, and would be root's and nobody's if only the change were kept.
func complete(change writeback.SetAttr, now *fuse.Attr) writeback.SetAttr {
	if change.Mode == nil && change.UID == nil && change.GID == nil {
		return change
	}
	mode, uid, gid := now.Mode&0o7777, now.Uid, now.Gid
	for _, c := range []struct{ to, from *uint32 }{{&mode, change.Mode}, {&uid, change.UID}, {&gid, change.GID}} {
		if c.from != nil {
			*c.to = *c.from
		}
	}
	change.Mode, change.UID, change.GID = &mode, &uid, &gid
	return change
}

// askedMtime returns the time of modification that was asked for. The kernel sends
// the time where it was not given.
func (a *attrs) askedMtime(in *fuse.SetAttrIn) (time.Time, bool) {
	switch {
	case in.Valid&fuse.FATTR_MTIME == 0:
		return time.Time{}, false
	case in.Valid&fuse.FATTR_MTIME_NOW != 0:
		return time.Unix(0, a.inodes.times.now()), true
	}
	return time.Unix(int64(in.Mtime), int64(in.Mtimensec)), true
}

// setFile changes the attributes of a file or symlink, which becomes a file of the
// space if it was none.
func (a *attrs) setFile(ctx context.Context, n *inode, change writeback.SetAttr) error {
	for {
		if file := n.file.Load(); file != nil {
			if err := a.space.SetAttrFile(ctx, file, change); !errors.Is(err, estale) {
				return err
			}
		}
		version, staged := n.version()
		if staged || n.gone.Load() {
			return estale
		}
		a.inodes.remind(n)
		at := n.at()
		file, err := a.space.SetAttr(ctx, at.dir, at.name, change)
		if err != nil {
			if n.at() != at {
				continue // its directory was renamed
			}
			return err
		}
		if origin, ok := file.Origin(); !ok || origin != version {
			return estale
		}
		a.inodes.bind(n, file)
		return nil
	}
}

// touch is a change of attributes on a mount that keeps none. The time of a file is
// that of its object; until a file that was written here has one, a program may set
// it, as those do that copy. A mode or an owner that nothing would keep is refused.
func (a *attrs) touch(n *inode, change writeback.SetAttr) error {
	file := n.file.Load()
	if change.Mode != nil || change.UID != nil || change.GID != nil || file == nil {
		return syscall.EPERM
	}
	return a.space.Touch(file, *change.Mtime)
}

// setDirectory changes the attributes of a directory, which has now. Its marker object keeps
// them, but for the root, which has none. Without Config.Attrs a directory has its time for as long as the kernel
// knows it.
func (a *attrs) setDirectory(ctx context.Context, n *inode, change writeback.SetAttr, now *fuse.Attr) error {
	switch {
	case a.cfg.Attrs && n.id != rootID && !n.gone.Load():
		if err := a.keepDirectory(ctx, n, change, now); err != nil {
			return err
		}
	case !a.cfg.Attrs && (change.Mode != nil || change.UID != nil || change.GID != nil):
		return syscall.EPERM
	}
	if change.Mtime != nil {
		a.inodes.times.given(n, *change.Mtime)
	}
	for {
		old := n.given.Load()
		var given writeback.SetAttr
		if old != nil {
			given = *old
		}
		if change.Mode != nil {
			given.Mode = change.Mode
		}
		if change.UID != nil {
			given.UID = change.UID
		}
		if change.GID != nil {
			given.GID = change.GID
		}
		if change.Mtime != nil {
			given.Mtime = change.Mtime
		}
		if n.given.CompareAndSwap(old, &given) {
			return nil
		}
	}
}

// keepDirectory lets the marker of a directory keep a change of its attributes.
func (a *attrs) keepDirectory(ctx context.Context, n *inode, change writeback.SetAttr, now *fuse.Attr) error {
	a.inodes.moves.RLock()
	defer a.inodes.moves.RUnlock()
	at := n.at()
	return a.space.SetDirAttr(ctx, at.dir, at.name, complete(change, now))
}

// giveAttributes lays over a what programs gave to a directory.
func (n *inode) giveAttributes(a *fuse.Attr) {
	given := n.given.Load()
	if given == nil {
		return
	}
	if given.Mode != nil {
		a.Mode = fuse.S_IFDIR | *given.Mode
	}
	if given.UID != nil {
		a.Uid = *given.UID
	}
	if given.GID != nil {
		a.Gid = *given.GID
	}
	if given.Mtime != nil {
		a.SetTimes(given.Mtime, given.Mtime, given.Mtime)
	}
}
