package state

import (
	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
)

// DirAttr are the attributes that a directory was given, and those that its marker has.
type DirAttr struct{ Attr, Pub attrs.Attrs }

// changed says that the marker is to be told.
func (d DirAttr) changed() bool { return d.Attr != d.Pub }

// SetDirAttr gives attributes to a directory. One of the base tree becomes one of
// ours.
type SetDirAttr struct {
	At   Place
	Attr attrs.Attrs
	Time int64
}

func (*SetDirAttr) kind() recordKind { return kindDirAttr }

func (r *SetDirAttr) walk(c *coder) {
	r.At.walk(c)
	c.attrs(&r.Attr)
	c.int(&r.Time)
}

func (r *SetDirAttr) apply(st *State) {
	n, ok := st.Lookup(r.At.Dir, r.At.Name)
	switch {
	case ok && n.Kind != NameDirectory:
		return
	case !ok:
		n = Name{Kind: NameDirectory, Key: r.At.Key}
		if k := st.key(n.Key, r.At.Base); !k.Shown {
			// There may be a marker, or only objects below.
			k.Shown, k.Maybe = true, append(k.Maybe, Intent{Kind: order.Marker})
		}
		st.setName(r.At.Dir, r.At.Name, n)
	}
	st.key(n.Key, r.At.Base)
	d := st.Dirs[n.Key]
	d.Attr = r.Attr
	st.Dirs[n.Key] = d
	st.want(order.Marker, n.Key, order.Join(r.At.Dir, r.At.Name), "", 0, r.Time, false)
}

// snapDirAttr is one of them as compaction writes it.
type snapDirAttr struct {
	Key   string
	State DirAttr
}

func (*snapDirAttr) kind() recordKind { return kindSnapDirAttr }

func (r *snapDirAttr) walk(c *coder) {
	c.string(&r.Key)
	c.attrs(&r.State.Attr)
	c.attrs(&r.State.Pub)
}

func (r *snapDirAttr) apply(st *State) { st.Dirs[r.Key] = r.State }
