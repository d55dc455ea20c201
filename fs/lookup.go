package fs

import (
	iofs "io/fs"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/manifest"
)

const (
	estale  = syscall.ESTALE
	nameMax = 255
)

// forgetter is a [manifest.Tree] that can be told that a name it remembers does
// not mean what it said.
type forgetter interface {
	Forget(dir, name string)
}

// Lookup implements [fuse.RawFileSystem].
func (f *filesystem) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opLookup, start, status) }()
	dir := f.nodes.get(in.NodeId)
	switch {
	case dir == nil:
		return fuse.Status(estale)
	case dir.kind != manifest.Directory:
		return fuse.ENOTDIR
	case len(name) > nameMax:
		return fuse.Status(syscall.ENAMETOOLONG)
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	dir.tree.tell()
	e, valid, err := f.lookup(ctx, dir, name)
	if matches(err, iofs.ErrNotExist) {
		return negative(out, valid)
	}
	if err != nil {
		return f.fail("lookup "+name, dir, nameErrno(err), err)
	}
	if e.Kind != manifest.Directory {
		f.statters.Asks(in.Pid, dir.id)
	}
	n := f.node(dir, &e)
	// The tree stands by this version again, or knows no better.
	n.stale.Store(false)
	f.answer(n, valid, out)
	return fuse.OK
}

// negative tells the kernel how long it may believe that there is no such name.
func negative(out *fuse.EntryOut, valid manifest.Validity) fuse.Status {
	ttl := lifetime(valid)
	if ttl == 0 {
		return fuse.ENOENT
	}
	*out = fuse.EntryOut{}
	out.SetEntryTimeout(ttl)
	return fuse.OK
}

// listed gives the kernel a reference to the inode of an entry of a listing. What
// is known to be gone is left out: the listing may be older than that knowledge.
func (f *filesystem) listed(dir *inode, e *entry, valid manifest.Validity, out *fuse.EntryOut) {
	n := f.node(dir, e)
	if n.stale.Load() {
		f.Forget(n.id, 1)
		return
	}
	f.answer(n, valid, out)
}

// answer tells the kernel of n, to which it has been given a reference.
func (f *filesystem) answer(n *inode, valid manifest.Validity, out *fuse.EntryOut) {
	out.NodeId = n.id
	f.attr(n, &out.Attr)
	out.SetEntryTimeout(lifetime(valid))
	out.SetAttrTimeout(attrLifetime(n))
}

// Forget implements [fuse.RawFileSystem].
func (f *filesystem) Forget(id, references uint64) {
	if n := f.times.forget(f.nodes, id, references); n != nil {
		f.idle.drop(n)
		f.late.Drop(n)
		if n.tree != nil {
			f.cursors.forgotten(n.tree)
		}
		if f.space != nil {
			if n.kind != manifest.Directory && !n.gone.Load() {
				f.remind(n)
			}
			f.changed.drop(n.at().path(), n)
		}
	}
}

// replaced notes that the version behind n is not in the store any more: the
// tree and the kernel forget the name, so that the next open meets the new one.
// The kernel is told from another goroutine, because it may hold the directory
// for a lookup that waits for us.
func (f *filesystem) replaced(n *inode) {
	if n.stale.Swap(true) {
		return
	}
	f.counters.stale.Add(1)
	f.log.Info("object was replaced or deleted while it was open", "path", n.path(), "key", n.object.Key, "etag", n.object.ETag)
	at := n.at()
	if t, ok := f.tree.(forgetter); ok {
		t.Forget(at.dir, at.name)
	}
	if !f.notify.Entry(at.parent, at.name) {
		f.counters.dropped.Add(1)
	}
}
