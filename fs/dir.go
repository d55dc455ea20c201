package fs

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/handles"
	"github.com/pailfs/pailfs/fs/internal/listing"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/names"
	"github.com/pailfs/pailfs/fs/internal/statters"
	"github.com/pailfs/pailfs/manifest"
)

// directories look names up and list them.
type directories struct {
	control Control // nil if there is none
	reports *reports
	inodes  *inodes

	dirs     handles.Table[dirHandle]
	statters statters.Threads
	cursors  listing.Cursors
}

// dirHandle is one open directory.
type dirHandle struct {
	node *inode
	// controlled says that an ioctl was made on it.
	controlled atomic.Bool
	mu         struct {
		sync.Mutex
		listing.Reader
	}
}

// OpenDir answers the request of that name. The kernel may keep the listing it has
// as long as the tree stands by it; else it drops it now and reads again.
func (ds *directories) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (status fuse.Status) {
	start := time.Now()
	defer func() { ds.reports.metrics.Done(measures.Opendir, start, status) }()
	n := ds.inodes.nodes.get(in.NodeId)
	switch {
	case n == nil:
		return fuse.Status(estale)
	case n.kind != manifest.Directory:
		return fuse.ENOTDIR
	}
	if ds.inodes.numbered != nil {
		return fuse.ENOSYS // and never asks again
	}
	h := &dirHandle{node: n}
	list, known := n.tree.Enter(start)
	h.mu.Reader = listing.Reader{Tree: ds.inodes.names, Dir: n.tree, List: list}
	n.tree.Opened()
	ds.reports.counters.OpenDirs.Add(1)
	out.Fh = ds.dirs.Add(h)
	out.OpenFlags = fuse.FOPEN_CACHE_DIR
	if known {
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	}
	return fuse.OK
}

// ReleaseDir answers the request of that name.
func (ds *directories) ReleaseDir(in *fuse.ReleaseIn) {
	start := time.Now()
	if h := ds.dirs.Remove(in.Fh); h != nil {
		h.mu.Lock()
		h.node.tree.Leave(h.mu.List)
		h.mu.Unlock()
		h.node.tree.Closed()
		ds.cursors.Closed(h.node.tree)
		ds.reports.counters.OpenDirs.Add(-1)
		if h.controlled.Load() {
			ds.control.Released(in.Fh)
		}
	}
	ds.reports.metrics.Done(measures.Releasedir, start, fuse.OK)
}

// ReadDir answers the request of that name.
func (ds *directories) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	start := time.Now()
	status := ds.readDir(cancel, in, false, nil, func(_ *inode, d fuse.DirEntry, _ *names.Entry, _ manifest.Validity) bool {
		return out.AddDirEntry(d)
	})
	ds.reports.metrics.Done(measures.Readdir, start, status)
	return status
}

// ReadDirPlus answers the request of that name: entries with their attributes,
// each of which is a reference that the kernel will forget one day.
func (ds *directories) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	start := time.Now()
	reply := plusReply{ds: ds, in: in, out: out, completing: ds.completes(in)}
	status := ds.readDir(cancel, in, true, reply.completing, reply.add)
	ds.reports.metrics.Done(measures.Readdirplus, start, status)
	return status
}

// addEntry takes an entry of dir into an answer, and reports whether there was
// room. e is nil for "." and "..", and valid says how long it may be believed.
type addEntry func(dir *inode, d fuse.DirEntry, e *names.Entry, valid manifest.Validity) bool

// readDir gives entries to add, beginning at the offset in the request, until it
// takes no more. plus says that the kernel keeps their names, c asks for their attributes.
func (ds *directories) readDir(cancel <-chan struct{}, in *fuse.ReadIn, plus bool, c *listing.Completing, add addEntry) fuse.Status {
	if ds.inodes.numbered != nil {
		return ds.readNumbered(cancel, in, plus, add)
	}
	h := ds.dirs.Get(in.Fh)
	if h == nil {
		return fuse.EBADF
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	h.mu.Lock()
	defer h.mu.Unlock()
	if plus {
		h.node.tree.Tell()
	}
	h.mu.Seek(in.Offset, time.Now())
	if c != nil {
		c.Ctx = ctx
		defer h.mu.Complete(c)()
	}
	if err := h.mu.Fill(ctx); err != nil {
		return ds.reports.fail("readdir", h.node, errnos.OfName(err), err)
	}
	defer ds.watch(h)
	defer h.mu.Answered()
	defer func() {
		if h.mu.Changed {
			h.mu.Changed = false
			ds.inodes.times.entries(h.node, 0)
		}
	}()
	for given := 0; !h.mu.Enough(given); given++ {
		d, e, err := ds.peek(ctx, h)
		if err != nil || d.Name == "" || !add(h.node, d, e, h.mu.Valid) {
			// What came before an error is given out; the next call meets it again.
			return fuse.OK
		}
		h.mu.Next()
	}
	return fuse.OK
}

// peek returns the next entry, with an empty name at the end of the directory.
// The caller holds h.mu.
func (ds *directories) peek(ctx *callers.Request, h *dirHandle) (fuse.DirEntry, *names.Entry, error) {
	off := listing.PackOffset(h.mu.List.Number, h.mu.Position+1)
	if h.mu.Position < listing.DotEntries {
		d := dotEntry(h.node, h.mu.Position)
		d.Off = off
		return d, nil, nil
	}
	if err := h.mu.Fill(ctx); err != nil || len(h.mu.Pending) == 0 {
		return fuse.DirEntry{}, nil, err
	}
	e := &h.mu.Pending[0]
	return fuse.DirEntry{Name: e.Name, Mode: listedType(e), Ino: ds.inodes.number(h.node, e), Off: off}, e, nil
}

// listedType returns the file type that a listing shows for e: none where it would
// have to be asked, so that programs look for themselves.
func listedType(e *names.Entry) uint32 {
	if e.Partial && e.Kind == manifest.File && e.MayBeLink() {
		return 0
	}
	return names.TypeBits(e.Kind)
}

// watch makes the kernel drop its cached listing when it expires, should the
// directory still be open. The caller holds h.mu.
func (ds *directories) watch(h *dirHandle) {
	id := h.node.id
	h.node.tree.At(h.mu.List.Expiry(), func() {
		if !ds.inodes.notify.Content(id) {
			ds.reports.counters.Dropped.Add(1)
		}
	})
}
