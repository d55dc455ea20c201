package fs

import (
	"context"

	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/manifest"
)

// follower tells the kernel of names that were changed elsewhere.
type follower struct {
	reports *reports
	inodes  *inodes
}

// Changes tells when the names of a tree have come to mean something else.
type Changes interface {
	// Next waits until the tree answers from a generation later than that of the last
	// call, or than the first one, and returns the step. It fails when ctx ends. One
	// call at a time is made, after the step before is done.
	Next(ctx context.Context) (*manifest.Swap, error)
}

// follow tells the kernel what changed, step by step, until ctx ends.
func (o *follower) follow(ctx context.Context, changes Changes) {
	select {
	case <-o.inodes.notify.Started:
	case <-ctx.Done():
		return
	}
	for {
		swap, err := changes.Next(ctx)
		if err != nil {
			return // nothing but the end of ctx
		}
		o.swapped(ctx, swap)
		swap.Done()
	}
}

// swapped tells the kernel which of the names that it may know have changed: those
// of the directories that it knows. What it does not know costs nothing.
func (o *follower) swapped(ctx context.Context, swap *manifest.Swap) {
	for _, n := range o.inodes.nodes.all() {
		if ctx.Err() != nil {
			return
		}
		if n.kind != manifest.Directory {
			continue
		}
		if err := o.swappedDir(ctx, n, swap); err != nil && ctx.Err() == nil {
			o.reports.log.Warn("what changed in a directory cannot be told; the kernel forgets all of it", "path", n.path(), "err", err)
			o.forgetDir(n)
		}
	}
}

// swappedDir tells of one directory.
//
// The tree has been swapped. Whatever is asked from here on is answered from the
// new generation, and what the daemon has read ahead of listings is dropped first.
// What was answered before and is still on its way was asked with the directory's
// lock held, which the kernel takes for each name that it is told of: it has
// arrived by then. So nothing old is learnt after it was forgotten. A listing that
// arrives late can still be cached, but not be used by another open.
func (o *follower) swappedDir(ctx context.Context, n *inode, swap *manifest.Swap) error {
	same := true
	return swap.Diff(ctx, n.dirPath(), func(d manifest.Difference) bool {
		switch {
		case same:
			same = false
			n.tree.Renew()
			o.inodes.times.entries(n, 0)
			o.inodes.notify.EntryNow(n.id, d.Name)
			o.inodes.notify.ContentNow(n.id)
		case n.tree.Told.Load():
			o.inodes.notify.EntryNow(n.id, d.Name)
		}
		return ctx.Err() == nil
	})
}

// forgetDir makes the kernel forget everything it has of a directory and below.
func (o *follower) forgetDir(n *inode) {
	n.tree.Renew()
	if n.id != rootID {
		at := n.at()
		o.inodes.notify.EntryNow(at.parent, at.name)
		return
	}
	for _, child := range o.inodes.nodes.all() {
		if at := child.at(); at.parent == rootID {
			o.inodes.notify.EntryNow(rootID, at.name)
		}
	}
	o.inodes.notify.ContentNow(rootID)
}

// Changed says that a name came to mean something else by no request of the
// kernel's, which then looks it up again. It must not be called from a request.
func (m *Mounted) Changed(dir, name string) {
	f := m.fs
	n := f.inodes.directory(dir)
	if n == nil {
		return // the kernel does not know it
	}
	n.tree.Touch()
	f.inodes.times.entries(n, 0)
	if !f.inodes.notify.Entry(n.id, name) {
		f.reports.counters.Dropped.Add(1)
	}
	if !f.inodes.notify.Content(n.id) {
		f.reports.counters.Dropped.Add(1)
	}
}

// directory returns the inode of the directory at path if the kernel knows it.
func (t *inodes) directory(path string) *inode {
	if path == "" {
		return t.nodes.get(rootID)
	}
	if n := t.changed.get(path); n != nil && n.kind == manifest.Directory {
		return n
	}
	dir, name := names.Split(path)
	return t.nodes.find(&inode{id: inodeNumber(manifest.Directory, dir, name, nil), kind: manifest.Directory, tree: listing.New(path)})
}
