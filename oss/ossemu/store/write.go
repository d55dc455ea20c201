package store

import (
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"sync"
)

// Blob is content that has been received and belongs to no key yet. Committing
// it hands its bytes over; otherwise Release must be called. Release after a
// commit does nothing.
type Blob struct {
	Size  int64
	CRC64 uint64
	// MD5 is the tag of an object that is made of the blob. It is the digest of the
	// content only if Digest says so.
	MD5    [16]byte
	Digest bool

	data    *dataDir
	extents []extent
}

// Release gives up bytes that were not committed.
func (b *Blob) Release() {
	b.data.release(b.extents)
	b.extents = nil
}

// take hands the extents over.
func (b *Blob) take() []extent {
	e := b.extents
	b.extents = nil
	return e
}

// writeBuffers hold a large body on its way to disk.
var writeBuffers = sync.Pool{New: func() any {
	b := make([]byte, 256<<10)
	return &b
}}

// Write stores everything that r gives, at most limit bytes, and computes its
// checksums. An error of r is returned as it is. Without digest the MD5 is not
// computed, which is most of the work, and Blob.MD5 is made of the CRC-64 and
// the size.
func (s *Store) Write(r io.Reader, limit int64, digest bool) (*Blob, error) {
	return s.data.write(r, limit, digest)
}

func (d *dataDir) write(r io.Reader, limit int64, digest bool) (*Blob, error) {
	buf, _ := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(buf)
	b := &Blob{data: d, Digest: digest}
	head, err := readUpTo(r, (*buf)[:packLimit+1])
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if int64(len(head)) > limit {
		return nil, ErrTooLarge
	}
	if len(head) <= packLimit {
		b.Size, b.CRC64 = int64(len(head)), crc64.Checksum(head, crcTable)
		if digest {
			b.MD5 = md5.Sum(head)
		} else {
			b.MD5 = cheapTag(b)
		}
		if len(head) == 0 {
			return b, nil
		}
		e, err := d.pack(head)
		if err != nil {
			return nil, err
		}
		b.extents = []extent{e}
		return b, nil
	}
	if err := d.writeBlob(b, r, limit, *buf, len(head)); err != nil {
		return nil, err
	}
	return b, nil
}

// writeBlob stores a large body in a file of its own. The first n bytes are in
// buf already.
func (d *dataDir) writeBlob(b *Blob, r io.Reader, limit int64, buf []byte, n int) (err error) {
	f, w, err := d.createBlob()
	if err != nil {
		return err
	}
	defer func() {
		if cerr := w.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close blob: %w", cerr)
		}
		if err != nil {
			d.release([]extent{{file: f}})
		}
	}()
	sum := md5.New()
	for {
		more, rerr := readUpTo(r, buf[n:])
		chunk := buf[:n+len(more)]
		n = 0
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			return rerr
		}
		if b.Size+int64(len(chunk)) > limit {
			return ErrTooLarge
		}
		if _, err := w.Write(chunk); err != nil {
			return fmt.Errorf("write blob: %w", err)
		}
		if b.Digest {
			sum.Write(chunk)
		}
		b.CRC64 = crc64.Update(b.CRC64, crcTable, chunk)
		b.Size += int64(len(chunk))
		if rerr != nil {
			break
		}
	}
	if b.Digest {
		sum.Sum(b.MD5[:0])
	} else {
		b.MD5 = cheapTag(b)
	}
	b.extents = []extent{{f, 0, b.Size}}
	return nil
}

// cheapTag makes a tag that equal contents have in common.
func cheapTag(b *Blob) (tag [16]byte) {
	binary.BigEndian.PutUint64(tag[:8], b.CRC64)
	binary.BigEndian.PutUint64(tag[8:], uint64(b.Size))
	return tag
}

// readUpTo fills buf, or returns what there was and io.EOF. Another error of r
// comes out as it is, so that the end of the body and a broken body are never
// taken for one another.
func readUpTo(r io.Reader, buf []byte) ([]byte, error) {
	n := 0
	for n < len(buf) {
		k, err := r.Read(buf[n:])
		n += k
		if err != nil {
			return buf[:n], err
		}
	}
	return buf[:n], nil
}

// Share returns the content of an open object as a blob, without copying it.
func (s *Store) Share(o *Object, c *Content) *Blob { return s.data.share(o, c) }

func (d *dataDir) share(o *Object, c *Content) *Blob {
	retain(c.extents)
	return &Blob{Size: o.Size, CRC64: o.CRC64, MD5: o.tag, data: d, extents: append([]extent(nil), c.extents...)}
}

// Slice returns n bytes from offset off of an open object as a blob. The bytes
// are shared; they are read once for their checksum. The tag is made up from
// the object's and the range, because it need only be stable.
func (s *Store) Slice(o *Object, c *Content, off, n int64) (*Blob, error) {
	return s.data.slice(o, c, off, n)
}

func (d *dataDir) slice(o *Object, c *Content, off, n int64) (*Blob, error) {
	b := &Blob{Size: n, data: d}
	b.MD5 = md5.Sum(fmt.Appendf(nil, "%s %d %d", o.ETag(), off, n))
	if off == 0 && n == o.Size {
		b.CRC64 = o.CRC64
	} else {
		h := crc64.New(crcTable)
		if _, err := c.CopyTo(h, off, n); err != nil {
			return nil, err
		}
		b.CRC64 = h.Sum64()
	}
	for _, e := range c.extents {
		if off >= e.n {
			off -= e.n
			continue
		}
		if n <= 0 {
			break
		}
		m := min(n, e.n-off)
		b.extents = append(b.extents, extent{e.file, e.off + off, m})
		off, n = 0, n-m
	}
	retain(b.extents)
	return b, nil
}
