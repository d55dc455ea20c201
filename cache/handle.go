package cache

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/pailfs/pailfs/cache/internal/disk"
	"github.com/pailfs/pailfs/oss"
)

// Handle reads one object version, which it pins: while a handle is open, what
// SSD holds of the version stays. It is safe for concurrent use.
//
// If the content of an object larger than 1 MiB turns out, once all of it has
// come, not to match the object store's checksum, then every read of the handles
// that were open at that moment fails with [oss.ErrCorrupted]: they may have
// returned wrong bytes before. A new handle begins anew.
type Handle struct {
	object *object
	// version is what it was opened for: of what an object was seen as before, the time
	// may be another one.
	version oss.Object
	// lives is how often the object had been found corrupted when the handle was
	// opened.
	lives uint64

	mu struct {
		sync.Mutex
		closed bool
		whole  *disk.File // what WholeFile returned
	}
}

// Object returns the version that the handle reads.
func (h *Handle) Object() oss.Object { return h.version }

// ReadAt reads into p from off, as io.ReaderAt does: at the end of the object it
// returns what there was and io.EOF. Errors are those of [oss.RangeReader].
func (h *Handle) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n, err := h.clip(off, len(p))
	if err != nil {
		return 0, err
	}
	if err = h.sound(); err == nil {
		err = h.object.readAt(ctx, p[:n], off, true)
	}
	if err == nil {
		err = h.sound()
	}
	if err != nil {
		return 0, fmt.Errorf("read %q at %d: %w", h.object.oss.Key, off, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// MaxView is the largest view that can be asked for.
const MaxView = largestBuffer

// View returns n bytes from off, at most MaxView, and fewer only where the object
// ends, mostly without a copy. Beyond the end the view is empty. The caller must
// release it soon: it holds memory that others wait for.
func (h *Handle) View(ctx context.Context, off int64, n int) (*View, error) {
	if n > MaxView {
		return nil, fmt.Errorf("view %q: %d bytes, more than %d: %w", h.object.oss.Key, n, MaxView, oss.ErrInvalid)
	}
	n, err := h.clip(off, n)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return &View{}, nil
	}
	var v *View
	if err = h.sound(); err == nil {
		v, err = h.object.view(ctx, off, int64(n))
	}
	if err == nil {
		if err = h.sound(); err != nil {
			v.Release()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %q at %d: %w", h.object.oss.Key, off, err)
	}
	return v, nil
}

// Err returns an error that wraps [oss.ErrCorrupted] once the content was found
// not to match the object store's checksum: what the handle has returned may have
// been wrong, also if no read of it failed.
func (h *Handle) Err() error { return h.sound() }

// sound returns an error if the object was found corrupted since the handle was
// opened.
func (h *Handle) sound() error {
	if h.object.lives.Load() != h.lives {
		return fmt.Errorf("etag %s: an earlier read may have been wrong: %w", h.object.oss.ETag, oss.ErrCorrupted)
	}
	return nil
}

// clip returns how many of n bytes at off the object has.
func (h *Handle) clip(off int64, n int) (int, error) {
	if off < 0 || n < 0 {
		return 0, fmt.Errorf("read %q: %d bytes at %d: %w", h.object.oss.Key, n, off, oss.ErrInvalid)
	}
	return int(max(min(int64(n), h.object.geometry.Size-off), 0)), nil
}

// WholeFile returns the file on SSD that holds the complete content, checked since
// the start of the cache. The caller must neither close nor write it; it is valid
// until Close of the handle. Once [Cache.Take] has given the file away there is none.
func (h *Handle) WholeFile() (*os.File, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed || h.sound() != nil {
		return nil, false
	}
	if h.mu.whole == nil {
		if h.mu.whole = h.object.cache.ssd.wholeFile(h.object); h.mu.whole != nil {
			h.object.mu.disk.handOut(1)
		}
	}
	if h.mu.whole == nil || h.mu.whole.Given.Load() {
		return nil, false
	}
	return h.mu.whole.OSFile(), true
}

// handOut counts handles that have given the file to others.
func (d *diskState) handOut(n int) {
	o := d.object
	o.mu.Lock()
	defer o.mu.Unlock()
	d.handedOut += n
}

// Close ends the pin. What is in flight for this version alone is stopped when
// its last handle goes.
func (h *Handle) Close() error {
	h.mu.Lock()
	closed, whole := h.mu.closed, h.mu.whole
	h.mu.closed, h.mu.whole = true, nil
	h.mu.Unlock()
	if closed {
		return fmt.Errorf("close %q: %w", h.object.oss.Key, os.ErrClosed)
	}
	if whole != nil {
		h.object.mu.disk.handOut(-1)
		whole.Release()
	}
	h.object.closeHandle()
	h.object.release()
	return nil
}

// openHandle counts a handle.
func (o *object) openHandle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.handles++
}

// closeHandle stops counting a handle. With the last one everything ends that was
// there for its reads.
func (o *object) closeHandle() {
	o.mu.Lock()
	o.mu.handles--
	last := o.mu.handles == 0
	var idle []*flight
	var file *disk.File
	if last {
		idle = o.endStreams()
		file = o.mu.disk.idleFile()
	}
	o.mu.Unlock()
	if !last {
		return
	}
	for _, f := range idle {
		f.abandon()
	}
	if file != nil {
		file.Release()
	}
	o.settle()
	if o.never {
		o.cache.dropKept(o)
	}
	o.cache.ssd.unpinned()
}
