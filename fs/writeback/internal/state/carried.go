package state

import (
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// Carried says that the object which a file was, or was made from, has become Object at
// its old key: it was published there while the file was renamed. A copy of an object onto
// itself, which changes its metadata, may give it another ETag.
type Carried struct {
	File   order.FileID
	Object oss.Object
	CRC    uint64
	// Content says that Object is the content of the file, too.
	Content bool
}

func (*Carried) kind() recordKind { return kindCarried }

func (r *Carried) walk(c *coder) {
	c.uint(&r.File)
	c.object(&r.Object)
	c.uint(&r.CRC)
	c.bool(&r.Content)
}

func (r *Carried) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	f.Published, f.PubCRC = r.Object, r.CRC
	if r.Content {
		f.Object = r.Object
	}
	st.displace(f)
}

// Carried returns what else is to be recorded when op has made obj of before; nil if its
// file is still at its key, or was made from something else.
func (st *State) Carried(op order.Operation, before, obj oss.Object, crc uint64) *Carried {
	f, now := st.Files[op.File], st.Ops[op.ID]
	if op.Kind != order.Put || f == nil || now == nil || before.ETag == "" || !SameBytes(f.Published, before) && !SameBytes(f.Object, before) {
		return nil
	}
	content := SameBytes(f.Object, before) && f.Gen == now.Gen && (!f.Staged || f.Gen == f.BaseGen)
	if f.Linked && f.Key == op.Key && (!content || !f.Staged) {
		return nil // the end of op says all that
	}
	return &Carried{File: f.ID, Object: obj, CRC: crc, Content: content}
}
