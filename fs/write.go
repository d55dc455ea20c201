package fs

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/pailfs/pailfs/fs/internal/callers"
	"github.com/pailfs/pailfs/fs/internal/errnos"
	"github.com/pailfs/pailfs/fs/internal/measures"
	"github.com/pailfs/pailfs/fs/writeback"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// openFile is one open description that may write. What is only read has none: its handle
// is 0.
type openFile struct {
	node   *inode
	handle *writeback.Handle
}

// Write answers the request of that name.
func (w *writePath) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return w.Writev(cancel, in, [][]byte{data})
}

// Writev answers the request of that name. What is written in passthrough does not
// come here.
func (w *writePath) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (written uint32, status fuse.Status) {
	start := time.Now()
	defer func() { w.reports.metrics.Done(measures.Write, start, status) }()
	if w.space == nil {
		return 0, fuse.EROFS
	}
	open := w.handles.Get(in.Fh)
	if open == nil {
		return 0, fuse.EBADF
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	w.reports.counters.Writes.Add(1)
	if in.WriteFlags&fuse.WRITE_KILL_SUIDGID != 0 {
		if err := w.dropPrivileges(ctx, open.node, &in.Caller); err != nil {
			return 0, w.reports.refuse("write", open.node, err)
		}
	}
	for _, p := range data {
		n, err := open.handle.WriteAt(ctx, p, int64(in.Offset)+int64(written))
		written += uint32(n)
		w.reports.counters.WrittenBytes.Add(int64(n))
		if err != nil {
			if written > 0 {
				return written, fuse.OK // the next write meets it again
			}
			return 0, w.reports.refuse("write", open.node, err)
		}
	}
	return written, fuse.OK
}

// Flush answers the request of that name. On a mount that cannot be written there is
// nothing to flush; the answer makes the kernel ask no more, for the whole mount.
func (w *writePath) Flush(cancel <-chan struct{}, in *fuse.FlushIn) (status fuse.Status) {
	start := time.Now()
	if w.space == nil {
		w.reports.metrics.Done(measures.Flush, start, fuse.OK)
		return fuse.ENOSYS
	}
	defer func() { w.reports.metrics.Done(measures.Flush, start, status) }()
	open := w.handles.Get(in.Fh)
	if open == nil {
		return fuse.OK // it was only read
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	if err := open.handle.Flush(ctx); err != nil {
		return w.reports.refuse("close", open.node, err)
	}
	return fuse.OK
}

// Fsync answers the request of that name. Whoever reads may sync what others wrote.
func (w *writePath) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) (status fuse.Status) {
	if w.space == nil {
		return fuse.ENOSYS
	}
	start := time.Now()
	defer func() { w.reports.metrics.Done(measures.Fsync, start, status) }()
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	n := w.inodes.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(estale)
	}
	open := w.handles.Get(in.Fh)
	if open == nil {
		return w.syncReader(ctx, n)
	}
	if err := open.handle.Sync(ctx); err != nil {
		return w.reports.refuse("fsync", n, err)
	}
	return fuse.OK
}

// syncReader is fsync of a file that was opened to be read.
func (w *writePath) syncReader(ctx context.Context, n *inode) fuse.Status {
	file := n.file.Load()
	if file == nil {
		return fuse.OK
	}
	h, err := w.space.OpenFile(ctx, file, writeback.OpenOptions{})
	switch {
	case errors.Is(err, estale):
		return fuse.OK // it is the store's
	case err != nil:
		return w.reports.refuse("fsync", n, err)
	}
	defer h.Release()
	if err := h.Sync(ctx); err != nil {
		return w.reports.refuse("fsync", n, err)
	}
	return fuse.OK
}

