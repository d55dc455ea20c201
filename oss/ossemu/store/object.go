package store

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Type is how an object came to be.
type Type uint8

// The types of objects.
const (
	Normal Type = iota
	Multipart
	Appendable
	Symlink
)

// String returns the name that the service gives the type.
func (t Type) String() string {
	return [...]string{"Normal", "Multipart", "Appendable", "Symlink"}[t&3]
}

// Pair is a name with a value.
type Pair struct {
	Name, Value string
}

// Attributes are what a client said about an object when it made it. They are
// shared between objects and never changed.
type Attributes struct {
	ContentType        string
	CacheControl       string
	ContentDisposition string
	ContentEncoding    string
	ContentLanguage    string
	Expires            string
	StorageClass       string
	// ACL is empty for an object that follows its bucket.
	ACL string
	// Encryption is what was asked for; nothing is encrypted.
	Encryption string
	// Target is the key that a symlink names.
	Target string
	// Meta is the user metadata, names in lower case, in order.
	Meta []Pair
	Tags []Pair
}

// Object is one version of one key. It is never changed.
type Object struct {
	Size  int64
	CRC64 uint64
	Attrs *Attributes

	extents []extent
	modTime int64
	tag     [16]byte
	// parts is how many parts the object was made from, 0 if it was not, or opaque.
	parts int32
	Type  Type
}

// ModTime is when the version was made, in whole seconds as the service keeps
// it.
func (o *Object) ModTime() time.Time { return time.Unix(o.modTime, 0).UTC() }

// ETag is the entity tag, in upper case and without quotes.
func (o *Object) ETag() string { return formatETag(o.tag, o.parts) }

// opaque in the place of the number of parts says that the tag is made up. It is
// neither the MD5 of the content nor that of parts.
const opaque = -1

// MD5 is the digest of the content, if it is known.
func (o *Object) MD5() (sum [16]byte, known bool) {
	return o.tag, o.Type == Normal && o.parts == 0
}

func formatETag(tag [16]byte, parts int32) string {
	var buf [32]byte
	hex.Encode(buf[:], tag[:])
	for i, c := range buf {
		if c >= 'a' {
			buf[i] = c - 'a' + 'A'
		}
	}
	if parts <= 0 {
		return string(buf[:])
	}
	return string(strconv.AppendInt(append(buf[:], '-'), int64(parts), 10))
}

// SameETag compares entity tags as the service does: quotes and case do not
// matter.
func SameETag(a, b string) bool {
	return strings.EqualFold(strings.Trim(a, `"`), strings.Trim(b, `"`))
}

// sharedAttributes are attributes that several objects have, by their encoded form.
// The store's mu guards them.
type sharedAttributes map[string]*Attributes

// intern returns attributes equal to a that are shared with other objects.
func (s sharedAttributes) intern(a *Attributes) *Attributes {
	var e encoder
	encodeAttributes(&e, a)
	if known := s[string(e.b)]; known != nil {
		return known
	}
	// Attributes that differ from object to object are not worth remembering.
	if len(s) < 4096 && len(a.Meta) == 0 && len(a.Tags) == 0 && a.Target == "" {
		s[string(e.b)] = a
	}
	return a
}
