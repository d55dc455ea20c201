package state

import (
	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// SetXAttr gives extended attributes to a file. If Known, its object has them already.
type SetXAttr struct {
	File  order.FileID
	Value string
	Known bool
	At    int64
}

func (*SetXAttr) kind() recordKind { return kindXAttr }

func (r *SetXAttr) walk(c *coder) {
	c.uint(&r.File)
	c.string(&r.Value)
	c.bool(&r.Known)
	c.int(&r.At)
}

func (r *SetXAttr) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	x := &attrs.XAttrs{Given: r.Value}
	switch {
	case r.Known:
		x.Pub = r.Value
	case f.XAttrs != nil:
		x.Pub = f.XAttrs.Pub
	}
	st.Tally.touch(r.File)
	if f.XAttrs = x; !r.Known {
		st.describeAgain(f, r.At)
	}
}

// snapXAttrs are those of one file as compaction writes them.
type snapXAttrs struct {
	File   order.FileID
	XAttrs attrs.XAttrs
}

func (*snapXAttrs) kind() recordKind { return kindSnapXAttrs }

func (r *snapXAttrs) walk(c *coder) {
	c.uint(&r.File)
	c.string(&r.XAttrs.Given)
	c.string(&r.XAttrs.Pub)
}

func (r *snapXAttrs) apply(st *State) {
	if f := st.Files[r.File]; f != nil {
		f.XAttrs = &r.XAttrs
		st.Tally.touch(r.File)
	}
}

// With returns the records that make a file of an object with the extended attributes that
// its metadata has. They are one change.
func (r *Opened) With(xattrs string) []Record {
	if xattrs == "" {
		return []Record{r}
	}
	return []Record{r, &SetXAttr{File: r.File, Value: xattrs, Known: true}}
}
