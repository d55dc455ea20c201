package keysort

import (
	"bufio"
	"bytes"
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
	endBytes    = chunkHeader + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// runMagic begins a run. Its last byte is the version, which is also that of what
// the values of entries are.
const runMagic = "pfSort\n\x01"

// runWriter writes sorted entries to a file. A run is runMagic, chunks and the end.
// A chunk is the length of what follows the chunk's header, its checksum, and
// entries. The end is an empty chunk whose checksum is that of the length of the
// run before it, which follows it in 8 bytes: a run that is cut short has none. An
// entry begins with 0 if it is in the
// directory of the one before, else with the length of the directory's name plus
// one, and the name; then come item and value, each with its length.
type runWriter struct {
	w     *bufio.Writer
	bytes uint64
	chunk []byte
	dir   []byte
}

func newRunWriter(f io.Writer) *runWriter {
	r := &runWriter{w: bufio.NewWriterSize(f, 256<<10), chunk: make([]byte, chunkHeader, chunkBytes+4096)}
	n, _ := r.w.WriteString(runMagic) // an error comes again
	r.bytes = uint64(n)
	return r
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
	n, err := r.w.Write(r.chunk)
	r.bytes += uint64(n)
	r.chunk = r.chunk[:chunkHeader]
	return err
}

func (r *runWriter) finish() error {
	err := r.flush()
	_, ended := r.w.Write(runEnd(r.bytes))
	return errors.Join(err, ended, r.w.Flush())
}

// runEnd returns the end of a run of so many bytes before it.
func runEnd(n uint64) []byte {
	var end [endBytes]byte
	binary.LittleEndian.PutUint64(end[chunkHeader:], n)
	binary.LittleEndian.PutUint32(end[4:], crc32.Checksum(end[chunkHeader:], castagnoli))
	return end[:]
}

// OpenRun opens the run at path and looks whether it is whole, without reading it.
func OpenRun(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := checkRun(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkRun(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	var magic [len(runMagic)]byte
	var end [endBytes]byte
	at := st.Size() - endBytes
	if at < int64(len(runMagic)) {
		return fmt.Errorf("run %s of %d bytes is not whole; remove it, and what it holds is made again", f.Name(), st.Size())
	}
	if _, err := f.ReadAt(magic[:], 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(end[:], at); err != nil {
		return err
	}
	switch {
	case string(magic[:len(runMagic)-1]) != runMagic[:len(runMagic)-1] || !bytes.Equal(end[:], runEnd(uint64(at))):
		return fmt.Errorf("run %s is not whole; remove it, and what it holds is made again", f.Name())
	case magic[len(runMagic)-1] != runMagic[len(runMagic)-1]:
		return fmt.Errorf("run %s has version %d, and this program reads version %d; remove it, and what it holds is made again", f.Name(), magic[len(runMagic)-1], runMagic[len(runMagic)-1])
	}
	return nil
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
		if more, err := c.fill(); err != nil || !more {
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

// fill reads the next chunk. It returns false at the end.
func (c *runCursor) fill() (bool, error) {
	if c.at == 0 {
		c.at = int64(len(runMagic))
	}
	var header [endBytes]byte
	n, err := c.f.ReadAt(header[:], c.at)
	if n < endBytes { // what is behind a chunk is never shorter than the end
		return false, c.unread("the end", err)
	}
	size := int(binary.LittleEndian.Uint32(header[:]))
	if size == 0 && bytes.Equal(header[:], runEnd(uint64(c.at))) {
		return false, nil
	}
	if size == 0 || size > maxChunk {
		return false, c.damaged("a chunk's length")
	}
	if cap(c.chunk) < size {
		c.chunk = make([]byte, size, max(size, chunkBytes+4096))
	}
	c.chunk = c.chunk[:size]
	if n, err := c.f.ReadAt(c.chunk, c.at+chunkHeader); n < size {
		return false, c.unread("a chunk", err)
	}
	if crc32.Checksum(c.chunk, castagnoli) != binary.LittleEndian.Uint32(header[4:]) {
		return false, c.damaged("a chunk's checksum")
	}
	c.rest = c.chunk
	c.at += chunkHeader + int64(size)
	return true, nil
}

// unread returns the error of a read that gave too little.
func (c *runCursor) unread(what string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return c.damaged(what)
	}
	return fmt.Errorf("read %s at byte %d: %w", c.f.Name(), c.at, err)
}

func (c *runCursor) damaged(what string) error {
	return fmt.Errorf("%s of %s near byte %d is not what was written: the disk does not keep what it is given; choose another directory for temporary files", what, c.f.Name(), c.at)
}
