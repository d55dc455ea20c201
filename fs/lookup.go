package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/moves"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/internal/notices"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// inodes are what the kernel knows, what it was told of that, and what names mean now.
type inodes struct {
	cfg     *Config
	reports *reports
	tree    manifest.Tree
	names   names.View // tree, with what space has laid over it
	space   *writeback.Space
	// specials are the names that only this mount has.
	specials names.Specials

	nodes   *nodeTable
	changed byPath
	moves   moves.Moves
	notify  notices.Notifier
	mounted time.Time
	times   changeTimes
	// numbered is tree, if the kernel may keep directories by themselves.
	numbered listing.Numbered
	// forgotten is called when the kernel has forgotten an inode.
	forgotten func(*inode)
}

const (
	estale  = syscall.ESTALE
	nameMax = 255
)

// forgetter is a [manifest.Tree] that can be told that a name it remembers does
// not mean what it said.
type forgetter interface {
	Forget(dir, name string)
}

// Lookup answers the request of that name.
func (ds *directories) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) (status fuse.Status) {
	start := time.Now()
	defer func() { ds.reports.metrics.Done(measures.Lookup, start, status) }()
	dir := ds.inodes.nodes.get(in.NodeId)
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
	dir.tree.Tell()
	e, valid, err := ds.inodes.lookup(ctx, dir, name)
	if errnos.Matches(err, iofs.ErrNotExist) {
		return negative(out, valid)
	}
	if err != nil {
		return ds.reports.fail("lookup "+name, dir, errnos.OfName(err), err)
	}
	if e.Kind != manifest.Directory {
		ds.statters.Asks(in.Pid, dir.id)
	}
	n := ds.inodes.node(dir, &e)
	// The tree stands by this version again, or knows no better.
	n.stale.Store(false)
	ds.inodes.answer(n, valid, out)
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
func (ds *directories) listed(dir *inode, e *names.Entry, valid manifest.Validity, out *fuse.EntryOut) {
	n := ds.inodes.node(dir, e)
	if n.stale.Load() {
		ds.inodes.forget(n.id, 1)
		return
	}
	ds.inodes.answer(n, valid, out)
}

// answer tells the kernel of n, to which it has been given a reference.
func (t *inodes) answer(n *inode, valid manifest.Validity, out *fuse.EntryOut) {
	out.NodeId = n.id
	t.attr(n, &out.Attr)
	out.SetEntryTimeout(lifetime(valid))
	out.SetAttrTimeout(attrLifetime(n))
}

// forget takes back references of the kernel's.
func (t *inodes) forget(id, references uint64) {
	if n := t.times.forget(t.nodes, id, references); n != nil {
		t.forgotten(n)
		if t.space != nil {
			if n.kind != manifest.Directory && !n.gone.Load() {
				t.remind(n)
			}
			t.changed.drop(n.at().path(), n)
		}
	}
}

// replaced notes that the version behind n is not in the store any more: the
// tree and the kernel forget the name, so that the next open meets the new one.
// The kernel is told from another goroutine, because it may hold the directory
// for a lookup that waits for us.
func (t *inodes) replaced(n *inode) {
	if n.stale.Swap(true) {
		return
	}
	t.reports.counters.Stale.Add(1)
	t.reports.log.Info("object was replaced or deleted while it was open", "path", n.path(), "key", n.object.Key, "etag", n.object.ETag)
	at := n.at()
	if tree, ok := t.tree.(forgetter); ok {
		tree.Forget(at.dir, at.name)
	}
	if !t.notify.Entry(at.parent, at.name) {
		t.reports.counters.Dropped.Add(1)
	}
}

// lookup asks what name means in dir, wherever that is.
func (t *inodes) lookup(ctx context.Context, dir *inode, name string) (names.Entry, manifest.Validity, error) {
	for {
		before := t.moves.Now()
		path := dir.dirPath()
		e, valid, err := t.names.Lookup(ctx, path, name)
		if t.space == nil || ctx.Err() != nil || dir.dirPath() == path && !t.moves.Touched(names.Join(path, name), before) {
			return e, valid, err
		}
		// Wait for the rename to end, and ask for the name where it is now.
		t.moves.RLock()
		//nolint:staticcheck // it is only waited for
		t.moves.RUnlock()
	}
}

// moved notes that the directory at path from is at path to now, in the directory
// parent, with everything below it. moves is held for writing.
func (t *inodes) moved(from string, parent *inode, name string) {
	to := names.Join(parent.dirPath(), name)
	t.specials.Moved(from, to)
	for _, n := range t.nodes.all() {
		if n.id == rootID {
			continue
		}
		at := n.at()
		old := at.path()
		switch {
		case old == from && n.kind == manifest.Directory && !n.gone.Load():
			n.where.Store(&place{parent: parent.id, dir: parent.dirPath(), name: name})
		case names.Below(at.dir, from):
			n.where.Store(&place{parent: at.parent, dir: to + strings.TrimPrefix(at.dir, from), name: at.name})
		default:
			continue
		}
		path := n.at().path()
		if n.kind == manifest.Directory {
			n.tree.Path.Store(&path)
		}
		if n.kind == manifest.Directory || n.file.Load() != nil {
			t.changed.drop(old, n)
			if !n.gone.Load() {
				t.changed.put(path, n)
			}
		}
	}
}

// Readlink answers the request of that name.
func (ds *directories) Readlink(cancel <-chan struct{}, in *fuse.InHeader) (target []byte, status fuse.Status) {
	start := time.Now()
	defer func() { ds.reports.metrics.Done(measures.Readlink, start, status) }()
	n := ds.inodes.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return nil, fuse.Status(estale)
	case n.kind != manifest.Symlink:
		return nil, fuse.EINVAL
	}
	if known := n.target.Load(); known != nil {
		return []byte(*known), fuse.OK
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	s, err := ds.inodes.names.ReadLink(ctx, n.entry())
	if err != nil {
		errno := errnos.OfVersion(err)
		if n.file.Load() != nil && (errors.Is(err, syscall.EINVAL) || errors.Is(err, estale)) {
			errno = estale // it was replaced meanwhile: the kernel looks the name up again
		}
		if errno == estale && n.file.Load() == nil {
			ds.inodes.replaced(n)
		}
		return nil, ds.reports.fail("readlink", n, errno, err)
	}
	return []byte(s), fuse.OK
}
