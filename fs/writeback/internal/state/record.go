package state

import (
	"fmt"
	"io"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/oss"
)

// recordKind is the first byte of a record. A number, once used, never changes its
// meaning.
type recordKind uint8

const (
	kindBoot recordKind = iota + 1
	kindGroup
	kindCreated
	kindOpened
	kindTaken
	kindClosed
	kindDurable
	kindSuspect
	kindAttr
	kindRenamed
	kindUnlinked
	kindMadeDir
	kindRemovedDir
	kindBegun
	kindDone
	kindUndone
	kindSeen
	kindConflicted
	kindAdopted
	kindReverted
	kindReleased
	kindForgotten
	kindUploadBegun
	kindUploadEnded
	kindLost
	kindSnapCounters
	kindSnapFile
	kindSnapName
	kindSnapOp
	kindSnapKey
	kindSnapConflict
	kindIdentity
	kindEmptied
	kindSnapLoss
	kindKept
	kindPlaced
	kindPartial
	kindCut
	kindRebased
)

// Those of directories.
const (
	kindDirAttr recordKind = iota + 41
	kindSnapDirAttr
)

// Those of extended attributes.
const (
	kindXAttr recordKind = iota + 44
	kindSnapXAttrs
)

// That of what is published while it is renamed.
const kindCarried recordKind = 46

// That of what a renaming leaves behind.
const kindPutOff recordKind = 47

// Record is one change of the state.
type Record interface {
	kind() recordKind
	// walk passes every field to c.
	walk(c *coder)
	// apply changes st; see apply.go.
	apply(st *State)
}

// newRecord returns an empty record of a kind, or nil if there is none.
func newRecord(k recordKind) Record {
	switch k {
	case kindBoot:
		return &Boot{}
	case kindGroup:
		return &Group{}
	case kindCreated:
		return &Created{}
	case kindOpened:
		return &Opened{}
	case kindTaken:
		return &Taken{}
	case kindClosed:
		return &Closed{}
	case kindDurable:
		return &Durable{}
	case kindSuspect:
		return &Suspect{}
	case kindAttr:
		return &SetAttr{}
	case kindRenamed:
		return &Renamed{}
	case kindUnlinked:
		return &Unlinked{}
	case kindMadeDir:
		return &MadeDir{}
	case kindRemovedDir:
		return &RemovedDir{}
	case kindBegun:
		return &Begun{}
	case kindDone:
		return &Done{}
	case kindUndone:
		return &Undone{}
	case kindSeen:
		return &Seen{}
	case kindConflicted:
		return &Conflicted{}
	case kindAdopted:
		return &Adopted{}
	case kindReverted:
		return &Reverted{}
	case kindReleased:
		return &Released{}
	case kindForgotten:
		return &Forgotten{}
	case kindUploadBegun:
		return &UploadBegun{}
	case kindUploadEnded:
		return &UploadEnded{}
	case kindLost:
		return &Lost{}
	case kindSnapCounters:
		return &snapCounters{}
	case kindSnapFile:
		return &SnapFile{}
	case kindSnapName:
		return &snapName{}
	case kindSnapOp:
		return &snapOp{}
	case kindSnapKey:
		return &snapKey{}
	case kindSnapConflict:
		return &snapConflict{}
	case kindIdentity:
		return &Identified{}
	case kindEmptied:
		return &Emptied{}
	case kindSnapLoss:
		return &snapLoss{}
	case kindKept:
		return &Kept{}
	case kindPlaced:
		return &Placed{}
	case kindPartial:
		return &Lacks{}
	case kindCut:
		return &Cut{}
	case kindRebased:
		return &Rebased{}
	case kindDirAttr:
		return &SetDirAttr{}
	case kindSnapDirAttr:
		return &snapDirAttr{}
	case kindXAttr:
		return &SetXAttr{}
	case kindSnapXAttrs:
		return &snapXAttrs{}
	case kindCarried:
		return &Carried{}
	case kindPutOff:
		return &PutOff{}
	}
	return nil
}

