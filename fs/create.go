package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// madeFor is for how long the kernel may believe a name that was just made. What it
// does to the name itself it knows anyway.
const madeFor = 5 * time.Second

// changing returns the directory in which a name is to be changed, or why it cannot
// be.
func (f *filesystem) changing(id uint64, name string) (*inode, fuse.Status) {
	dir := f.nodes.get(id)
	switch {
	case f.space == nil:
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
func (f *filesystem) created(dir *inode, mode uint32, directory bool, caller fuse.Caller) writeback.CreateOptions {
	o := writeback.CreateOptions{Mode: mode & 0o7777, UID: caller.Uid, GID: caller.Gid}
	if !f.cfg.Attrs {
		return o
	}
	var a fuse.Attr
	if f.attr(dir, &a); a.Mode&syscall.S_ISGID != 0 {
		o.GID = a.Gid
		if directory {
			o.Mode |= syscall.S_ISGID
		}
	}
	return o
}

// Create implements [fuse.RawFileSystem].
func (f *filesystem) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opCreate, start, status) }()
	dir, status := f.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	n, h, err := f.make(ctx, dir, name, f.created(dir, in.Mode, false, in.Caller), &out.EntryOut)
	if errors.Is(err, iofs.ErrExist) && in.Flags&syscall.O_EXCL == 0 {
		// The kernel took the name for a new one: it came from elsewhere.
		return f.createThere(ctx, in, dir, name, out)
	}
	if err != nil {
		return f.refuse("create "+name, dir, err)
	}
	st := n.opened()
	st.opening.Lock()
	defer st.opening.Unlock()
	if err = f.hold(ctx, n, st); err == nil {
		err = f.answerOpen(n, st, h, &out.OpenOut)
	}
	if err != nil {
		h.Release()
		f.letGo(n, st)
		f.Forget(n.id, 1)
		return f.refuse("create "+name, dir, err)
	}
	return fuse.OK
}

// make makes a file, opens it and tells the kernel of it.
func (f *filesystem) make(ctx context.Context, dir *inode, name string, o writeback.CreateOptions, out *fuse.EntryOut) (*inode, *writeback.Handle, error) {
	if err := f.space.AwaitRoom(ctx); err != nil {
		return nil, nil, err
	}
	f.moves.RLock()
	defer f.moves.RUnlock()
	at := f.times.now() // what is in a directory should not look older than it
	h, err := f.space.Create(ctx, dir.dirPath(), name, o)
	if err != nil {
		return nil, nil, err
	}
	return f.entered(dir, name, manifest.File, h.File(), at, out), h, nil
}

// entered tells the kernel of a name that was made in dir at a time. f.moves is held.
func (f *filesystem) entered(dir *inode, name string, kind manifest.Kind, file *writeback.File, at int64, out *fuse.EntryOut) *inode {
	return f.enteredAs(dir, &entry{Entry: manifest.Entry{Name: name, Kind: kind}, File: file}, at, out)
}

// enteredAs is entered for an entry that has more.
func (f *filesystem) enteredAs(dir *inode, e *entry, at int64, out *fuse.EntryOut) *inode {
	n := f.node(dir, e)
	if e.Kind == manifest.Directory {
		n.told.Store(&writeback.Times{Mtime: at, Ctime: at})
	}
	dir.tree.touch()
	f.times.entries(dir, at)
	f.answer(n, manifest.Validity(time.Now().Add(madeFor)), out)
	return n
}

// createThere is Create of a name that exists.
func (f *filesystem) createThere(ctx context.Context, in *fuse.CreateIn, dir *inode, name string, out *fuse.CreateOut) fuse.Status {
	e, valid, err := f.lookup(ctx, dir, name)
	switch {
	case err != nil:
		return f.refuse("create "+name, dir, err)
	case e.Kind == manifest.Directory:
		return fuse.EISDIR
	case e.Kind != manifest.File:
		return fuse.Status(estale) // the kernel begins anew, and follows or opens it
	}
	n := f.node(dir, &e)
	open := fuse.OpenIn{InHeader: in.InHeader, Flags: in.Flags, Mode: in.OpenFlags}
	if status := f.openWritten(ctx, &open, n, &out.OpenOut); !status.Ok() {
		f.Forget(n.id, 1)
		return status
	}
	f.answer(n, valid, &out.EntryOut)
	return fuse.OK
}

