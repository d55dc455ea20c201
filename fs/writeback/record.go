package writeback

import (
	"fmt"
	"io"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
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

// record is one change of the state.
type record interface {
	kind() recordKind
	// walk passes every field to c.
	walk(c *coder)
	// apply changes st; see apply.go.
	apply(st *state)
}

// newRecord returns an empty record of a kind, or nil if there is none.
func newRecord(k recordKind) record {
	switch k {
	case kindBoot:
		return &bootRecord{}
	case kindGroup:
		return &groupRecord{}
	case kindCreated:
		return &createdRecord{}
	case kindOpened:
		return &openedRecord{}
	case kindTaken:
		return &takenRecord{}
	case kindClosed:
		return &closedRecord{}
	case kindDurable:
		return &durableRecord{}
	case kindSuspect:
		return &suspectRecord{}
	case kindAttr:
		return &attrRecord{}
	case kindRenamed:
		return &renamedRecord{}
	case kindUnlinked:
		return &unlinkedRecord{}
	case kindMadeDir:
		return &madeDirRecord{}
	case kindRemovedDir:
		return &removedDirRecord{}
	case kindBegun:
		return &begunRecord{}
	case kindDone:
		return &doneRecord{}
	case kindUndone:
		return &undoneRecord{}
	case kindSeen:
		return &seenRecord{}
	case kindConflicted:
		return &conflictedRecord{}
	case kindAdopted:
		return &adoptedRecord{}
	case kindReverted:
		return &revertedRecord{}
	case kindReleased:
		return &releasedRecord{}
	case kindForgotten:
		return &forgottenRecord{}
	case kindUploadBegun:
		return &uploadBegunRecord{}
	case kindUploadEnded:
		return &uploadEndedRecord{}
	case kindLost:
		return &lostRecord{}
	case kindSnapCounters:
		return &snapCounters{}
	case kindSnapFile:
		return &snapFile{}
	case kindSnapName:
		return &snapName{}
	case kindSnapOp:
		return &snapOp{}
	case kindSnapKey:
		return &snapKey{}
	case kindSnapConflict:
		return &snapConflict{}
	case kindIdentity:
		return &identityRecord{}
	case kindEmptied:
		return &emptiedRecord{}
	case kindSnapLoss:
		return &snapLoss{}
	case kindKept:
		return &keptRecord{}
	case kindPlaced:
		return &placedRecord{}
	case kindPartial:
		return &partialRecord{}
	case kindCut:
		return &cutRecord{}
	case kindRebased:
		return &rebasedRecord{}
	case kindDirAttr:
		return &dirAttrRecord{}
	case kindSnapDirAttr:
		return &snapDirAttr{}
	case kindXAttr:
		return &xattrRecord{}
	case kindSnapXAttrs:
		return &snapXAttrs{}
	case kindCarried:
		return &carriedRecord{}
	case kindPutOff:
		return &putOffRecord{}
	}
	return nil
}

// appendBody appends kind and fields of r.
func appendBody(b []byte, r record) []byte {
	c := coder{data: append(b, byte(r.kind()))}
	r.walk(&c)
	return c.data
}

// frame appends r as it stands in the journal.
func frame(b []byte, r record) []byte {
	return journal.Frame(b, func(b []byte) []byte { return appendBody(b, r) })
}

// replay gives each record of a journal file to apply, as [journal.Replay] does.
func replay(file io.ReaderAt, size int64, apply func(r record, at int64) error) (good, rest int64, err error) {
	return journal.Replay(file, size, func(body []byte, at int64) error {
		r, err := decodeBody(body)
		if err != nil {
			// Its checksum is right: somebody else's record.
			return fmt.Errorf("%s at %d: %w: use the pailfs that wrote it", journal.Name, at, err)
		}
		return apply(r, at)
	})
}

// decodeBody reads what appendBody wrote.
func decodeBody(b []byte) (record, error) {
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

// place is a name and its key; base is what the base tree has there, and counts
// only where the space knows nothing of the key yet.
type place struct {
	Dir, Name, Key string
	Base           oss.Object
}

func (p *place) walk(c *coder) {
	c.string(&p.Dir)
	c.string(&p.Name)
	c.string(&p.Key)
	c.object(&p.Base)
}

// identityRecord is the first record of a journal.
type identityRecord struct{ Identity identity }

func (*identityRecord) kind() recordKind { return kindIdentity }
func (r *identityRecord) walk(c *coder) {
	c.string(&r.Identity.Endpoint)
	c.string(&r.Identity.Bucket)
	c.string(&r.Identity.Prefix)
}

// bootRecord begins a run of the daemon: what was in flight is not any more.
type bootRecord struct{ ID string }

func (*bootRecord) kind() recordKind { return kindBoot }
func (r *bootRecord) walk(c *coder)  { c.string(&r.ID) }

// groupRecord is several records that happen together or not at all. Its
// publications do not wait for one another, but its deletions for the rest.
type groupRecord struct{ Records []record }

func (*groupRecord) kind() recordKind { return kindGroup }
func (r *groupRecord) walk(c *coder) {
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
			part, err := decodeBody(body)
			if err != nil {
				c.err = err
				return
			}
			r.Records = append(r.Records, part)
		}
		return
	}
	for _, part := range r.Records {
		body := appendBody(nil, part)
		c.bytes(&body)
	}
}

