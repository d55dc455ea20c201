package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
)

// Rename answers the request of that name.
func (c *naming) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) (status fuse.Status) {
	start := time.Now()
	defer func() { c.reports.metrics.Done(measures.Rename, start, status) }()
	from, status := c.changing(in.NodeId, oldName)
	if from == nil {
		return status
	}
	to, status := c.changing(in.Newdir, newName)
	if to == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	e, _, err := c.inodes.lookup(ctx, from, oldName)
	if err != nil {
		return c.reports.refuse("rename "+oldName, from, err)
	}
	var victim *inode
	var over *names.Entry
	if there, _, err := c.inodes.lookup(ctx, to, newName); err == nil {
		over, victim = &there, c.inodes.known(to, &there)
		c.keeps.keep(ctx, victim)
		defer c.keeps.partsFrom(ctx, victim)()
	}
	if err := c.space.Admit(ctx); err != nil {
		return c.reports.refuse("rename "+oldName, from, err)
	}
	switch {
	case in.Flags&^unix.RENAME_NOREPLACE != 0:
		err = syscall.EINVAL
	case names.IsLocal(e.Kind):
		err = c.renameSpecial(ctx, from, to, &e, over, newName, in.Flags, victim)
	case over != nil && names.IsLocal(over.Kind) && in.Flags&unix.RENAME_NOREPLACE != 0:
		err = syscall.EEXIST
	case over != nil && names.IsLocal(over.Kind) && e.Kind == manifest.Directory:
		err = syscall.ENOTDIR
	case e.Kind == manifest.Directory:
		err = c.renameDirectory(ctx, from, to, oldName, newName, in.Flags, victim)
	default:
		err = c.renameFile(ctx, from, to, &e, newName, in.Flags, victim)
	}
	if err != nil {
		return c.reports.refuse("rename "+oldName+" to "+newName, from, err)
	}
	from.tree.Touch()
	to.tree.Touch()
	c.inodes.times.entries(from, 0)
	if to != from {
		c.inodes.times.entries(to, 0)
	}
	return fuse.OK
}

// renameDirectory renames a directory, with everything below it.
func (c *naming) renameDirectory(ctx context.Context, from, to *inode, oldName, newName string, flags uint32, victim *inode) error {
	c.moves.Lock()
	defer c.moves.Unlock()
	path, now := names.Join(from.dirPath(), oldName), names.Join(to.dirPath(), newName)
	defer c.moves.Begins(path, now)()
	if path != now && c.inodes.specials.Any(now) {
		return syscall.ENOTEMPTY
	}
	if _, err := c.space.Rename(ctx, from.dirPath(), oldName, to.dirPath(), newName, flags); err != nil {
		return err
	}
	if path == now {
		return nil
	}
	c.inodes.left(victim)
	c.inodes.moved(path, to, newName)
	c.inodes.times.renamed(path, now)
	if n := c.inodes.directory(now); n != nil {
		c.inodes.times.status(n)
	}
	return nil
}

// renameFile renames what is no directory: it is a file of the space from then on.
func (c *naming) renameFile(ctx context.Context, from, to *inode, e *names.Entry, newName string, flags uint32, victim *inode) error {
	c.moves.RLock()
	defer c.moves.RUnlock()
	n := c.inodes.known(from, e)
	if n != nil {
		c.inodes.remind(n)
	}
	file, err := c.space.Rename(ctx, from.dirPath(), e.Name, to.dirPath(), newName, flags)
	if err != nil {
		return err
	}
	if n == victim && n != nil {
		return nil // onto itself
	}
	c.inodes.left(victim)
	c.inodes.specials.Drop(to.dirPath(), newName)
	if file == nil {
		return nil
	}
	if n != nil {
		c.inodes.changed.drop(n.at().path(), n)
		n.where.Store(&place{parent: to.id, dir: to.dirPath(), name: newName})
		c.inodes.bind(n, file)
	}
	file.MarkChanged(c.inodes.times.now())
	return nil
}

// renameSpecial renames a fifo or a socket. What it replaces is removed: a crash between
// leaves nothing under the name, as it leaves no special.
func (c *naming) renameSpecial(ctx context.Context, from, to *inode, e, there *names.Entry, newName string, flags uint32, victim *inode) error {
	c.moves.RLock()
	defer c.moves.RUnlock()
	switch {
	case there == nil:
	case flags&unix.RENAME_NOREPLACE != 0:
		return syscall.EEXIST
	case from == to && e.Name == newName:
		return nil
	case there.Kind == manifest.Directory:
		return syscall.EISDIR
	case !names.IsLocal(there.Kind):
		if err := c.space.Unlink(ctx, to.dirPath(), newName); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
	n := c.inodes.known(from, e)
	c.inodes.left(victim)
	c.inodes.specials.Rename(from.dirPath(), e.Name, to.dirPath(), newName)
	if n != nil {
		n.where.Store(&place{parent: to.id, dir: to.dirPath(), name: newName})
	}
	return nil
}