// Mknod implements [fuse.RawFileSystem]. Fifos and sockets are names of this mount alone;
// devices have no place in it.
func (f *filesystem) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opCreate, start, status) }()
	dir, status := f.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	kind := manifest.File
	switch in.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
	case syscall.S_IFIFO:
		kind = fifoKind
	case syscall.S_IFSOCK:
		kind = socketKind
	default:
		return fuse.EPERM
	}
	if local(kind) {
		if err := f.makeSpecial(ctx, dir, name, kind, f.created(dir, in.Mode, false, in.Caller), out); err != nil {
			return f.refuse("mknod "+name, dir, err)
		}
		return fuse.OK
	}
	n, h, err := f.make(ctx, dir, name, f.created(dir, in.Mode, false, in.Caller), out)
	if err != nil {
		return f.refuse("mknod "+name, dir, err)
	}
	defer h.Release()
	if err := h.Flush(ctx); err != nil {
		f.Forget(n.id, 1)
		return f.refuse("mknod "+name, dir, err)
	}
	return fuse.OK
}

// Tmpfile implements [fuse.RawFileSystem]. A file without a name could only be
// linked to one, and there are no links.
func (f *filesystem) Tmpfile(<-chan struct{}, *fuse.CreateIn, *fuse.CreateOut) fuse.Status {
	if f.space == nil {
		return fuse.EROFS
	}
	return fuse.Status(syscall.EOPNOTSUPP)
}

// Link implements [fuse.RawFileSystem]: an object has one key.
func (f *filesystem) Link(<-chan struct{}, *fuse.LinkIn, string, *fuse.EntryOut) fuse.Status {
	if f.space == nil {
		return fuse.EROFS
	}
	return fuse.EPERM
}

// Mkdir implements [fuse.RawFileSystem].
func (f *filesystem) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opMkdir, start, status) }()
	dir, status := f.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	if err := f.space.Admit(ctx); err != nil {
		return f.refuse("mkdir "+name, dir, err)
	}
	f.moves.RLock()
	defer f.moves.RUnlock()
	var given writeback.SetAttr
	at := f.times.now()
	if f.cfg.Attrs {
		o, made := f.created(dir, in.Mode, true, in.Caller), time.Unix(0, at)
		given = writeback.SetAttr{Mode: &o.Mode, UID: &o.UID, GID: &o.GID, Mtime: &made}
	}
	if err := f.space.Mkdir(ctx, dir.dirPath(), name, given); err != nil {
		return f.refuse("mkdir "+name, dir, err)
	}
	n := f.entered(dir, name, manifest.Directory, nil, at, out)
	if f.cfg.Attrs {
		n.given.Store(&given)
		f.attr(n, &out.Attr)
	}
	return fuse.OK
}

// Symlink implements [fuse.RawFileSystem].
func (f *filesystem) Symlink(cancel <-chan struct{}, in *fuse.InHeader, target, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opSymlink, start, status) }()
	dir, status := f.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	file, err := f.makeLink(ctx, dir, name, target, f.created(dir, 0o777, false, in.Caller), out)
	if err == nil {
		if err = file.AwaitThrough(ctx); err != nil {
			f.Forget(out.NodeId, 1)
		}
	}
	if err != nil {
		return f.refuse("symlink "+name, dir, err)
	}
	return fuse.OK
}

// makeLink makes a symbolic link and tells the kernel of it.
func (f *filesystem) makeLink(ctx context.Context, dir *inode, name, target string, o writeback.CreateOptions, out *fuse.EntryOut) (*writeback.File, error) {
	if err := f.space.AwaitRoom(ctx); err != nil {
		return nil, err
	}
	f.moves.RLock()
	defer f.moves.RUnlock()
	at := f.times.now()
	file, err := f.space.Symlink(ctx, dir.dirPath(), name, target, o)
	if err != nil {
		return nil, err
	}
	f.entered(dir, name, manifest.Symlink, file, at, out).target.Store(&target)
	return file, nil
}
