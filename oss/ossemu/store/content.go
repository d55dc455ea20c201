package store

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// copyBuffers hold what must pass through the process.
var copyBuffers = sync.Pool{New: func() any {
	b := make([]byte, packLimit)
	return &b
}}

// Content gives the bytes of one object version. It stays valid when the key is
// replaced or removed, until Close. It is not safe for concurrent use.
type Content struct {
	data    *dataDir
	extents []extent
	// open is the blob that was read last, its position and its extent.
	open    *os.File
	openIdx int
	pos     int64
}

// Close gives the version up.
func (c *Content) Close() {
	if c.open != nil {
		_ = c.open.Close() // only read
		c.open = nil
	}
	c.data.release(c.extents)
	c.extents = nil
}

// CopyTo writes n bytes from offset off to w. Where they lie in a file of their
// own, w sees an *io.LimitedReader over an *os.File, which a response writer
// turns into sendfile.
func (c *Content) CopyTo(w io.Writer, off, n int64) (written int64, err error) {
	for i := range c.extents {
		e := &c.extents[i]
		if off >= e.n {
			off -= e.n
			continue
		}
		if n <= 0 {
			break
		}
		m := min(n, e.n-off)
		var k int64
		if e.file.packed {
			k, err = copyPacked(w, e.file.pack, e.off+off, m)
		} else {
			k, err = c.copyBlob(w, i, e.off+off, m)
		}
		written += k
		if err != nil {
			return written, err
		}
		off, n = 0, n-m
	}
	if n > 0 {
		return written, io.ErrUnexpectedEOF
	}
	return written, nil
}

func copyPacked(w io.Writer, pack *os.File, off, n int64) (written int64, err error) {
	buf, _ := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for n > 0 {
		b := (*buf)[:min(n, int64(len(*buf)))]
		if _, err := pack.ReadAt(b, off); err != nil {
			return written, fmt.Errorf("read pack: %w", err)
		}
		k, err := w.Write(b)
		written += int64(k)
		if err != nil {
			return written, err
		}
		off, n = off+int64(k), n-int64(k)
	}
	return written, nil
}

func (c *Content) copyBlob(w io.Writer, i int, off, n int64) (int64, error) {
	if c.open == nil || c.openIdx != i {
		if c.open != nil {
			_ = c.open.Close() // only read
		}
		var err error
		if c.open, err = os.Open(c.data.path(c.extents[i].file.id, false)); err != nil {
			return 0, fmt.Errorf("open blob: %w", err)
		}
		c.openIdx, c.pos = i, 0
	}
	if c.pos != off {
		if _, err := c.open.Seek(off, io.SeekStart); err != nil {
			return 0, fmt.Errorf("seek blob: %w", err)
		}
		c.pos = off
	}
	// Not io.Copy: it would prefer the file's WriteTo, which tries splice first.
	lr := &io.LimitedReader{R: c.open, N: n}
	var k int64
	var err error
	if rf, ok := w.(io.ReaderFrom); ok {
		k, err = rf.ReadFrom(lr)
	} else {
		buf, _ := copyBuffers.Get().(*[]byte)
		k, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{lr}, *buf)
		copyBuffers.Put(buf)
	}
	c.pos += k
	if err == nil && k < n {
		err = io.ErrUnexpectedEOF
	}
	return k, err
}
