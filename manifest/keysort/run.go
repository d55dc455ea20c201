package keysort

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

const (
	// chunkBytes is how much of a run is written at once, and read at once by a merge.
	chunkBytes = 128 << 10
	// maxChunk is the longest chunk that is believed: one more entry than fits.
	maxChunk    = chunkBytes + 1<<20
	chunkHeader = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// runWriter writes sorted entries to a file. A run is chunks: the length of what
// follows, its checksum, and entries. An entry begins with 0 if it is in the
// directory of the one before, else with the length of the directory's name plus
// one, and the name; then come item and value, each with its length.
type runWriter struct {
	w     *bufio.Writer
	chunk []byte
	dir   []byte
}

func newRunWriter(f io.Writer) *runWriter {
	return &runWriter{w: bufio.NewWriterSize(f, 256<<10), chunk: make([]byte, chunkHeader, chunkBytes+4096)}
}

func (r *runWriter) add(e *Entry) error {
	if len(r.chunk) > chunkHeader && string(r.dir) == string(e.Dir) {
		r.chunk = append(r.chunk, 0)
	} else {
		r.chunk = binary.AppendUvarint(r.chunk, uint64(len(e.Dir)+1))
		r.chunk = append(r.chunk, e.Dir...)
		r.dir = append(r.dir[:0], e.Dir...)
	}
	r.chunk = binary.AppendUvarint(r.chunk, uint64(len(e.Item)))
	r.chunk = append(r.chunk, e.Item...)
	r.chunk = binary.AppendUvarint(r.chunk, uint64(len(e.Value)))
	r.chunk = append(r.chunk, e.Value...)
	if len(r.chunk) >= chunkBytes {
		return r.flush()
	}
	return nil
}

func (r *runWriter) flush() error {
	if len(r.chunk) == chunkHeader {
		return nil
	}
	binary.LittleEndian.PutUint32(r.chunk, uint32(len(r.chunk)-chunkHeader))
	binary.LittleEndian.PutUint32(r.chunk[4:], crc32.Checksum(r.chunk[chunkHeader:], castagnoli))
	_, err := r.w.Write(r.chunk)
	r.chunk = r.chunk[:chunkHeader]
	return err
}

func (r *runWriter) finish() error {
	return errors.Join(r.flush(), r.w.Flush())
}

// runCursor reads a run.
type runCursor struct {
	f     *os.File
	at    int64
	chunk []byte
	rest  []byte
	dir   []byte
}

func (c *runCursor) next(e *Entry) (bool, error) {
	if len(c.rest) == 0 {
		if err := c.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return false, nil
			}
			return false, err
		}
	}
	ok := true
	number := func() uint64 {
		v, n := binary.Uvarint(c.rest)
		if n <= 0 {
			ok = false
			return 0
		}
		c.rest = c.rest[n:]
		return v
	}
	take := func(n uint64) []byte {
		if !ok || n > uint64(len(c.rest)) {
			ok = false
			return nil
		}
		b := c.rest[:n]
		c.rest = c.rest[n:]
		return b
	}
	if n := number(); n > 0 {
		c.dir = append(c.dir[:0], take(n-1)...)
	}
	item := take(number())
	value := take(number())
	if !ok {
		return false, c.damaged("an entry")
	}
	if string(e.Dir) != string(c.dir) {
		e.Dir = append(e.Dir[:0], c.dir...)
	}
	e.Item, e.Value = item, value
	return true, nil
}

// fill reads the next chunk, or returns io.EOF.
func (c *runCursor) fill() error {
	var header [chunkHeader]byte
	n, err := c.f.ReadAt(header[:], c.at)
	if n == 0 && errors.Is(err, io.EOF) {
		return io.EOF
	}
	if n < chunkHeader {
		return c.damaged("a chunk's header")
	}
	size := int(binary.LittleEndian.Uint32(header[:]))
	if size == 0 || size > maxChunk {
		return c.damaged("a chunk's length")
	}
	if cap(c.chunk) < size {
		c.chunk = make([]byte, size, max(size, chunkBytes+4096))
	}
	c.chunk = c.chunk[:size]
	if n, err := c.f.ReadAt(c.chunk, c.at+chunkHeader); n < size {
		return fmt.Errorf("read %s at byte %d: %w", c.f.Name(), c.at, err)
	}
	if crc32.Checksum(c.chunk, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		return c.damaged("a chunk's checksum")
	}
	c.rest = c.chunk
	c.at += chunkHeader + int64(size)
	return nil
}

func (c *runCursor) damaged(what string) error {
	return fmt.Errorf("%s of %s near byte %d is not what was written: the disk does not keep what it is given; choose another directory for temporary files", what, c.f.Name(), c.at)
}
