package state

import (
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// Begun says that an operation's request is about to be sent, and what the
// key may hold from now on.
type Begun struct {
	Op     uint64
	Gen    order.Generation
	Intent Intent
}

func (*Begun) kind() recordKind { return kindBegun }

func (r *Begun) walk(c *coder) {
	c.uint(&r.Op)
	c.uint(&r.Gen)
	r.Intent.walk(c)
}

func (i *Intent) walk(c *coder) {
	c.byte((*uint8)(&i.Kind))
	c.int(&i.Size)
	c.uint(&i.CRC)
}

// Done says that an operation is carried out, and what the key holds now;
// nothing if the object has no ETag.
type Done struct {
	Op     uint64
	Object oss.Object
	CRC    uint64
}

func (*Done) kind() recordKind { return kindDone }

func (r *Done) walk(c *coder) {
	c.uint(&r.Op)
	c.object(&r.Object)
	c.uint(&r.CRC)
}

// Undone says that a begun operation failed, perhaps after the deed.
type Undone struct{ Op uint64 }

func (*Undone) kind() recordKind { return kindUndone }

func (r *Undone) walk(c *coder) { c.uint(&r.Op) }

// Seen says what a key was found to hold, by one of our changes.
type Seen struct {
	Key    string
	Object oss.Object
}

func (*Seen) kind() recordKind { return kindSeen }

func (r *Seen) walk(c *coder) {
	c.string(&r.Key)
	c.object(&r.Object)
}

// Conflicted leaves a key to what somebody else has put there. A file goes
// to the name To; a deletion is given up.
type Conflicted struct {
	Op   uint64
	To   Place
	Time int64
	// Found is what the key holds.
	Found oss.Object
}

func (*Conflicted) kind() recordKind { return kindConflicted }

func (r *Conflicted) walk(c *coder) {
	c.uint(&r.Op)
	r.To.walk(c)
	c.int(&r.Time)
	c.object(&r.Found)
}

// Adopted turns the content from the staged file to the object that it was
// published as.
type Adopted struct{ File order.FileID }

func (*Adopted) kind() recordKind { return kindAdopted }

func (r *Adopted) walk(c *coder) { c.uint(&r.File) }

// Reverted gives up what was never committed.
type Reverted struct {
	File order.FileID
	Time int64
}

func (*Reverted) kind() recordKind { return kindReverted }

func (r *Reverted) walk(c *coder) {
	c.uint(&r.File)
	c.int(&r.Time)
}

// Released forgets a file that has no name and that nobody has open.
type Released struct{ File order.FileID }

func (*Released) kind() recordKind { return kindReleased }

func (r *Released) walk(c *coder) { c.uint(&r.File) }

// Forgotten leaves a name to the base tree, which shows it as it is.
type Forgotten struct{ Dir, Name string }

func (*Forgotten) kind() recordKind { return kindForgotten }

func (r *Forgotten) walk(c *coder) {
	c.string(&r.Dir)
	c.string(&r.Name)
}

// UploadBegun remembers a multipart upload, so that it is resumed or aborted.
type UploadBegun struct{ Upload Upload }

func (*UploadBegun) kind() recordKind { return kindUploadBegun }

func (r *UploadBegun) walk(c *coder) { r.Upload.walk(c) }

func (u *Upload) walk(c *coder) {
	c.string(&u.Key)
	c.string(&u.ID)
	c.uint(&u.File)
	c.uint(&u.Options)
	c.int(&u.PartSize)
}

// UploadEnded forgets one that is completed or aborted.
type UploadEnded struct{ ID string }

func (*UploadEnded) kind() recordKind { return kindUploadEnded }

func (r *UploadEnded) walk(c *coder) { c.string(&r.ID) }

// Lost gives up a file whose content was an object that somebody removed.
type Lost struct {
	File order.FileID
	Time int64
	Path string
}

func (*Lost) kind() recordKind { return kindLost }

func (r *Lost) walk(c *coder) {
	c.uint(&r.File)
	c.int(&r.Time)
	c.string(&r.Path)
}

// The snap records are a state as compaction writes it.
type snapCounters struct{ File, Op, Order uint64 }

func (*snapCounters) kind() recordKind { return kindSnapCounters }

func (r *snapCounters) walk(c *coder) {
	c.uint(&r.File)
	c.uint(&r.Op)
	c.uint(&r.Order)
}

// SnapFile is a file as compaction writes it.
type SnapFile struct {
	File File
	// Inline is the content, if HasInline.
	HasInline bool
	Inline    []byte
}

func (*SnapFile) kind() recordKind { return kindSnapFile }

func (r *SnapFile) walk(c *coder) {
	r.File.walk(c)
	c.bool(&r.HasInline)
	c.bytes(&r.Inline)
}

func (f *File) walk(c *coder) {
	c.uint(&f.ID)
	c.string(&f.Dir)
	c.string(&f.Name)
	c.string(&f.Key)
	c.bool(&f.Linked)
	c.bool(&f.Symlink)
	c.uint(&f.Gen)
	c.int(&f.Size)
	c.int(&f.Stamp)
	c.uint(&f.Durable)
	c.uint(&f.Suspect)
	c.uint(&f.Inline)
	c.bool(&f.Staged)
	c.uint(&f.BaseGen)
	c.object(&f.Object)
	c.object(&f.Origin)
	c.uint(&f.PubGen)
	c.object(&f.Published)
	c.uint(&f.PubCRC)
	c.attrs(&f.Attr)
	c.attrs(&f.PubAttr)
}

type snapName struct {
	Dir, Name string
	Value     Name
}

func (*snapName) kind() recordKind { return kindSnapName }

func (r *snapName) walk(c *coder) {
	c.string(&r.Dir)
	c.string(&r.Name)
	c.byte((*uint8)(&r.Value.Kind))
	c.uint(&r.Value.File)
	c.string(&r.Value.Key)
}

type snapOp struct{ Op order.Operation }

func (*snapOp) kind() recordKind { return kindSnapOp }

func (r *snapOp) walk(c *coder) {
	o := &r.Op
	c.uint(&o.ID)
	c.uint(&o.Order)
	c.uint(&o.After)
	c.byte((*uint8)(&o.Kind))
	c.string(&o.Key)
	c.string(&o.Dir)
	c.string(&o.Name)
	c.uint(&o.File)
	c.int(&o.At)
	c.int(&o.Again)
	c.bool(&o.Barrier)
	c.bool(&o.Begun)
	c.uint(&o.Gen)
}

type snapKey struct {
	Key   string
	State Key
}

func (*snapKey) kind() recordKind { return kindSnapKey }

func (r *snapKey) walk(c *coder) {
	c.string(&r.Key)
	c.object(&r.State.Remote)
	n := uint64(len(r.State.Maybe))
	c.uint(&n)
	if c.decoding {
		r.State.Maybe = nil
		for ; n > 0 && c.err == nil; n-- {
			var i Intent
			i.walk(c)
			r.State.Maybe = append(r.State.Maybe, i)
		}
	} else {
		for i := range r.State.Maybe {
			r.State.Maybe[i].walk(c)
		}
	}
	c.bool(&r.State.Shown)
	c.uint(&r.State.Pending)
	c.uint(&r.State.Flight)
}

type snapConflict struct{ Conflict Conflict }

func (*snapConflict) kind() recordKind { return kindSnapConflict }

func (r *snapConflict) walk(c *coder) {
	c.string(&r.Conflict.Path)
	c.string(&r.Conflict.Kept)
	c.int(&r.Conflict.At)
}