// AppendBody appends kind and fields of r.
func AppendBody(b []byte, r Record) []byte {
	c := coder{data: append(b, byte(r.kind()))}
	r.walk(&c)
	return c.data
}

// Frame appends r as it stands in the journal.
func Frame(b []byte, r Record) []byte {
	return journal.Frame(b, func(b []byte) []byte { return AppendBody(b, r) })
}

// Replay gives each record of a journal file to apply, as [journal.Replay] does.
func Replay(file io.ReaderAt, size int64, apply func(r Record, at int64) error) (good, rest int64, err error) {
	return journal.Replay(file, size, func(body []byte, at int64) error {
		r, err := DecodeBody(body)
		if err != nil {
			// Its checksum is right: somebody else's record.
			return fmt.Errorf("%s at %d: %w: use the pailfs that wrote it", journal.Name, at, err)
		}
		return apply(r, at)
	})
}

// DecodeBody reads what AppendBody wrote.
func DecodeBody(b []byte) (Record, error) {
	if len(b) == 0 {
		return nil, errShort
	}
	r := newRecord(recordKind(b[0]))
	if r == nil {
		return nil, fmt.Errorf("record of unknown kind %d", b[0])
	}
	c := coder{data: b[1:], decoding: true}
	r.walk(&c)
	if c.err == nil && len(c.data) > 0 {
		c.err = fmt.Errorf("record of kind %d has %d bytes too many", b[0], len(c.data))
	}
	return r, c.err
}

// Place is a name and its key; base is what the base tree has there, and counts
// only where the space knows nothing of the key yet.
type Place struct {
	Dir, Name, Key string
	Base           oss.Object
}

func (p *Place) walk(c *coder) {
	c.string(&p.Dir)
	c.string(&p.Name)
	c.string(&p.Key)
	c.object(&p.Base)
}

// Identified is the first record of a journal.
type Identified struct{ Identity Identity }

func (*Identified) kind() recordKind { return kindIdentity }

func (r *Identified) walk(c *coder) {
	c.string(&r.Identity.Endpoint)
	c.string(&r.Identity.Bucket)
	c.string(&r.Identity.Prefix)
}

// Boot begins a run of the daemon: what was in flight is not any more.
type Boot struct{ ID string }

func (*Boot) kind() recordKind { return kindBoot }

func (r *Boot) walk(c *coder) { c.string(&r.ID) }

// Group is several records that happen together or not at all. Its
// publications do not wait for one another, but its deletions for the rest.
type Group struct{ Records []Record }

func (*Group) kind() recordKind { return kindGroup }

func (r *Group) walk(c *coder) {
	n := uint64(len(r.Records))
	c.uint(&n)
	if c.decoding {
		for ; n > 0 && c.err == nil; n-- {
			var body []byte
			c.bytes(&body)
			if c.err != nil {
				return
			}
			if len(body) > 0 && recordKind(body[0]) == kindGroup {
				c.err = fmt.Errorf("group within a group")
				return
			}
			part, err := DecodeBody(body)
			if err != nil {
				c.err = err
				return
			}
			r.Records = append(r.Records, part)
		}
		return
	}
	for _, part := range r.Records {
		body := AppendBody(nil, part)
		c.bytes(&body)
	}
}

// Created makes a new file, which has no content that counts yet.
type Created struct {
	File    order.FileID
	At      Place
	Symlink bool
	Attr    attrs.Attrs
}

func (*Created) kind() recordKind { return kindCreated }

func (r *Created) walk(c *coder) {
	c.uint(&r.File)
	r.At.walk(c)
	c.bool(&r.Symlink)
	c.attrs(&r.Attr)
}

// Opened makes a file of an object of the base tree.
type Opened struct {
	File    order.FileID
	At      Place
	Symlink bool
	Attr    attrs.Attrs
}

func (*Opened) kind() recordKind { return kindOpened }

func (r *Opened) walk(c *coder) {
	c.uint(&r.File)
	r.At.walk(c)
	c.bool(&r.Symlink)
	c.attrs(&r.Attr)
}

