package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/internal/backing"
	"github.com/pailfs/pailfs/fs/internal/handles"
	"github.com/pailfs/pailfs/fs/internal/pagecache"
	"github.com/pailfs/pailfs/fs/writeback"
)

// writePath is the write path: opens of what may change, and what is written by them.
type writePath struct {
	cfg         *Config
	reports     *reports
	inodes      *inodes
	reads       *readPath
	keeps       *keeps
	space       *writeback.Space
	passthrough *backing.Files

	handles handles.Table[openFile]
}

// mayWrite reports whether an open with these flags changes the file or may.
func mayWrite(flags uint32) bool {
	return flags&(syscall.O_WRONLY|syscall.O_RDWR|syscall.O_TRUNC) != 0
}

// openWritten is OPEN on a mount that can be written.
func (w *writePath) openWritten(ctx context.Context, in *fuse.OpenIn, n *inode, out *fuse.OpenOut) fuse.Status {
	st := n.opened()
	st.opening.Lock()
	defer st.opening.Unlock()
	var h *writeback.Handle
	var err error
	if mayWrite(in.Flags) {
		h, err = w.openToWrite(ctx, n, st, in.Flags&syscall.O_TRUNC != 0)
		if err == nil && in.Mode&fuse.OPEN_KILL_SUIDGID != 0 {
			err = w.dropPrivileges(ctx, n, &in.Caller)
		}
	} else {
		if err = w.hold(ctx, n, st); err == nil {
			err = w.keeps.bring(ctx, n)
		}
	}
	if err == nil {
		err = w.answerOpen(n, st, h, out)
	}
	if err != nil {
		if h != nil {
			h.Release()
		}
		w.letGo(n, st)
		return w.reports.refuse("open", n, err)
	}
	if n.gone.Load() {
		w.keeps.keep(ctx, n)
	}
	return fuse.OK
}

// openToWrite opens n for writing: what it is becomes a file of the space. The
// caller holds st.opening.
func (w *writePath) openToWrite(ctx context.Context, n *inode, st *fileState, truncate bool) (*writeback.Handle, error) {
	// Whoever has the file open must see it truncated, not another file in its place.
	shared := truncate && st.inUse()
	h, err := w.openVersion(ctx, n, writeback.OpenOptions{Write: true, Truncate: truncate && !shared})
	if err != nil {
		return nil, err
	}
	if shared {
		size := int64(0)
		// Nothing is taken from a file that then cannot be opened.
		if err := w.decideBacking(st, h, true); err != nil {
			h.Release()
			return nil, err
		}
		if err := w.space.SetAttrFile(ctx, h.File(), writeback.SetAttr{Size: &size}); err != nil {
			h.Release()
			return nil, err
		}
	}
	if truncate {
		if err := h.File().TouchNow(); err != nil {
			h.Release()
			return nil, err
		}
	}
	// Those who have it open already must go on to see this file, also when the
	// writer has gone: what they have is not exchanged while somebody holds it.
	if err := w.hold(ctx, n, st); err != nil {
		h.Release()
		return nil, err
	}
	return h, nil
}

// openVersion opens the file that n is, or makes one of the version that n is.
func (w *writePath) openVersion(ctx context.Context, n *inode, o writeback.OpenOptions) (*writeback.Handle, error) {
	for {
		if file := n.file.Load(); file != nil {
			h, err := w.space.OpenFile(ctx, file, o)
			if !errors.Is(err, estale) {
				return h, err
			}
			// It was published and is the store's again.
		}
		if n.gone.Load() {
			return nil, estale
		}
		version, staged := n.version()
		if staged {
			return nil, estale
		}
		w.inodes.remind(n)
		at := n.at()
		h, err := w.space.Open(ctx, at.dir, at.name, o)
		if err != nil {
			if n.at() != at {
				continue // its directory was renamed
			}
			if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, syscall.ENOENT) {
				err = estale // the kernel looks the name up again
			}
			return nil, err
		}
		if origin, ok := h.File().Origin(); !ok || origin != version {
			h.Release()
			return nil, estale // the name means another version by now
		}
		w.inodes.bind(n, h.File())
		w.reads.unpinVersion(n)
		return h, nil
	}
}

