package fs

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/names"
)

// known returns the inode of an entry of dir if the kernel knows it. It gives out
// no reference.
func (t *inodes) known(dir *inode, e *names.Entry) *inode {
	want := newInode(dir, e)
	if n := t.changed.get(want.at().path()); n != nil && n.same(want) {
		return n
	}
	return t.nodes.find(want)
}

// Unlink answers the request of that name.
func (c *naming) Unlink(cancel <-chan struct{}, in *fuse.InHeader, name string) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Unlink, start, status) }()
	return c.remove(cancel, in, name, "unlink", c.unlink)
}

// Rmdir answers the request of that name.
func (c *naming) Rmdir(cancel <-chan struct{}, in *fuse.InHeader, name string) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Rmdir, start, status) }()
	return c.remove(cancel, in, name, "rmdir", c.rmdir)
}

// remove takes a name away.
func (c *naming) remove(cancel <-chan struct{}, in *fuse.InHeader, name, doing string, do func(ctx context.Context, dir, name string) error) fuse.Status {
	dir, status := c.changing(in.NodeId, name)
	if dir == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	e, _, err := c.inodes.lookup(ctx, dir, name)
	if err != nil {
		return c.reports.refuse(doing+" "+name, dir, err)
	}
	n := c.inodes.known(dir, &e)
	c.keeps.keep(ctx, n)
	defer c.keeps.partsFrom(ctx, n)()
	c.moves.RLock()
	defer c.moves.RUnlock()
	if err := do(ctx, dir.dirPath(), name); err != nil {
		return c.reports.refuse(doing+" "+name, dir, err)
	}
	dir.tree.Touch()
	c.inodes.times.entries(dir, 0)
	c.inodes.left(n)
	return fuse.OK
}

// left notes that the name of n is gone.
func (t *inodes) left(n *inode) {
	if n == nil {
		return
	}
	n.gone.Store(true)
	t.times.status(n)
	t.changed.drop(n.at().path(), n)
}

// unlink removes a name that is no directory.
func (c *naming) unlink(ctx context.Context, dir, name string) error {
	if c.inodes.specials.Drop(dir, name) != nil {
		return nil
	}
	return c.space.Unlink(ctx, dir, name)
}

// rmdir removes a directory, in which nothing must be.
func (c *naming) rmdir(ctx context.Context, dir, name string) error {
	switch {
	case c.inodes.specials.Get(dir, name) != nil:
		return syscall.ENOTDIR
	case c.inodes.specials.Any(names.Join(dir, name)):
		return syscall.ENOTEMPTY
	}
	return c.space.Rmdir(ctx, dir, name)
}
