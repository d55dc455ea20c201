package manifest

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/manifest/snapfile"
	"github.com/pailfs/pailfs/oss"
)

// An item is what a listing with the delimiter "/" shows in a directory: the
// part of a key after the directory's prefix. Objects are items without a slash;
// the empty one is the object whose key is the prefix itself. Directories are
// items that end with their only slash. Items are ordered as bytes, which is the
// order of listings.

// isDirectory reports whether item is a directory.
func isDirectory(item string) bool { return strings.HasSuffix(item, "/") }

// record is an item and what a listing says of it. A directory has nothing but
// its item.
type record struct {
	item    string
	symlink bool
	etag    string
	size    int64
	modTime time.Time
}

// marker reports whether r only says that its directory exists.
func (r *record) marker() bool { return r.item == "" && r.size == 0 && !r.symlink }

// The flags of an encoded record.
const (
	flagSymlink = 1 << iota
	// flagMD5: the ETag is 16 bytes as upper-case hexadecimal digits.
	flagMD5
	// flagParts: they are followed by a minus sign and a number.
	flagParts
	// flagText: the ETag is some other text.
	flagText
	flagTime
	// flagNanos: the time is not a whole second.
	flagNanos
)

// appendRecord appends the encoded form of r to b. It is not stored anywhere but
// in memory, so it has no version.
func appendRecord(b []byte, r *record) []byte {
	b = binary.AppendUvarint(b, uint64(len(r.item)))
	b = append(b, r.item...)
	if isDirectory(r.item) {
		return b
	}
	at := len(b)
	b = append(b, 0)
	if r.symlink {
		b[at] |= flagSymlink
	}
	if r.etag != "" {
		sum, parts, ok := snapfile.PackETag(r.etag)
		switch {
		case !ok:
			b[at] |= flagText
			b = binary.AppendUvarint(b, uint64(len(r.etag)))
			b = append(b, r.etag...)
		case parts == 0:
			b[at] |= flagMD5
			b = append(b, sum[:]...)
		default:
			b[at] |= flagMD5 | flagParts
			b = append(b, sum[:]...)
			b = binary.AppendUvarint(b, parts)
		}
	}
	b = binary.AppendVarint(b, r.size)
	if !r.modTime.IsZero() {
		b[at] |= flagTime
		b = binary.AppendVarint(b, r.modTime.Unix())
		if nanos := r.modTime.Nanosecond(); nanos != 0 {
			b[at] |= flagNanos
			b = binary.AppendUvarint(b, uint64(nanos))
		}
	}
	return b
}

// decodeItem returns the item of the record that s begins with, and what follows
// it. The item is part of s.
func decodeItem(s string) (item, rest string) {
	n, rest := cutUvarint(s)
	return rest[:n], rest[n:]
}

// decodeRecord returns the record that s begins with, without its ETag, which is
// appended to etag instead: the caller makes one string of everything.
func decodeRecord(s string, etag []byte) (record, []byte) {
	var r record
	r.item, s = decodeItem(s)
	if isDirectory(r.item) {
		return r, etag
	}
	flags := s[0]
	s = s[1:]
	r.symlink = flags&flagSymlink != 0
	switch {
	case flags&flagMD5 != 0:
		etag = snapfile.AppendHex(etag, s[:16])
		s = s[16:]
		if flags&flagParts != 0 {
			var n uint64
			n, s = cutUvarint(s)
			etag = strconv.AppendUint(append(etag, '-'), n, 10)
		}
	case flags&flagText != 0:
		var n uint64
		n, s = cutUvarint(s)
		etag = append(etag, s[:n]...)
		s = s[n:]
	}
	r.size, s = cutVarint(s)
	if flags&flagTime != 0 {
		var seconds int64
		seconds, s = cutVarint(s)
		var nanos uint64
		if flags&flagNanos != 0 {
			nanos, _ = cutUvarint(s)
		}
		r.modTime = time.Unix(seconds, int64(nanos)).UTC()
	}
	return r, etag
}

// cutUvarint reads what binary.AppendUvarint wrote; the records are our own, so
// it cannot fail.
func cutUvarint(s string) (uint64, string) {
	var v uint64
	for i := 0; ; i++ {
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return v, s[i+1:]
		}
	}
}

// cutVarint reads what binary.AppendVarint wrote.
func cutVarint(s string) (int64, string) {
	u, rest := cutUvarint(s)
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v, rest
}

// recordOf returns the record of a listed object in a directory.
func recordOf(item string, o *oss.ListedObject) record {
	return record{item: item, symlink: o.Symlink, etag: o.ETag, size: o.Size, modTime: o.ModTime}
}