// unpinVersion lets go of the version that n was before it was changed: a file of
// the cache that became the writer's must not be open in the cache.
func (r *readPath) unpinVersion(n *inode) {
	st := n.opened()
	st.mu.Lock()
	if st.mu.handle != nil {
		st.retire()
	}
	st.mu.Unlock()
	r.closeSpent(n)
}

// hold keeps the staged file of n, if there is one, as long as n is open: what the
// kernel reads in passthrough must be what others write. The caller holds
// st.opening.
func (w *writePath) hold(ctx context.Context, n *inode, st *fileState) error {
	file := n.file.Load()
	if file == nil || st.reader != nil {
		return nil
	}
	h, err := w.space.OpenFile(ctx, file, writeback.OpenOptions{})
	if errors.Is(err, estale) {
		return nil // it is the store's again
	}
	st.reader = h
	return err
}

// letGo ends hold if n is not open. The caller holds st.opening.
func (w *writePath) letGo(n *inode, st *fileState) {
	if st.reader != nil && !st.inUse() {
		st.reader.Release()
		st.reader = nil
	}
}

// inUse reports whether the kernel has the file open.
func (st *fileState) inUse() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.mu.opens > 0
}

// answerOpen counts an open of n, by h if it may write, and says how the kernel is
// to read and write. The caller holds st.opening.
func (w *writePath) answerOpen(n *inode, st *fileState, h *writeback.Handle, out *fuse.OpenOut) error {
	backing := h
	if backing == nil {
		backing = st.reader
	}
	if backing != nil {
		if err := w.decideBacking(st, backing, h != nil); err != nil {
			return err
		}
	}
	mode, id, first, err := w.reads.open(n)
	if err != nil {
		return err
	}
	w.reports.counters.OpenFiles.Add(1)
	w.reads.tellMode(n, mode, id, first, out)
	if h != nil {
		if mode == passthrough {
			// The kernel may believe attributes that a store through a mapping changes.
			h.File().MayBeMapped()
			w.inodes.notify.Attributes(n.id)
		}
		out.OpenFlags &^= fuse.FOPEN_NOFLUSH
		out.Fh = w.handles.Add(&openFile{node: n, handle: h})
	}
	return nil
}

// decideStaged chooses the mode of an inode whose bytes are in a staged file.
func (w *writePath) decideStaged(st *fileState, staged *os.File, write bool) error {
	var info unix.Stat_t
	if err := unix.Fstat(int(staged.Fd()), &info); err != nil {
		return fmt.Errorf("stat staged file: %w", err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.mu.mode == passthrough && st.mu.backingInode != info.Ino:
		// The kernel reads another file for those who have this one open, and refuses
		// to read two.
		return syscall.ETXTBSY
	case st.mu.mode != undecided:
		return nil
	}
	st.mu.mode = cached
	if w.passthrough.On && (write || w.passthrough.Wants(info.Size)) {
		if id, ok := w.passthrough.Register(staged, w.reports.log); ok {
			st.mu.mode, st.mu.backingID, st.mu.backingInode = passthrough, id, info.Ino
			st.mu.held = pagecache.Held{} // the kernel drops them
		}
	}
	return nil
}

// decidePartial chooses the mode of an inode of whose bytes only some are staged: all
// reads and writes come to us. The kernel does not mix that with a file that it reads
// itself.
func (st *fileState) decidePartial() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch st.mu.mode {
	case passthrough:
		return syscall.ETXTBSY
	case undecided:
		st.mu.mode = cached
	}
	return nil
}

// decideBacking chooses the mode of an inode that h has open, if its bytes are staged.
func (w *writePath) decideBacking(st *fileState, h *writeback.Handle, write bool) error {
	if h.File().Partial() {
		return st.decidePartial()
	}
	if staged := h.OSFile(); staged != nil {
		return w.decideStaged(st, staged, write)
	}
	return nil
}