// createdRecord makes a new file, which has no content that counts yet.
type createdRecord struct {
	File    fileID
	At      place
	Symlink bool
	Attr    attrs.Attrs
}

func (*createdRecord) kind() recordKind { return kindCreated }
func (r *createdRecord) walk(c *coder) {
	c.uint(&r.File)
	r.At.walk(c)
	c.bool(&r.Symlink)
	c.attrs(&r.Attr)
}

// openedRecord makes a file of an object of the base tree.
type openedRecord struct {
	File    fileID
	At      place
	Symlink bool
	Attr    attrs.Attrs
}

func (*openedRecord) kind() recordKind { return kindOpened }
func (r *openedRecord) walk(c *coder) {
	c.uint(&r.File)
	r.At.walk(c)
	c.bool(&r.Symlink)
	c.attrs(&r.Attr)
}

// takenRecord turns the content from an object to the staged file.
type takenRecord struct {
	File fileID
	// Size and Stamp are what the staged file has if nothing is written; Size is -1 if
	// it is not the content of the object.
	Size, Stamp int64
}

func (*takenRecord) kind() recordKind { return kindTaken }
func (r *takenRecord) walk(c *coder) {
	c.uint(&r.File)
	c.int(&r.Size)
	c.int(&r.Stamp)
}

// closedRecord commits the content that the staged file has.
type closedRecord struct {
	File  fileID
	Gen   generation
	Size  int64
	Stamp int64
	At    int64
	// Keep leaves a publication that waits already in its place.
	Keep bool
	// Inline is the content, if HasInline.
	HasInline bool
	Inline    []byte
}

func (*closedRecord) kind() recordKind { return kindClosed }
func (r *closedRecord) walk(c *coder) {
	c.uint(&r.File)
	c.uint(&r.Gen)
	c.int(&r.Size)
	c.int(&r.Stamp)
	c.int(&r.At)
	c.bool(&r.Keep)
	c.bool(&r.HasInline)
	c.bytes(&r.Inline)
}

// durableRecord says that a generation is on the disk.
type durableRecord struct {
	File fileID
	Gen  generation
}

func (*durableRecord) kind() recordKind { return kindDurable }
func (r *durableRecord) walk(c *coder)  { c.uint(&r.File); c.uint(&r.Gen) }

// suspectRecord says that nobody knows what the disk has of a generation. After a
// loss of power the file loses its name as well, and is kept aside.
type suspectRecord struct {
	File  fileID
	Gen   generation
	Aside bool
}

func (*suspectRecord) kind() recordKind { return kindSuspect }
func (r *suspectRecord) walk(c *coder) {
	c.uint(&r.File)
	c.uint(&r.Gen)
	c.bool(&r.Aside)
}

// emptiedRecord says that nothing is left of a suspect content: what is written from
// now on is all new.
type emptiedRecord struct{ File fileID }

func (*emptiedRecord) kind() recordKind { return kindEmptied }
func (r *emptiedRecord) walk(c *coder)  { c.uint(&r.File) }

// attrRecord changes attributes.
type attrRecord struct {
	File  fileID
	Attr  attrs.Attrs
	Stamp int64
	At    int64
}

func (*attrRecord) kind() recordKind { return kindAttr }
func (r *attrRecord) walk(c *coder) {
	c.uint(&r.File)
	c.attrs(&r.Attr)
	c.int(&r.Stamp)
	c.int(&r.At)
}

// renamedRecord moves a file of the space to another name, over whatever is there.
type renamedRecord struct {
	File fileID
	To   place
	Time int64
}

func (*renamedRecord) kind() recordKind { return kindRenamed }
func (r *renamedRecord) walk(c *coder) {
	c.uint(&r.File)
	r.To.walk(c)
	c.int(&r.Time)
}

// unlinkedRecord removes the name of a file or of a base object.
type unlinkedRecord struct {
	At   place
	Time int64
}

func (*unlinkedRecord) kind() recordKind { return kindUnlinked }
func (r *unlinkedRecord) walk(c *coder) {
	r.At.walk(c)
	c.int(&r.Time)
}

// madeDirRecord makes a directory. If Exists, it is one of the base tree, which
// would vanish with its last object.
type madeDirRecord struct {
	At     place
	Time   int64
	Exists bool
}

func (*madeDirRecord) kind() recordKind { return kindMadeDir }
func (r *madeDirRecord) walk(c *coder) {
	r.At.walk(c)
	c.int(&r.Time)
	c.bool(&r.Exists)
}

// removedDirRecord removes an empty directory.
type removedDirRecord struct {
	At   place
	Time int64
}

func (*removedDirRecord) kind() recordKind { return kindRemovedDir }
func (r *removedDirRecord) walk(c *coder) {
	r.At.walk(c)
	c.int(&r.Time)
}

// oneOf returns the record that is all of them.
func oneOf(records []record) record {
	if len(records) == 1 {
		return records[0]
	}
	return &groupRecord{Records: records}
}
