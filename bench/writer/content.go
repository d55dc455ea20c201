package writer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/pailfs/pailfs/bench/dataset"
)

const (
	// blockBytes is the unit of content, and the most that one call writes.
	blockBytes = 1 << 20
	// periodBlocks is after how many blocks the content repeats but for the stamps.
	periodBlocks = 16
	stampBytes   = 16
)

// Content makes the bytes of files. Each block of a MiB is one of 16 that look
// random, and begins with a stamp of the file's name and the block's number, so that
// a block in the wrong place or of another file is noticed. It is not safe for
// concurrent use.
type Content struct {
	base []byte
	id   uint64
}

// NewContent returns the content of no file yet.
func NewContent() *Content {
	c := &Content{base: make([]byte, periodBlocks*blockBytes)}
	dataset.NewContent(contentSeed, "written", 0).Fill(c.base, 0)
	return c
}

const contentSeed = 71

// File chooses the file whose bytes are made.
func (c *Content) File(name string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash.Hash never fails
	c.id = h.Sum64()
}

// Block returns the first n bytes of block i of the file. They are good until the
// next call.
func (c *Content) Block(i int64, n int) []byte {
	p := c.base[i%periodBlocks*blockBytes:][:n]
	var stamp [stampBytes]byte
	binary.LittleEndian.PutUint64(stamp[:], c.id)
	binary.LittleEndian.PutUint64(stamp[8:], uint64(i)^c.id)
	copy(p, stamp[:])
	return p
}

// Fill makes the bytes of the file that begin at off.
func (c *Content) Fill(p []byte, off int64) {
	for len(p) > 0 {
		in := off % blockBytes
		n := min(int64(len(p)), blockBytes-in)
		copy(p, c.Block(off/blockBytes, int(in+n))[in:])
		p, off = p[n:], off+n
	}
}

// Check compares p, which was found at off of the file, byte by byte.
func (c *Content) Check(p []byte, off int64) error {
	for len(p) > 0 {
		in := off % blockBytes
		n := min(int64(len(p)), blockBytes-in)
		if !bytes.Equal(p[:n], c.Block(off/blockBytes, int(in+n))[in:]) {
			return fmt.Errorf("bytes %d to %d are not what was written", off, off+n-1)
		}
		p, off = p[n:], off+n
	}
	return nil
}
