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
	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

var errShortRead = errors.New("the cache returned fewer bytes than the object has")

// Read implements [fuse.RawFileSystem]. The answer points into the cache's
// memory, which the kernel copies from; nothing is copied here. What is staged is
// read into buf.
func (f *filesystem) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (result fuse.ReadResult, status fuse.Status) {
	start := time.Now()
	defer func() { f.metrics.done(opRead, start, status) }()
	f.counters.reads.Add(1)
	f.metrics.readSizes.Observe(float64(in.Size))
	n := f.nodes.get(in.NodeId)
	if n == nil || n.kind != manifest.File {
		return nil, fuse.Status(estale)
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	for {
		result, again, status := f.readNow(ctx, n, buf[:min(int(in.Size), len(buf))], int64(in.Offset), int64(in.Size), in.Flags)
		if !again {
			return result, status
		}
	}
}

// readNow answers a READ with what n is now. again says that it became another
// version meanwhile, which has to be read instead: a file that was renamed is read
// at its old key until it is copied and its old key is deleted.
func (f *filesystem) readNow(ctx context.Context, n *inode, buf []byte, off, size int64, flags uint32) (result fuse.ReadResult, again bool, status fuse.Status) {
	version, staged := n.version()
	if staged {
		read, still, err := n.file.Load().ReadAt(ctx, buf, off)
		switch {
		case !still:
			return nil, true, fuse.OK
		case err != nil && !errors.Is(err, io.EOF):
			return nil, false, f.refuse("read", n, err)
		}
		f.counters.readBytes.Add(int64(read))
		return fuse.ReadResultData(buf[:read]), false, fuse.OK
	}
	length := min(size, version.Size-off)
	if length <= 0 {
		return fuse.ReadResultData(nil), false, fuse.OK
	}
	h, err := f.startReading(n)
	if err != nil {
		return nil, false, f.fail("open", n, versionErrno(err), err)
	}
	if h.Object() != version {
		f.stopReading(n, false)
		return nil, true, fuse.OK
	}
	view, err := h.View(ctx, off, int(length))
	if err == nil && int64(view.Len()) != length {
		// The kernel takes a short answer for the end of the file.
		view.Release()
		err = fmt.Errorf("read %d bytes at %d: %w", length, off, errShortRead)
	}
	if err == nil {
		f.counters.readBytes.Add(length)
		f.fills(n, version, length, flags)
		return &reply{fs: f, node: n, view: view, size: int(length), last: off+length == version.Size}, false, fuse.OK
	}
	errno := versionErrno(err)
	switch {
	case errno == syscall.ESTALE:
		if now, staged := n.version(); staged || now != version {
			f.stopReading(n, false)
			return nil, true, fuse.OK
		}
		f.replaced(n)
	case errors.Is(err, oss.ErrCorrupted):
		f.corrupted(n)
	}
	f.stopReading(n, false)
	return nil, false, f.fail("read", n, errno, err)
}

// fills notes that READ returned bytes of n, which the kernel keeps unless the reader asked for
// direct input.
func (f *filesystem) fills(n *inode, version oss.Object, bytes int64, flags uint32) {
	if flags&unix.O_DIRECT != 0 || !f.passthrough.Wants(version.Size) {
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
func (f *filesystem) corrupted(n *inode) {
	if !n.damaged.Swap(true) {
		f.forgetContent(n)
	}
}

// forgetContent makes the kernel forget what it has cached of n.
func (f *filesystem) forgetContent(n *inode) {
	if !f.notify.Content(n.id) {
		f.counters.dropped.Add(1)
	}
}

// startReading returns the handle of n for one READ; stopReading must follow.
func (f *filesystem) startReading(n *inode) (*cache.Handle, error) {
	st := n.opened()
	st.mu.Lock()
	defer st.mu.Unlock()
	if f.noOpen {
		f.renew(n, st)
	}
	if err := f.pin(n, st); err != nil {
		return nil, err
	}
	st.mu.readers++
	return st.mu.handle, nil
}

// renew lets go of a handle that has read corrupted content, on a mount where the
// kernel tells neither of close nor of the next open. Reads fail for idleAfter, so
// that whoever was reading meets an error, and then begin anew. The caller holds
// st.mu.
func (f *filesystem) renew(n *inode, st *fileState) {
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
func (f *filesystem) stopReading(n *inode, last bool) {
	st := n.opened()
	st.mu.Lock()
	st.mu.readers--
	unused := st.mu.readers == 0 && st.mu.opens == 0
	sound := st.mu.handle != nil && st.mu.handle.Err() == nil
	st.mu.Unlock()
	switch {
	case !unused:
	case f.noOpen && last && sound:
		f.idle.drop(n)
	case f.noOpen:
		f.idle.put(n)
		f.closeSpent(n)
	default:
		f.unpin(n)
	}
}

// reply is the answer to one READ.
type reply struct {
	fs   *filesystem
	node *inode
	view *cache.View
	size int
	last bool
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
	r.fs.stopReading(r.node, r.last)
}
