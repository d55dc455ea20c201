package fs

import (
	"container/list"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
)

// ioMode says how the open files of one inode are read. The kernel keeps such a
// mode too and answers EIO to an open that does not fit, so there is one for all
// of them, chosen by the first open and dropped after the last release.
type ioMode uint8

const (
	// undecided: no file is open.
	undecided ioMode = iota
	// cached: READ comes to us, through the kernel's page cache.
	cached
	// passthrough: the kernel reads the cache's file itself.
	passthrough
)

// fileState is what an inode has while it is open. There is one for all opens:
// the bytes of a version do not depend on who reads them, and the cache tells
// the streams of several readers apart by itself.
type fileState struct {
	// opening serialises the opens, and the last close, on a mount that can be
	// written: an open may have to wait for the store, and reads go on meanwhile.
	opening sync.Mutex
	// reader holds the staged file, if there is one, while the file is open; guarded
	// by opening.
	reader *writeback.Handle

	mu struct {
		sync.Mutex
		mode  ioMode
		opens int
		// handle pins the version in the cache. A cached file gets it with the first
		// READ, because what the kernel's page cache holds needs none.
		handle *cache.Handle
		// spent are handles that are in use no more but perhaps by a READ.
		spent []*cache.Handle
		// readers count the READs that use handle, or one that is spent, now.
		readers int
		// atClose is called when nobody has the file open any more.
		atClose []func()
		// failing is since when the handle returns nothing but errors, where there is no
		// open to replace it.
		failing time.Time
		// held is what the mount's page cache has of the file.
		held pagecache.Held
		// backingID is the kernel's name for the cache's file in passthrough.
		backingID int32
		// backingInode is the inode number of that file.
		backingInode uint64
	}
	// idle is the place in idleHandles, nil if there is none; guarded by its mutex.
	idle *list.Element
}

const openForWriting = syscall.O_WRONLY | syscall.O_RDWR | syscall.O_TRUNC | syscall.O_APPEND | syscall.O_CREAT

// Open implements [fuse.RawFileSystem]. A file handle is given out for writing
// only: all that is open to be read is kept by inode.
func (f *filesystem) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) (status fuse.Status) {
	start := time.Now()
	defer func() { f.reports.metrics.Done(measures.Open, start, status) }()
	n := f.inodes.nodes.get(in.NodeId)
	switch {
	case n == nil, n.stale.Load():
		// The kernel looks the name up again and opens what it means now.
		return fuse.Status(estale)
	case n.kind == manifest.Directory:
		return fuse.EISDIR
	case f.inodes.space != nil:
		ctx := callers.NewRequest(&in.Caller, cancel)
		defer ctx.End()
		return f.writes.openWritten(ctx, in, n, out)
	case in.Flags&openForWriting != 0:
		return fuse.EROFS
	case f.reads.noOpen:
		return fuse.ENOSYS
	}
	mode, id, first, err := f.reads.open(n)
	if err != nil {
		return f.reports.fail("open", n, errnos.OfVersion(err), err)
	}
	f.reports.counters.OpenFiles.Add(1)
	f.reads.tellMode(n, mode, id, first, out)
	return fuse.OK
}

// tellMode says how the kernel is to read a file that was opened.
func (r *readPath) tellMode(n *inode, mode ioMode, id int32, first bool, out *fuse.OpenOut) {
	if mode == passthrough {
		r.reports.counters.Passthrough.Add(1)
		// No other flag goes with passthrough but this.
		out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
		out.BackingID = id
		return
	}
	r.reports.counters.Cached.Add(1)
	out.OpenFlags = fuse.FOPEN_NOFLUSH
	if !first || !n.damaged.Swap(false) {
		out.OpenFlags |= fuse.FOPEN_KEEP_CACHE
	}
}

// open counts one more open of n, which decides the mode if it is the first.
func (r *readPath) open(n *inode) (mode ioMode, backingID int32, first bool, err error) {
	st := n.opened()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.mu.opens == 0 && st.mu.handle != nil && st.mu.handle.Err() != nil {
		n.damaged.Store(true)
		st.retire() // the one before has not been closed yet
	}
	if st.mu.mode == undecided {
		if err := r.decide(n, st); err != nil {
			return undecided, 0, false, err
		}
	}
	st.mu.opens++
	return st.mu.mode, st.mu.backingID, st.mu.opens == 1, nil
}

// decide chooses the mode of n. The caller holds st.mu.
func (r *readPath) decide(n *inode, st *fileState) error {
	version, _ := n.version()
	if !r.passthrough.Wants(version.Size) {
		st.mu.mode = cached
		return nil
	}
	if err := r.pin(n, st); err != nil {
		return err
	}
	st.mu.mode = cached
	if file, ok := st.mu.handle.WholeFile(); ok && !r.pages.Stays(&st.mu.held, version, file, n.damaged.Load()) {
		if id, ok := r.offer(file); ok {
			st.mu.mode, st.mu.backingID, st.mu.backingInode = passthrough, id, fileNumber(file)
		}
	}
	return nil
}

