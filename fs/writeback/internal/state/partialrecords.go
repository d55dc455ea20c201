package state

import (
	"slices"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/oss"
)

// Partial says that only some bytes of a staged file are its own, and which: the rest
// are those of an object. It is replaced, never changed.
type Partial struct {
	// Base is the object. After the file was published it is what it became: of what
	// is not local that has the same bytes.
	Base oss.Object
	// Limit is where the base's bytes end at the latest, Chunk the size of the chunks
	// before it, Local says which of them are the staged file's; see presence.
	Limit, Chunk int64
	Local        string
	// Tried are what requests of ours with unknown end may have made of the base's key.
	Tried []Intent
}

// Presence returns what p says as a set that can be asked and changed.
func (p *Partial) Presence() *presence.Set { return presence.New(p.Limit, p.Chunk, p.Local) }

func (p *Partial) walk(c *coder) {
	c.object(&p.Base)
	c.int(&p.Limit)
	c.int(&p.Chunk)
	c.string(&p.Local)
	n := uint64(len(p.Tried))
	c.uint(&n)
	if !c.decoding {
		for i := range p.Tried {
			p.Tried[i].walk(c)
		}
		return
	}
	p.Tried = nil
	for ; n > 0 && c.err == nil; n-- {
		var i Intent
		i.walk(c)
		p.Tried = append(p.Tried, i)
	}
}

// Lacks says which bytes of a staged file are its own. It comes in one group
// with the record that stages or commits the file, and after that of a snapshot.
// Without a base all of them are. What the one before said is vouched for until a
// generation is durable.
type Lacks struct {
	File    order.FileID
	Partial Partial
}

func (*Lacks) kind() recordKind { return kindPartial }

func (r *Lacks) walk(c *coder) {
	c.uint(&r.File)
	r.Partial.walk(c)
}

func (r *Lacks) apply(st *State) {
	f := st.Files[r.File]
	if f == nil || !f.Staged {
		return
	}
	st.Tally.touch(r.File)
	if f.Vouched == nil {
		f.Vouched = f.Partial
	}
	f.Partial = nil
	if r.Partial.Base.ETag != "" {
		p := r.Partial
		f.Partial = &p
	}
	if f.Partial.same(f.Vouched) {
		f.Vouched = nil
	}
	st.displace(f)
}

// same reports whether p and q say that the same bytes are there. There may be neither.
func (p *Partial) same(q *Partial) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Base == q.Base && p.Limit == q.Limit && p.Chunk == q.Chunk && p.Local == q.Local
}

// Cut says that a staged file was cut: nothing from Limit on is the base's any
// more, also when the file is extended again before it is committed.
type Cut struct {
	File  order.FileID
	Limit int64
}

func (*Cut) kind() recordKind { return kindCut }

func (r *Cut) walk(c *coder) {
	c.uint(&r.File)
	c.int(&r.Limit)
}

func (r *Cut) apply(st *State) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	f.Partial, f.Vouched = f.Partial.cut(r.Limit), f.Vouched.cut(r.Limit)
	st.Tally.touch(r.File)
}

// cut returns p with a lower limit, if that is lower. There may be no p.
func (p *Partial) cut(limit int64) *Partial {
	if p == nil || limit >= p.Limit {
		return p
	}
	n := p.Presence()
	n.Cut(limit)
	c := *p
	c.Limit, c.Local = n.Record()
	return &c
}

// Rebased says that the base's key holds what we published of the file, although
// the answer to that was lost.
type Rebased struct {
	File order.FileID
	Base oss.Object
}

func (*Rebased) kind() recordKind { return kindRebased }

func (r *Rebased) walk(c *coder) {
	c.uint(&r.File)
	c.object(&r.Base)
}

func (r *Rebased) apply(st *State) {
	if f := st.Files[r.File]; f != nil {
		st.rebase(f, r.Base)
	}
}

// rebase makes base, which was published of f since it was staged, the base of what is
// not local.
func (st *State) rebase(f *File, base oss.Object) {
	for _, p := range []**Partial{&f.Partial, &f.Vouched} {
		if *p != nil {
			with := **p
			with.Base, with.Tried = base, nil
			*p = &with
		}
	}
	st.displace(f)
}

// tries notes that the base's key may come to hold i, made of f.
func (st *State) tries(f *File, key string, i Intent) {
	for _, p := range []**Partial{&f.Partial, &f.Vouched} {
		if *p != nil && (*p).Base.Key == key && !slices.Contains((*p).Tried, i) {
			with := **p
			with.Tried = append(slices.Clone(with.Tried), i)
			*p = &with
		}
	}
}

// Elsewhere reports whether the object at key, of which k is believed, is needed for the
// content of f, and what is going to become of that key is not f's own doing. wanted says
// that the content is still to be published.
func (f *File) Elsewhere(key string, k *Key, wanted bool) bool {
	if f.restsElsewhere() && f.Partial.Base.Key == key {
		// What somebody else has replaced cannot be kept.
		return k == nil || len(k.Maybe) > 0 || SameBytes(k.Remote, f.Partial.Base)
	}
	return wanted && (!f.Staged || f.Gen == f.BaseGen) && f.Object.ETag != "" && f.Object.Key == key && f.Key != key
}

// restsElsewhere reports whether f lacks bytes, and its name does not keep the object that has
// them. What the disk has lost and put aside is never published, and holds back nothing.
func (f *File) restsElsewhere() bool {
	return f.Staged && f.Partial != nil && (f.Linked && f.Partial.Base.Key != f.Key || !f.Linked && !f.IsSuspect())
}

// DisplacedNow reports whether elsewhere is true of any key, or would be if f had a name, or
// whether f has left an object behind.
func (f *File) DisplacedNow() bool {
	if f.restsElsewhere() || f.LeftBehind().ETag != "" {
		return true
	}
	return (!f.Staged || f.Gen == f.BaseGen) && f.Object.ETag != "" && f.Object.Key != f.Key
}

// heldKeys returns the keys of which elsewhere may be true, and that of what f has left behind.
func (f *File) heldKeys() []string {
	keys := []string{f.Object.Key}
	if f.Partial != nil && f.Partial.Base.Key != f.Object.Key {
		keys = append(keys, f.Partial.Base.Key)
	}
	if left := f.LeftBehind(); left.ETag != "" && !slices.Contains(keys, left.Key) {
		keys = append(keys, left.Key)
	}
	return keys
}

// source returns the key of the object that f, or what it lacks, is to be copied from; ""
// if it has all of its bytes.
func (f *File) source() string {
	switch {
	case !f.Staged:
		return f.Object.Key
	case f.Partial != nil:
		return f.Partial.Base.Key
	}
	return ""
}

// Own is how many bytes of the content are staged, and not a base's.
func (f *File) Own() int64 {
	size := max(f.Size, 0)
	own := size
	if f.Partial != nil {
		for _, e := range f.Partial.Presence().Absent(0, size) {
			own -= e.Size
		}
	}
	return own
}

// Own returns the extents of size bytes that the staged file has.
func (p *Partial) Own(size int64) []presence.Extent {
	var own []presence.Extent
	at := int64(0)
	for _, e := range p.Presence().Absent(0, size) {
		if e.Off > at {
			own = append(own, presence.Extent{Off: at, Size: e.Off - at})
		}
		at = e.End()
	}
	if at < size {
		own = append(own, presence.Extent{Off: at, Size: size - at})
	}
	return own
}
