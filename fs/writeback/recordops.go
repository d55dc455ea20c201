package writeback

import (
	"github.com/pailfs/pailfs/oss"
)

// begunRecord says that an operation's request is about to be sent, and what the
// key may hold from now on.
type begunRecord struct {
	Op     uint64
	Gen    generation
	Intent intent
}

func (*begunRecord) kind() recordKind { return kindBegun }
func (r *begunRecord) walk(c *coder) {
	c.uint(&r.Op)
	c.uint(&r.Gen)
	r.Intent.walk(c)
}

func (i *intent) walk(c *coder) {
	c.byte((*uint8)(&i.Kind))
	c.int(&i.Size)
	c.uint(&i.CRC)
}

// doneRecord says that an operation is carried out, and what the key holds now;
// nothing if the object has no ETag.
type doneRecord struct {
	Op     uint64
	Object oss.Object
	CRC    uint64
}

func (*doneRecord) kind() recordKind { return kindDone }
func (r *doneRecord) walk(c *coder) {
	c.uint(&r.Op)
	c.object(&r.Object)
	c.uint(&r.CRC)
}

// undoneRecord says that a begun operation failed, perhaps after the deed.
type undoneRecord struct{ Op uint64 }

func (*undoneRecord) kind() recordKind { return kindUndone }
func (r *undoneRecord) walk(c *coder)  { c.uint(&r.Op) }

// seenRecord says what a key was found to hold, by one of our changes.
type seenRecord struct {
	Key    string
	Object oss.Object
}

func (*seenRecord) kind() recordKind { return kindSeen }
func (r *seenRecord) walk(c *coder) {
	c.string(&r.Key)
	c.object(&r.Object)
}

// conflictedRecord leaves a key to what somebody else has put there. A file goes
// to the name To; a deletion is given up.
type conflictedRecord struct {
	Op   uint64
	To   place
	Time int64
	// Found is what the key holds.
	Found oss.Object
}

func (*conflictedRecord) kind() recordKind { return kindConflicted }
func (r *conflictedRecord) walk(c *coder) {
	c.uint(&r.Op)
	r.To.walk(c)
	c.int(&r.Time)
	c.object(&r.Found)
}

// adoptedRecord turns the content from the staged file to the object that it was
// published as.
type adoptedRecord struct{ File fileID }

func (*adoptedRecord) kind() recordKind { return kindAdopted }
func (r *adoptedRecord) walk(c *coder)  { c.uint(&r.File) }

// revertedRecord gives up what was never committed.
type revertedRecord struct {
	File fileID
	Time int64
}

func (*revertedRecord) kind() recordKind { return kindReverted }
func (r *revertedRecord) walk(c *coder) {
	c.uint(&r.File)
	c.int(&r.Time)
}

// releasedRecord forgets a file that has no name and that nobody has open.
type releasedRecord struct{ File fileID }

func (*releasedRecord) kind() recordKind { return kindReleased }
func (r *releasedRecord) walk(c *coder)  { c.uint(&r.File) }

// forgottenRecord leaves a name to the base tree, which shows it as it is.
type forgottenRecord struct{ Dir, Name string }

func (*forgottenRecord) kind() recordKind { return kindForgotten }
func (r *forgottenRecord) walk(c *coder) {
	c.string(&r.Dir)
	c.string(&r.Name)
}

// uploadBegunRecord remembers a multipart upload, so that it is resumed or aborted.
type uploadBegunRecord struct{ Upload upload }

func (*uploadBegunRecord) kind() recordKind { return kindUploadBegun }
func (r *uploadBegunRecord) walk(c *coder)  { r.Upload.walk(c) }

func (u *upload) walk(c *coder) {
	c.string(&u.Key)
	c.string(&u.ID)
	c.uint(&u.File)
	c.uint(&u.Options)
	c.int(&u.PartSize)
}

// uploadEndedRecord forgets one that is completed or aborted.
type uploadEndedRecord struct{ ID string }

func (*uploadEndedRecord) kind() recordKind { return kindUploadEnded }
func (r *uploadEndedRecord) walk(c *coder)  { c.string(&r.ID) }

// lostRecord gives up a file whose content was an object that somebody removed.
type lostRecord struct {
	File fileID
	Time int64
	Path string
}

func (*lostRecord) kind() recordKind { return kindLost }
func (r *lostRecord) walk(c *coder) {
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

type snapFile struct {
	File fileState
	// Inline is the content, if HasInline.
	HasInline bool
	Inline    []byte
}

func (*snapFile) kind() recordKind { return kindSnapFile }
func (r *snapFile) walk(c *coder) {
	r.File.walk(c)
	c.bool(&r.HasInline)
	c.bytes(&r.Inline)
}

func (f *fileState) walk(c *coder) {
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
	Value     name
}

func (*snapName) kind() recordKind { return kindSnapName }
func (r *snapName) walk(c *coder) {
	c.string(&r.Dir)
	c.string(&r.Name)
	c.byte((*uint8)(&r.Value.Kind))
	c.uint(&r.Value.File)
	c.string(&r.Value.Key)
}

type snapOp struct{ Op operation }

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
	State keyState
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
			var i intent
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

type snapConflict struct{ Conflict conflict }

func (*snapConflict) kind() recordKind { return kindSnapConflict }
func (r *snapConflict) walk(c *coder) {
	c.string(&r.Conflict.Path)
	c.string(&r.Conflict.Kept)
	c.int(&r.Conflict.At)
}
