package cache

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/pailfs/pailfs/oss"
)

// Handle reads one object version, which it pins. It is safe for concurrent use.
type Handle struct {
	cache  *Cache
	object oss.Object
}

// Object returns the version that the handle reads.
func (h *Handle) Object() oss.Object { return h.object }

// ReadAt reads into p from off, as io.ReaderAt does: at the end of the object it
// returns what there was and io.EOF.
func (h *Handle) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %q at %d: %w", h.object.Key, off, oss.ErrInvalid)
	}
	n := min(int64(len(p)), h.object.Size-off)
	if n <= 0 {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	if _, err := h.cache.demand.ReadRange(ctx, oss.RangeRequest{Object: h.object, Offset: off, Buffer: p[:n]}); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// View returns up to n bytes from off without a copy. At the end of the object it
// is shorter, and beyond it empty, without an error.
func (h *Handle) View(ctx context.Context, off int64, n int) (*View, error) {
	p := make([]byte, n)
	n, err := h.ReadAt(ctx, p, off)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return &View{slices: [][]byte{p[:n]}}, nil
}

// WholeFile returns the file on SSD that holds the complete, verified content.
// The caller must neither close nor write it; it is valid until Close.
func (h *Handle) WholeFile() (*os.File, bool) { return nil, false }

// Close ends the pin.
func (h *Handle) Close() error { return nil }

// View is a window on cached bytes. They stay as they are until Release.
type View struct {
	slices [][]byte
}

// Slices returns the bytes, in order. They must not be written.
func (v *View) Slices() [][]byte { return v.slices }

// Len returns the number of bytes in all slices.
func (v *View) Len() int {
	n := 0
	for _, s := range v.slices {
		n += len(s)
	}
	return n
}

// Release gives the bytes back. It must be called exactly once.
func (v *View) Release() {}