// FsyncDir answers the request of that name: the names that were made, renamed and
// removed so far survive the loss of power.
func (w *writePath) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) (status fuse.Status) {
	if w.space == nil {
		return fuse.ENOSYS
	}
	start := time.Now()
	defer func() { w.reports.metrics.Done(measures.Fsync, start, status) }()
	n := w.inodes.nodes.get(in.NodeId)
	if n == nil {
		return fuse.Status(estale)
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	if err := w.space.Sync(ctx); err != nil {
		return w.reports.refuse("fsync", n, err)
	}
	return fuse.OK
}

// Fallocate answers the request of that name.
func (w *writePath) Fallocate(cancel <-chan struct{}, in *fuse.FallocateIn) (status fuse.Status) {
	start := time.Now()
	defer func() { w.reports.metrics.Done(measures.Write, start, status) }()
	if w.space == nil {
		return fuse.EROFS
	}
	open := w.handles.Get(in.Fh)
	if open == nil {
		return fuse.EBADF
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	if err := open.handle.Allocate(ctx, in.Mode, int64(in.Offset), int64(in.Length)); err != nil {
		return w.reports.refuse("fallocate", open.node, err)
	}
	return fuse.OK
}

// copyMost is how many bytes one COPY_FILE_RANGE copies: programs go on where it
// ended, and can be interrupted there.
const (
	copyMost   = 64 << 20
	copyBuffer = 1 << 20
)

// CopyFileRange answers the request of that name.
func (w *writePath) CopyFileRange(cancel <-chan struct{}, in *fuse.CopyFileRangeIn) (copied uint32, status fuse.Status) {
	start := time.Now()
	defer func() { w.reports.metrics.Done(measures.Copy, start, status) }()
	if w.space == nil {
		return 0, fuse.EROFS
	}
	from, to := w.inodes.nodes.get(in.NodeId), w.handles.Get(in.FhOut)
	switch {
	case from == nil:
		return 0, fuse.Status(estale)
	case from.kind != manifest.File || in.Flags != 0:
		return 0, fuse.EINVAL
	case to == nil:
		return 0, fuse.EBADF
	}
	ctx := callers.NewRequest(&in.Caller, cancel)
	defer ctx.End()
	buf := make([]byte, copyBuffer)
	total := int64(0)
	for want := int64(min(in.Len, copyMost)); total < want; {
		n, err := w.reads.readInto(ctx, from, buf[:min(copyBuffer, want-total)], int64(in.OffIn)+total)
		if n > 0 {
			n, err = to.handle.WriteAt(ctx, buf[:n], int64(in.OffOut)+total)
			total += int64(n)
		}
		if errors.Is(err, io.EOF) || n == 0 && err == nil || err != nil && total > 0 {
			break
		}
		if err != nil {
			return 0, w.reports.refuse("copy", to.node, err)
		}
	}
	return uint32(total), fuse.OK
}

// readInto reads what n holds at off, as [io.ReaderAt] does.
func (r *readPath) readInto(ctx context.Context, n *inode, p []byte, off int64) (int, error) {
	for {
		if file := n.file.Load(); file != nil {
			if read, staged, err := file.ReadAt(ctx, p, off); staged {
				return read, err
			}
		}
		version, _ := n.version()
		read, err := r.readObject(ctx, version, p, off)
		if err == nil || errnos.OfVersion(err) != syscall.ESTALE {
			return read, err
		}
		if now, staged := n.version(); !staged && now == version {
			return read, err
		}
	}
}

// readObject reads a version through the cache.
func (r *readPath) readObject(ctx context.Context, version oss.Object, p []byte, off int64) (int, error) {
	h, err := r.cache.Open(version)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }() // a handle that is closed once
	return h.ReadAt(ctx, p, off)
}

// Lseek implements [fuse.RawFileSystem]. The kernel finds the ends of a file by
// itself, and takes it to have no holes.
func (f *filesystem) Lseek(<-chan struct{}, *fuse.LseekIn, *fuse.LseekOut) fuse.Status {
	return fuse.ENOSYS
}

// openToChange opens n for writing for as long as a change of its size takes.
func (w *writePath) openToChange(ctx context.Context, n *inode) (*writeback.Handle, error) {
	st := n.opened()
	st.opening.Lock()
	defer st.opening.Unlock()
	h, err := w.openVersion(ctx, n, writeback.OpenOptions{Write: true, Passing: true})
	if err != nil {
		return nil, err
	}
	if st.inUse() {
		if err := w.hold(ctx, n, st); err != nil {
			h.Release()
			return nil, err
		}
	}
	return h, nil
}
