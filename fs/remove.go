package fs

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
)

// known returns the inode of an entry of dir if the kernel knows it. It gives out
// no reference.
func (f *filesystem) known(dir *inode, e *entry) *inode {
	want := newInode(dir, e)
	if n := f.changed.get(want.at().path()); n != nil && n.same(want) {
		return n
	}
	return f.nodes.find(want)
}

// Unlink implements [fuse.RawFileSystem].
func (f *filesystem) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opUnlink, start, status) }()
	return f.remove(cancel, in, name, "unlink", f.unlink)
}

// Rmdir implements [fuse.RawFileSystem].
func (f *filesystem) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opRmdir, start, status) }()
	return f.remove(cancel, in, name, "rmdir", f.rmdir)
}

// remove takes a name away.
func (f *filesystem) remove(cancel <-chan struct{}, in *fuse.InHeader, name, doing string, do func(ctx context.Context, dir, name string) error) fuse.Status {
	dir, status := f.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	e, _, err := f.lookup(ctx, dir, name)
	if err != nil {
		return f.refuse(doing+" "+name, dir, err)
	}
	n := f.known(dir, &e)
	f.keep(ctx, n)
	defer f.partsFrom(ctx, n)()
	f.moves.RLock()
	defer f.moves.RUnlock()
	if err := do(ctx, dir.dirPath(), name); err != nil {
		return f.refuse(doing+" "+name, dir, err)
	}
	dir.tree.touch()
	f.times.entries(dir, 0)
	f.left(n)
	return fuse.OK
}

// left notes that the name of n is gone.
func (f *filesystem) left(n *inode) {
	if n == nil {
		return
	}
	n.gone.Store(true)
	f.times.status(n)
	f.changed.drop(n.at().path(), n)
}
