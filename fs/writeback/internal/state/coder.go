package state

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/oss"
)

// coder walks the fields of a record, in one direction or the other, so that
// writing and reading cannot disagree. After an error it does nothing more.
type coder struct {
	data     []byte
	decoding bool
	err      error
}

var errShort = errors.New("record ends within a field")

func (c *coder) uint(v *uint64) {
	if !c.decoding {
		c.data = binary.AppendUvarint(c.data, *v)
		return
	}
	u, n := binary.Uvarint(c.data)
	if c.err != nil || n <= 0 {
		c.fail()
		return
	}
	*v, c.data = u, c.data[n:]
}

func (c *coder) int(v *int64) {
	if !c.decoding {
		c.data = binary.AppendVarint(c.data, *v)
		return
	}
	i, n := binary.Varint(c.data)
	if c.err != nil || n <= 0 {
		c.fail()
		return
	}
	*v, c.data = i, c.data[n:]
}

func (c *coder) uint32(v *uint32) {
	u := uint64(*v)
	c.uint(&u)
	if u > 1<<32-1 {
		c.fail()
		return
	}
	*v = uint32(u)
}

func (c *coder) byte(v *uint8) {
	u := uint64(*v)
	c.uint(&u)
	if u > 255 {
		c.fail()
		return
	}
	*v = uint8(u)
}

func (c *coder) bool(v *bool) {
	var u uint64
	if *v {
		u = 1
	}
	c.uint(&u)
	if u > 1 {
		c.fail()
		return
	}
	*v = u == 1
}

func (c *coder) string(v *string) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.decoding {
		c.data = append(c.data, *v...)
		return
	}
	if c.err != nil || n > uint64(len(c.data)) {
		c.fail()
		return
	}
	*v, c.data = string(c.data[:n]), c.data[n:]
}

// bytes does not copy: what was decoded is part of the record's own bytes.
func (c *coder) bytes(v *[]byte) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.decoding {
		c.data = append(c.data, *v...)
		return
	}
	if c.err != nil || n > uint64(len(c.data)) {
		c.fail()
		return
	}
	*v, c.data = c.data[:n:n], c.data[n:]
	if n == 0 {
		*v = nil
	}
}

func (c *coder) object(v *oss.Object) {
	c.string(&v.Key)
	c.string(&v.ETag)
	c.int(&v.Size)
	seconds := int64(0)
	if !v.ModTime.IsZero() {
		seconds = v.ModTime.Unix()
	}
	c.int(&seconds)
	if c.decoding && c.err == nil {
		v.ModTime = time.Time{}
		if seconds != 0 {
			v.ModTime = time.Unix(seconds, 0).UTC()
		}
	}
}

func (c *coder) attrs(v *attrs.Attrs) {
	c.uint32(&v.Mode)
	c.uint32(&v.UID)
	c.uint32(&v.GID)
	c.int(&v.Mtime)
	c.bool(&v.Set)
}

func (c *coder) fail() {
	if c.err == nil {
		c.err = errShort
	}
}