// Taken turns the content from an object to the staged file.
type Taken struct {
	File order.FileID
	// Size and Stamp are what the staged file has if nothing is written; Size is -1 if
	// it is not the content of the object.
	Size, Stamp int64
}

func (*Taken) kind() recordKind { return kindTaken }

func (r *Taken) walk(c *coder) {
	c.uint(&r.File)
	c.int(&r.Size)
	c.int(&r.Stamp)
}

// Closed commits the content that the staged file has.
type Closed struct {
	File  order.FileID
	Gen   order.Generation
	Size  int64
	Stamp int64
	At    int64
	// Keep leaves a publication that waits already in its place.
	Keep bool
	// Inline is the content, if HasInline.
	HasInline bool
	Inline    []byte
}

func (*Closed) kind() recordKind { return kindClosed }

func (r *Closed) walk(c *coder) {
	c.uint(&r.File)
	c.uint(&r.Gen)
	c.int(&r.Size)
	c.int(&r.Stamp)
	c.int(&r.At)
	c.bool(&r.Keep)
	c.bool(&r.HasInline)
	c.bytes(&r.Inline)
}

// Durable says that a generation is on the disk.
type Durable struct {
	File order.FileID
	Gen  order.Generation
}

func (*Durable) kind() recordKind { return kindDurable }

func (r *Durable) walk(c *coder) { c.uint(&r.File); c.uint(&r.Gen) }

// Suspect says that nobody knows what the disk has of a generation. After a
// loss of power the file loses its name as well, and is kept aside.
type Suspect struct {
	File  order.FileID
	Gen   order.Generation
	Aside bool
}

func (*Suspect) kind() recordKind { return kindSuspect }

func (r *Suspect) walk(c *coder) {
	c.uint(&r.File)
	c.uint(&r.Gen)
	c.bool(&r.Aside)
}

// Emptied says that nothing is left of a suspect content: what is written from
// now on is all new.
type Emptied struct{ File order.FileID }

func (*Emptied) kind() recordKind { return kindEmptied }

func (r *Emptied) walk(c *coder) { c.uint(&r.File) }

// SetAttr changes attributes.
type SetAttr struct {
	File  order.FileID
	Attr  attrs.Attrs
	Stamp int64
	At    int64
}

func (*SetAttr) kind() recordKind { return kindAttr }

func (r *SetAttr) walk(c *coder) {
	c.uint(&r.File)
	c.attrs(&r.Attr)
	c.int(&r.Stamp)
	c.int(&r.At)
}

// Renamed moves a file of the space to another name, over whatever is there.
type Renamed struct {
	File order.FileID
	To   Place
	Time int64
}

func (*Renamed) kind() recordKind { return kindRenamed }

func (r *Renamed) walk(c *coder) {
	c.uint(&r.File)
	r.To.walk(c)
	c.int(&r.Time)
}

// Unlinked removes the name of a file or of a base object.
type Unlinked struct {
	At   Place
	Time int64
}

func (*Unlinked) kind() recordKind { return kindUnlinked }

func (r *Unlinked) walk(c *coder) {
	r.At.walk(c)
	c.int(&r.Time)
}

// MadeDir makes a directory. If Exists, it is one of the base tree, which
// would vanish with its last object.
type MadeDir struct {
	At     Place
	Time   int64
	Exists bool
}

func (*MadeDir) kind() recordKind { return kindMadeDir }

func (r *MadeDir) walk(c *coder) {
	r.At.walk(c)
	c.int(&r.Time)
	c.bool(&r.Exists)
}

// RemovedDir removes an empty directory.
type RemovedDir struct {
	At   Place
	Time int64
}

func (*RemovedDir) kind() recordKind { return kindRemovedDir }

func (r *RemovedDir) walk(c *coder) {
	r.At.walk(c)
	c.int(&r.Time)
}

// OneOf returns the record that is all of them.
func OneOf(records []Record) Record {
	if len(records) == 1 {
		return records[0]
	}
	return &Group{Records: records}
}
