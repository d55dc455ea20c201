package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cache"
	"github.com/pailfs/pailfs/fs/internal/backing"
	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// readPath is the read path: how an inode is read while it is open, and its bytes.
type readPath struct {
	reports *reports
	inodes  *inodes
	space   *writeback.Space // nil on a mount that is only read
	cache   *cache.Cache

	passthrough backing.Files
	pages       pagecache.Pages
	bringing    *pagecache.Bringing
	idle        idleHandles
	noOpen      bool
}

var errShortRead = errors.New("the cache returned fewer bytes than the object has")

// Read answers the request of that name. The answer points into the cache's
// memory, which the kernel copies from; nothing is copied here. What is staged is
// read into buf.
func (r *readPath) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (result fuse.ReadResult, status fuse.Status) {
	start := time.Now()
	defer func() { r.reports.metrics.Done(measures.Read, start, status) }()
	r.reports.counters.Reads.Add(1)
	r.reports.metrics.ReadSizes.Observe(float64(in.Size))
	n := r.inodes.nodes.get(in.NodeId)
	if n == nil || n.kind != manifest.File {
		return nil, fuse.Status(estale)
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	for {
		result, again, status := r.readNow(ctx, n, buf[:min(int(in.Size), len(buf))], int64(in.Offset), int64(in.Size), in.Flags)
		if !again {
			return result, status
		}
	}
}

// readNow answers a READ with what n is now. again says that it became another
// version meanwhile, which has to be read instead: a file that was renamed is read
// at its old key until it is copied and its old key is deleted.
func (r *readPath) readNow(ctx context.Context, n *inode, buf []byte, off, size int64, flags uint32) (result fuse.ReadResult, again bool, status fuse.Status) {
	version, staged := n.version()
	if staged {
		read, still, err := n.file.Load().ReadAt(ctx, buf, off)
		switch {
		case !still:
			return nil, true, fuse.OK
		case err != nil && !errors.Is(err, io.EOF):
			return nil, false, r.reports.refuse("read", n, err)
		}
		r.reports.counters.ReadBytes.Add(int64(read))
		return fuse.ReadResultData(buf[:read]), false, fuse.OK
	}
	length := min(size, version.Size-off)
	if length <= 0 {
		return fuse.ReadResultData(nil), false, fuse.OK
	}
	h, err := r.startReading(n)
	if err != nil {
		return nil, false, r.reports.fail("open", n, errnos.OfVersion(err), err)
	}
	if h.Object() != version {
		r.stopReading(n, false)
		return nil, true, fuse.OK
	}
	view, err := h.View(ctx, off, int(length))
	if err == nil && int64(view.Len()) != length {
		// The kernel takes a short answer for the end of the file.
		view.Release()
		err = fmt.Errorf("read %d bytes at %d: %w", length, off, errShortRead)
	}
	if err == nil {
		r.reports.counters.ReadBytes.Add(length)
		r.fills(n, version, length, flags)
		return &reply{reads: r, node: n, view: view, size: int(length), last: off+length == version.Size}, false, fuse.OK
	}
	errno := errnos.OfVersion(err)
	switch {
	case errno == syscall.ESTALE:
		if now, staged := n.version(); staged || now != version {
			r.stopReading(n, false)
			return nil, true, fuse.OK
		}
		r.inodes.replaced(n)
	case errors.Is(err, oss.ErrCorrupted):
		r.corrupted(n)
	}
	r.stopReading(n, false)
	return nil, false, r.reports.fail("read", n, errno, err)
}

// fills notes that READ returned bytes of n, which the kernel keeps unless the reader asked for
// direct input.
func (r *readPath) fills(n *inode, version oss.Object, bytes int64, flags uint32) {
	if flags&unix.O_DIRECT != 0 || !r.passthrough.Wants(version.Size) {
		return
	}
	st := n.opened()
	st.mu.Lock()
	defer st.mu.Unlock()
	st.mu.held.Add(version, bytes)
}

// corrupted notes that what was read of n may be wrong: also the bytes that came
// before the checksum did, which the kernel must forget. Whoever has the file open
// goes on to get errors; the next open, when all have closed it, reads it anew.
func (r *readPath) corrupted(n *inode) {
	if !n.damaged.Swap(true) {
		r.inodes.forgetContent(n)
	}
}

// forgetContent makes the kernel forget what it has cached of n.
func (t *inodes) forgetContent(n *inode) {
	if !t.notify.Content(n.id) {
		t.reports.counters.Dropped.Add(1)
	}
}

// startReading returns the handle of n for one READ; stopReading must follow.
func (r *readPath) startReading(n *inode) (*cache.Handle, error) {
	st := n.opened()
	st.mu.Lock()
	defer st.mu.Unlock()
	if r.noOpen {
		r.renew(n, st)
	}
	if err := r.pin(n, st); err != nil {
		return nil, err
	}
	st.mu.readers++
	return st.mu.handle, nil
}

// renew lets go of a handle that has read corrupted content, on a mount where the
// kernel tells neither of close nor of the next open. Reads fail for idleAfter, so
// that whoever was reading meets an error, and then begin anew. The caller holds
// st.mu.
func (r *readPath) renew(n *inode, st *fileState) {
	switch {
	case st.mu.handle == nil || st.mu.handle.Err() == nil:
	case st.mu.failing.IsZero():
		st.mu.failing = time.Now()
	case time.Since(st.mu.failing) >= idleAfter:
		st.mu.failing = time.Time{}
		st.retire()
		n.damaged.Store(false)
	}
}

// stopReading ends what startReading began. last says that the end of the file was
// read: whoever reads it from beginning to end is done.
func (r *readPath) stopReading(n *inode, last bool) {
	st := n.opened()
	st.mu.Lock()
	st.mu.readers--
	unused := st.mu.readers == 0 && st.mu.opens == 0
	sound := st.mu.handle != nil && st.mu.handle.Err() == nil
	st.mu.Unlock()
	switch {
	case !unused:
	case r.noOpen && last && sound:
		r.idle.drop(n)
	case r.noOpen:
		r.idle.put(n)
		r.closeSpent(n)
	default:
		r.unpin(n)
	}
}

// reply is the answer to one READ.
type reply struct {
	reads *readPath
	node  *inode
	view  *cache.View
	size  int
	last  bool
}

var _ fuse.ReadResult = (*reply)(nil)

// Size implements [fuse.ReadResult].
func (r *reply) Size() int { return r.size }

// Slices makes the library write the answer from where it lies.
func (r *reply) Slices() ([][]byte, fuse.Status) { return r.view.Slices(), fuse.OK }

// Bytes implements [fuse.ReadResult] for a library that does not know Slices.
func (r *reply) Bytes(buf []byte) ([]byte, fuse.Status) {
	buf = buf[:0]
	for _, s := range r.view.Slices() {
		buf = append(buf, s...)
	}
	return buf, fuse.OK
}

// Done implements [fuse.ReadResult]: the kernel has its copy.
func (r *reply) Done() {
	r.view.Release()
	r.reads.stopReading(r.node, r.last)
}
