package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/moves"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// naming makes, renames and removes names.
type naming struct {
	cfg     *Config
	reports *reports
	inodes  *inodes
	moves   *moves.Moves
	writes  *writePath
	keeps   *keeps
	space   *writeback.Space
}

// madeFor is for how long the kernel may believe a name that was just made. What it
// does to the name itself it knows anyway.
const madeFor = 5 * time.Second

// changing returns the directory in which a name is to be changed, or why it cannot
// be.
func (c *naming) changing(id uint64, name string) (*inode, fuse.Status) {
	dir := c.inodes.nodes.get(id)
	switch {
	case c.space == nil:
		return nil, fuse.EROFS
	case dir == nil:
		return nil, fuse.Status(estale)
	case dir.kind != manifest.Directory:
		return nil, fuse.ENOTDIR
	case dir.gone.Load():
		return nil, fuse.ENOENT
	case len(name) > nameMax:
		return nil, fuse.Status(syscall.ENAMETOOLONG)
	}
	return dir, fuse.OK
}

// created is how a caller wants what it makes in dir. The kernel has applied its umask, and leaves
// it to us that what is made in a set-group-ID directory has its group, and a directory the bit.
func (c *naming) created(dir *inode, mode uint32, directory bool, caller fuse.Caller) writeback.CreateOptions {
	o := writeback.CreateOptions{Mode: mode & 0o7777, UID: caller.Uid, GID: caller.Gid}
	if !c.cfg.Attrs {
		return o
	}
	var a fuse.Attr
	if c.inodes.attr(dir, &a); a.Mode&syscall.S_ISGID != 0 {
		o.GID = a.Gid
		if directory {
			o.Mode |= syscall.S_ISGID
		}
	}
	return o
}

// Create answers the request of that name.
func (c *naming) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Create, start, status) }()
	dir, status := c.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	n, h, err := c.make(ctx, dir, name, c.created(dir, in.Mode, false, in.Caller), &out.EntryOut)
	if errors.Is(err, iofs.ErrExist) && in.Flags&syscall.O_EXCL == 0 {
		// The kernel took the name for a new one: it came from elsewhere.
		return c.createThere(ctx, in, dir, name, out)
	}
	if err != nil {
		return c.reports.refuse("create "+name, dir, err)
	}
	st := n.opened()
	st.opening.Lock()
	defer st.opening.Unlock()
	if err = c.writes.hold(ctx, n, st); err == nil {
		err = c.writes.answerOpen(n, st, h, &out.OpenOut)
	}
	if err != nil {
		h.Release()
		c.writes.letGo(n, st)
		c.inodes.forget(n.id, 1)
		return c.reports.refuse("create "+name, dir, err)
	}
	return fuse.OK
}

// make makes a file, opens it and tells the kernel of it.
func (c *naming) make(ctx context.Context, dir *inode, name string, o writeback.CreateOptions, out *fuse.EntryOut) (*inode, *writeback.Handle, error) {
	if err := c.space.AwaitRoom(ctx); err != nil {
		return nil, nil, err
	}
	c.moves.RLock()
	defer c.moves.RUnlock()
	at := c.inodes.times.now() // what is in a directory should not look older than it
	h, err := c.space.Create(ctx, dir.dirPath(), name, o)
	if err != nil {
		return nil, nil, err
	}
	return c.entered(dir, name, manifest.File, h.File(), at, out), h, nil
}

// entered tells the kernel of a name that was made in dir at a time. moves is held.
func (c *naming) entered(dir *inode, name string, kind manifest.Kind, file *writeback.File, at int64, out *fuse.EntryOut) *inode {
	return c.enteredAs(dir, &names.Entry{Entry: manifest.Entry{Name: name, Kind: kind}, File: file}, at, out)
}

// enteredAs is entered for an entry that has more.
func (c *naming) enteredAs(dir *inode, e *names.Entry, at int64, out *fuse.EntryOut) *inode {
	n := c.inodes.node(dir, e)
	if e.Kind == manifest.Directory {
		n.told.Store(&writeback.Times{Mtime: at, Ctime: at})
	}
	dir.tree.Touch()
	c.inodes.times.entries(dir, at)
	c.inodes.answer(n, manifest.Validity(time.Now().Add(madeFor)), out)
	return n
}

// createThere is Create of a name that exists.
func (c *naming) createThere(ctx context.Context, in *fuse.CreateIn, dir *inode, name string, out *fuse.CreateOut) fuse.Status {
	e, valid, err := c.inodes.lookup(ctx, dir, name)
	switch {
	case err != nil:
		return c.reports.refuse("create "+name, dir, err)
	case e.Kind == manifest.Directory:
		return fuse.EISDIR
	case e.Kind != manifest.File:
		return fuse.Status(estale) // the kernel begins anew, and follows or opens it
	}
	n := c.inodes.node(dir, &e)
	open := fuse.OpenIn{InHeader: in.InHeader, Flags: in.Flags, Mode: in.OpenFlags}
	if status := c.writes.openWritten(ctx, &open, n, &out.OpenOut); !status.Ok() {
		c.inodes.forget(n.id, 1)
		return status
	}
	c.inodes.answer(n, valid, &out.EntryOut)
	return fuse.OK
}

