package fs

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/manifest"
)

// Rename implements [fuse.RawFileSystem].
func (f *filesystem) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opRename, start, status) }()
	from, status := f.changing(in.NodeId, oldName)
	if from == nil {
		return status
	}
	to, status := f.changing(in.Newdir, newName)
	if to == nil {
		return status
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	e, _, err := f.lookup(ctx, from, oldName)
	if err != nil {
		return f.refuse("rename "+oldName, from, err)
	}
	var victim *inode
	var over *entry
	if there, _, err := f.lookup(ctx, to, newName); err == nil {
		over, victim = &there, f.known(to, &there)
		f.keep(ctx, victim)
		defer f.partsFrom(ctx, victim)()
	}
	if err := f.space.Admit(ctx); err != nil {
		return f.refuse("rename "+oldName, from, err)
	}
	switch {
	case in.Flags&^unix.RENAME_NOREPLACE != 0:
		err = syscall.EINVAL
	case local(e.Kind):
		err = f.renameSpecial(ctx, from, to, &e, over, newName, in.Flags, victim)
	case over != nil && local(over.Kind) && in.Flags&unix.RENAME_NOREPLACE != 0:
		err = syscall.EEXIST
	case over != nil && local(over.Kind) && e.Kind == manifest.Directory:
		err = syscall.ENOTDIR
	case e.Kind == manifest.Directory:
		err = f.renameDirectory(ctx, from, to, oldName, newName, in.Flags, victim)
	default:
		err = f.renameFile(ctx, from, to, &e, newName, in.Flags, victim)
	}
	if err != nil {
		return f.refuse("rename "+oldName+" to "+newName, from, err)
	}
	from.tree.touch()
	to.tree.touch()
	f.times.entries(from, 0)
	if to != from {
		f.times.entries(to, 0)
	}
	return fuse.OK
}

// renameDirectory renames a directory, with everything below it.
func (f *filesystem) renameDirectory(ctx context.Context, from, to *inode, oldName, newName string, flags uint32, victim *inode) error {
	f.moves.Lock()
	defer f.moves.Unlock()
	path, now := join(from.dirPath(), oldName), join(to.dirPath(), newName)
	defer f.moves.Begins(path, now)()
	if path != now && f.specials.any(now) {
		return syscall.ENOTEMPTY
	}
	if _, err := f.space.Rename(ctx, from.dirPath(), oldName, to.dirPath(), newName, flags); err != nil {
		return err
	}
	if path == now {
		return nil
	}
	f.left(victim)
	f.moved(path, to, newName)
	f.times.renamed(path, now)
	if n := f.directory(now); n != nil {
		f.times.status(n)
	}
	return nil
}

// renameFile renames what is no directory: it is a file of the space from then on.
func (f *filesystem) renameFile(ctx context.Context, from, to *inode, e *entry, newName string, flags uint32, victim *inode) error {
	f.moves.RLock()
	defer f.moves.RUnlock()
	n := f.known(from, e)
	if n != nil {
		f.remind(n)
	}
	file, err := f.space.Rename(ctx, from.dirPath(), e.Name, to.dirPath(), newName, flags)
	if err != nil {
		return err
	}
	if n == victim && n != nil {
		return nil // onto itself
	}
	f.left(victim)
	f.specials.drop(to.dirPath(), newName)
	if file == nil {
		return nil
	}
	if n != nil {
		f.changed.drop(n.at().path(), n)
		n.where.Store(&place{parent: to.id, dir: to.dirPath(), name: newName})
		f.bind(n, file)
	}
	file.MarkChanged(f.times.now())
	return nil
}
