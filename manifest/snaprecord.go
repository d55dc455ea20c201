package manifest

import (
	"fmt"
	"time"

	"github.com/pailfs/pailfs/manifest/snapfile"
	"github.com/pailfs/pailfs/oss"
)

// Attr is what a manifest knows of an object beyond a listing.
type Attr = snapfile.Attr

// UserAttr is one piece of user metadata.
type UserAttr = snapfile.UserAttr

// AttrSet says which attributes are known.
type AttrSet = snapfile.AttrSet

// The attributes that may be known, for [Attr.Known].
const (
	AttrMode   = snapfile.AttrMode
	AttrUID    = snapfile.AttrUID
	AttrGID    = snapfile.AttrGID
	AttrMTime  = snapfile.AttrMTime
	AttrTarget = snapfile.AttrTarget
)

// Record is an object as a manifest holds it.
type Record struct {
	// Key is the full key in the bucket.
	Key  string
	ETag string
	// Size is the length of the content in bytes.
	Size int64
	// ModTime is kept to the second, as OSS does. The zero time is kept as such.
	ModTime time.Time
	// Symlink says that it is a symlink object.
	Symlink bool
	// CRC64 is the checksum that OSS keeps of the content, if HasCRC64.
	CRC64    uint64
	HasCRC64 bool
	// Attr is nil if nothing is known.
	Attr *Attr
}

// Object returns the version that the record is of.
func (r *Record) Object() oss.Object {
	return oss.Object{Key: r.Key, ETag: r.ETag, Size: r.Size, ModTime: r.ModTime}
}

// Equal reports whether r and q say the same.
func (r *Record) Equal(q *Record) bool {
	return r.Object() == q.Object() && r.Symlink == q.Symlink && r.HasCRC64 == q.HasCRC64 && r.CRC64 == q.CRC64 && r.Attr.Equal(q.Attr)
}

// RecordOf returns the record of a listed object.
func RecordOf(o *oss.ListedObject) Record {
	return Record{Key: o.Key, ETag: o.ETag, Size: o.Size, ModTime: o.ModTime, Symlink: o.Symlink}
}

// row returns r as a file holds it, without its item, or says why none can.
func (r *Record) row() (snapfile.Row, error) {
	row := snapfile.Row{
		Size: r.Size, ETag: snapfile.ParseETag(r.ETag), ModTime: r.ModTime,
		Symlink: r.Symlink, Attr: r.Attr.Normal(),
	}
	if r.HasCRC64 {
		row.CRC64, row.HasCRC64 = r.CRC64, true
	}
	if len(row.ETag.Text) > snapfile.MaxText {
		return row, fmt.Errorf("key %q has an ETag of %d bytes, more than %d", r.Key, len(row.ETag.Text), snapfile.MaxText)
	}
	if row.Attr != nil {
		if n := len(snapfile.AppendAttr(nil, row.Attr)); n > snapfile.MaxAttr {
			return row, fmt.Errorf("key %q has attributes of %d bytes, more than %d", r.Key, n, snapfile.MaxAttr)
		}
	}
	return row, nil
}

// recordOfRow returns the record of a row with the key.
func recordOfRow(key string, row *snapfile.Row) Record {
	var space [64]byte
	return Record{
		Key: key, ETag: string(row.ETag.Append(space[:0])), Size: row.Size, ModTime: row.ModTime,
		Symlink: row.Symlink, CRC64: row.CRC64, HasCRC64: row.HasCRC64, Attr: row.Attr,
	}
}