// Mknod answers the request of that name. Fifos and sockets are names of this mount alone;
// devices have no place in it.
func (c *naming) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Create, start, status) }()
	dir, status := c.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	kind := manifest.File
	switch in.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
	case syscall.S_IFIFO:
		kind = names.Fifo
	case syscall.S_IFSOCK:
		kind = names.Socket
	default:
		return fuse.EPERM
	}
	if names.IsLocal(kind) {
		if err := c.makeSpecial(ctx, dir, name, kind, c.created(dir, in.Mode, false, in.Caller), out); err != nil {
			return c.reports.refuse("mknod "+name, dir, err)
		}
		return fuse.OK
	}
	n, h, err := c.make(ctx, dir, name, c.created(dir, in.Mode, false, in.Caller), out)
	if err != nil {
		return c.reports.refuse("mknod "+name, dir, err)
	}
	defer h.Release()
	if err := h.Flush(ctx); err != nil {
		c.inodes.forget(n.id, 1)
		return c.reports.refuse("mknod "+name, dir, err)
	}
	return fuse.OK
}

// Tmpfile answers the request of that name. A file without a name could only be
// linked to one, and there are no links.
func (c *naming) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status {
	if c.space == nil {
		return fuse.EROFS
	}
	return fuse.Status(syscall.EOPNOTSUPP)
}

// Link answers the request of that name: an object has one key.
func (c *naming) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	if c.space == nil {
		return fuse.EROFS
	}
	return fuse.EPERM
}

// Mkdir answers the request of that name.
func (c *naming) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Mkdir, start, status) }()
	dir, status := c.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	if err := c.space.Admit(ctx); err != nil {
		return c.reports.refuse("mkdir "+name, dir, err)
	}
	c.moves.RLock()
	defer c.moves.RUnlock()
	var given writeback.SetAttr
	at := c.inodes.times.now()
	if c.cfg.Attrs {
		o, made := c.created(dir, in.Mode, true, in.Caller), time.Unix(0, at)
		given = writeback.SetAttr{Mode: &o.Mode, UID: &o.UID, GID: &o.GID, Mtime: &made}
	}
	if err := c.space.Mkdir(ctx, dir.dirPath(), name, given); err != nil {
		return c.reports.refuse("mkdir "+name, dir, err)
	}
	n := c.entered(dir, name, manifest.Directory, nil, at, out)
	if c.cfg.Attrs {
		n.given.Store(&given)
		c.inodes.attr(n, &out.Attr)
	}
	return fuse.OK
}

// Symlink answers the request of that name.
func (c *naming) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Symlink, start, status) }()
	dir, status := c.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	file, err := c.makeLink(ctx, dir, name, target, c.created(dir, 0o777, false, in.Caller), out)
	if err == nil {
		if err = file.AwaitThrough(ctx); err != nil {
			c.inodes.forget(out.NodeId, 1)
		}
	}
	if err != nil {
		return c.reports.refuse("symlink "+name, dir, err)
	}
	return fuse.OK
}

// makeLink makes a symbolic link and tells the kernel of it.
func (c *naming) makeLink(ctx context.Context, dir *inode, name, target string, o writeback.CreateOptions, out *fuse.EntryOut) (*writeback.File, error) {
	if err := c.space.AwaitRoom(ctx); err != nil {
		return nil, err
	}
	c.moves.RLock()
	defer c.moves.RUnlock()
	at := c.inodes.times.now()
	file, err := c.space.Symlink(ctx, dir.dirPath(), name, target, o)
	if err != nil {
		return nil, err
	}
	c.entered(dir, name, manifest.Symlink, file, at, out).target.Store(&target)
	return file, nil
}

// makeSpecial is MKNOD of a fifo or a socket.
func (c *naming) makeSpecial(ctx context.Context, dir *inode, name string, kind manifest.Kind, o writeback.CreateOptions, out *fuse.EntryOut) error {
	switch _, _, err := c.inodes.lookup(ctx, dir, name); {
	case err == nil:
		return syscall.EEXIST
	case !errors.Is(err, iofs.ErrNotExist):
		return err
	}
	c.moves.RLock()
	defer c.moves.RUnlock()
	s, err := c.inodes.specials.Make(dir.dirPath(), name, kind, o)
	if err != nil {
		return err
	}
	e := s.Entry(name)
	c.enteredAs(dir, &e, 0, out)
	return nil
}