// offer gives the kernel a file of the cache to read from. Where the file may become
// a writer's, what the kernel holds must not look like a writer itself, or the
// writer's end could not be seen.
func (r *readPath) offer(file *os.File) (id int32, ok bool) {
	if r.space == nil {
		return r.passthrough.Register(file, r.reports.log)
	}
	readOnly, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return 0, false
	}
	defer func() { _ = readOnly.Close() }() // the kernel has its own
	return r.passthrough.Register(readOnly, r.reports.log)
}

// fileNumber returns the inode number of a file of ours, 0 if it cannot be known.
func fileNumber(file *os.File) uint64 {
	var st unix.Stat_t
	if unix.Fstat(int(file.Fd()), &st) != nil {
		return 0
	}
	return st.Ino
}

// pin opens the version that n is in the cache if it is not. The caller holds
// st.mu.
func (r *readPath) pin(n *inode, st *fileState) error {
	version, _ := n.version()
	if st.mu.handle != nil {
		if st.mu.handle.Object() == version {
			return nil
		}
		st.retire() // it was changed here and published since
	}
	h, err := r.cache.Open(version)
	if err != nil {
		return err
	}
	st.mu.handle = h
	return nil
}

// Release implements [fuse.RawFileSystem]. The kernel has closed its side
// before, so whatever is opened from here on may be opened in another mode.
func (f *filesystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	start := time.Now()
	if n := f.inodes.nodes.get(in.NodeId); n != nil {
		if f.inodes.space != nil {
			f.writes.releaseWritten(n, in.Fh)
		} else {
			f.reads.release(n)
		}
		f.reports.counters.OpenFiles.Add(-1) // now, so that an open after it is a first one
	}
	f.reports.metrics.Done(measures.Release, start, fuse.OK)
}

// release counts one open of n less.
func (r *readPath) release(n *inode) {
	st := n.opened()
	st.mu.Lock()
	st.mu.opens--
	last := st.mu.opens == 0
	id := st.mu.backingID
	if last {
		if r.pages.Leaves(&st.mu.held) {
			r.bringing.Add(st.mu.held.Version)
		}
		st.mu.backingID, st.mu.backingInode, st.mu.mode = 0, 0, undecided
	}
	st.mu.Unlock()
	if !last {
		return
	}
	if id != 0 {
		r.passthrough.Unregister(id)
	}
	r.unpin(n)
}

// unpin closes n in the cache unless it is in use. A READ may still be: the
// kernel has the answer and closes the file before we have taken note.
func (r *readPath) unpin(n *inode) {
	st := n.opened()
	st.mu.Lock()
	damaged := false
	if st.mu.opens == 0 && st.mu.readers == 0 && st.mu.handle != nil {
		// Readahead may have found it, of which no READ was told.
		if damaged = st.mu.handle.Err() != nil; damaged {
			n.damaged.Store(!r.noOpen)
		}
		st.mu.failing = time.Time{}
		st.retire()
	}
	var atClose []func()
	if st.mu.opens == 0 {
		atClose, st.mu.atClose = st.mu.atClose, nil
	}
	st.mu.Unlock()
	for _, do := range atClose {
		do()
	}
	if damaged {
		r.inodes.forgetContent(n)
	}
	r.closeSpent(n)
}

// retire takes the handle out of use. It is closed when no READ uses it. The
// caller holds st.mu.
func (st *fileState) retire() {
	st.mu.spent = append(st.mu.spent, st.mu.handle)
	st.mu.handle = nil
}

// closeSpent closes what was retired, unless a READ may use it.
func (r *readPath) closeSpent(n *inode) {
	st := n.opened()
	st.mu.Lock()
	var spent []*cache.Handle
	if st.mu.readers == 0 {
		spent, st.mu.spent = st.mu.spent, nil
	}
	st.mu.Unlock()
	for _, h := range spent {
		if err := h.Close(); err != nil {
			r.reports.log.Warn("closing a cached object failed", "path", n.path(), "err", err)
		}
	}
}

// releaseWritten counts one open of n less on a mount that can be written, and lets
// go of what was kept for it. fh is 0 if it was only read. An open that has decided
// for a file must not find the decision undone.
func (w *writePath) releaseWritten(n *inode, fh uint64) {
	if open := w.handles.Remove(fh); open != nil {
		open.handle.Release()
	}
	st := n.opened()
	st.opening.Lock()
	defer st.opening.Unlock()
	w.reads.release(n)
	w.letGo(n, st)
}
