package snapfile

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// Row is what a file holds of one name of a directory.
type Row struct {
	// Item is the part of a key after the directory's prefix: without a slash for an
	// object, empty for the object whose key is the prefix, and ending with its only
	// slash for a directory, of which nothing else is held.
	Item    []byte
	Size    int64
	ETag    ETag
	ModTime time.Time
	// Symlink says that the object is a symlink object.
	Symlink bool
	// CRC64 is the object's checksum, if HasCRC64.
	CRC64    uint64
	HasCRC64 bool
	// Attr is nil if nothing is known.
	Attr *Attr
}

// Directory reports whether the row is a directory's.
func (r *Row) Directory() bool { return isDirectory(r.Item) }

// Marker reports whether the row only says that its directory exists.
func (r *Row) Marker() bool { return len(r.Item) == 0 && r.Size == 0 && !r.Symlink }

func isDirectory(item []byte) bool { return len(item) > 0 && item[len(item)-1] == '/' }

// AttrSet is a set of attributes.
type AttrSet uint8

// The attributes.
const (
	AttrMode AttrSet = 1 << iota
	AttrUID
	AttrGID
	AttrMTime
	AttrTarget
	attrUser
	attrAll = 1<<iota - 1
)

// Attr is what is known of an object beyond a listing.
type Attr struct {
	// Known says which of the following five are known.
	Known AttrSet
	// Mode holds permission bits, as chmod(2) takes them. Those of a link whose target
	// is the object's content have the type of a link above them (0120000).
	Mode     uint32
	UID, GID uint32
	// MTime is the time of modification that the object's writer gave it.
	MTime time.Time
	// Target is the key that a symlink object names. Of a link whose target is the
	// object's content it is what readlink(2) gives.
	Target string
	// User holds user metadata, sorted by name.
	User []UserAttr
}

// UserAttr is one piece of user metadata.
type UserAttr struct{ Name, Value string }

// Equal reports whether a and b say the same.
func (a *Attr) Equal(b *Attr) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Known == b.Known && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID &&
		a.MTime.Equal(b.MTime) && a.Target == b.Target && slices.Equal(a.User, b.User)
}

// Normal returns a as a file holds it: what is not known is zero, times are UTC,
// and it is nil if nothing is known.
func (a *Attr) Normal() *Attr {
	if a == nil || (a.Known == 0 && len(a.User) == 0) {
		return nil
	}
	n := Attr{Known: a.Known}
	if a.Known&AttrMode != 0 {
		n.Mode = a.Mode
	}
	if a.Known&AttrUID != 0 {
		n.UID = a.UID
	}
	if a.Known&AttrGID != 0 {
		n.GID = a.GID
	}
	if a.Known&AttrMTime != 0 {
		n.MTime = time.Unix(a.MTime.Unix(), int64(a.MTime.Nanosecond())).UTC()
	}
	if a.Known&AttrTarget != 0 {
		n.Target = a.Target
	}
	n.User = slices.Clone(a.User)
	slices.SortFunc(n.User, func(x, y UserAttr) int {
		switch {
		case x.Name < y.Name:
			return -1
		case x.Name > y.Name:
			return 1
		}
		return 0
	})
	return &n
}

// AppendAttr appends the encoded form of a, which must be normal and not nil.
func AppendAttr(b []byte, a *Attr) []byte {
	known := a.Known
	if len(a.User) > 0 {
		known |= attrUser
	}
	b = append(b, byte(known))
	if known&AttrMode != 0 {
		b = binary.AppendUvarint(b, uint64(a.Mode))
	}
	if known&AttrUID != 0 {
		b = binary.AppendUvarint(b, uint64(a.UID))
	}
	if known&AttrGID != 0 {
		b = binary.AppendUvarint(b, uint64(a.GID))
	}
	if known&AttrMTime != 0 {
		b = binary.AppendVarint(b, a.MTime.Unix())
		b = binary.AppendUvarint(b, uint64(a.MTime.Nanosecond()))
	}
	if known&AttrTarget != 0 {
		b = appendText(b, a.Target)
	}
	if known&attrUser != 0 {
		b = binary.AppendUvarint(b, uint64(len(a.User)))
		for _, u := range a.User {
			b = appendText(appendText(b, u.Name), u.Value)
		}
	}
	return b
}

// CutAttr decodes what AppendAttr appended and returns what follows it. ok is
// false if b does not begin with attributes.
func CutAttr(b []byte) (a *Attr, rest []byte, ok bool) {
	in := input{b: b}
	a = in.attr()
	return a, in.b, !in.bad
}

// attr decodes the attributes that come next.
func (in *input) attr() *Attr {
	var a Attr
	known := AttrSet(in.byte())
	if known == 0 || known&^attrAll != 0 {
		in.fail()
		return nil
	}
	a.Known = known &^ attrUser
	if known&AttrMode != 0 {
		a.Mode = uint32(in.length(math.MaxUint32))
	}
	if known&AttrUID != 0 {
		a.UID = uint32(in.length(math.MaxUint32))
	}
	if known&AttrGID != 0 {
		a.GID = uint32(in.length(math.MaxUint32))
	}
	if known&AttrMTime != 0 {
		seconds := in.varint()
		a.MTime = time.Unix(seconds, int64(in.length(999_999_999))).UTC()
	}
	if known&AttrTarget != 0 {
		a.Target = in.text(MaxAttr)
	}
	if known&attrUser != 0 {
		n := in.length(MaxAttr)
		if n == 0 {
			in.fail()
		}
		for ; n > 0 && !in.bad; n-- {
			name := in.text(MaxAttr)
			a.User = append(a.User, UserAttr{Name: name, Value: in.text(MaxAttr)})
		}
	}
	if in.bad {
		return nil
	}
	return &a
}

// Times are held as numbers that are ordered as they are; the zero time is 0.

func timeNumber(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.Unix()) ^ 1<<63
}

func numberTime(v uint64) time.Time {
	if v == 0 {
		return time.Time{}
	}
	return time.Unix(int64(v^1<<63), 0).UTC()
}
