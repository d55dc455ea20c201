package manifest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pailfs/pailfs/manifest/snapfile"
)

const (
	permissions = 0o7777
	typeMask    = 0o170000
	linkType    = 0o120000
	// mostLink is the longest target of a link, in bytes.
	mostLink = 4095
)

// AttrOf reads the metadata that ossfs 1 and pailfs keep of files: decimal numbers,
// the mode with the bits of the type, the time in seconds with or without a
// fraction, or as [MtimeOf] reads it. What cannot be read is not known. It is nil if there
// is nothing.
func AttrOf(meta map[string]string) *Attr {
	if len(meta) == 0 {
		return nil
	}
	a := &Attr{}
	for name, value := range meta {
		switch name {
		case "mode":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				a.Mode, a.Known = uint32(n)&permissions, a.Known|AttrMode
				if n&typeMask == linkType {
					a.Mode |= linkType
				}
			}
		case "uid":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				a.UID, a.Known = uint32(n), a.Known|AttrUID
			}
		case "gid":
			if n, err := strconv.ParseUint(value, 10, 32); err == nil {
				a.GID, a.Known = uint32(n), a.Known|AttrGID
			}
		case metaSeconds:
			if t, ok := MtimeOf(meta); ok {
				a.MTime, a.Known = t, a.Known|AttrMTime
			}
		case MetaMtime:
		default:
			a.User = append(a.User, UserAttr{Name: name, Value: value})
		}
	}
	slices.SortFunc(a.User, func(x, y UserAttr) int { return strings.Compare(x.Name, y.Name) })
	return a
}

// metaSeconds is the name of the user metadata that holds the time of the last write as
// ossfs 1 keeps it, in seconds. MetaMtime is that of ours, which has nanoseconds: a client
// that does not know it changes the other alone.
const (
	metaSeconds = "mtime"
	MetaMtime   = "pailfs-mtime"
)

// MtimeOf returns the time of the last write that metadata tells: with nanoseconds if those
// belong to the seconds that are told.
func MtimeOf(meta map[string]string) (time.Time, bool) {
	t, ok := parseSeconds(meta[metaSeconds])
	if exact, known := parseSeconds(meta[MetaMtime]); ok && known && t.Nanosecond() == 0 && exact.Unix() == t.Unix() {
		t = exact
	}
	return t, ok
}

// parseSeconds reads seconds since 1970 with up to nine digits of a fraction.
func parseSeconds(text string) (time.Time, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(fraction) > 9 {
		return time.Time{}, false
	}
	nanos := uint64(0)
	if fraction != "" {
		if nanos, err = strconv.ParseUint((fraction + "000000000")[:9], 10, 32); err != nil {
			return time.Time{}, false
		}
	}
	return time.Unix(seconds, int64(nanos)).UTC(), true
}

// EncodeAttr returns what is known of an object, but for user metadata other than its
// extended attributes, as bytes that DecodeAttr reads. They are for a cache: another
// version of the program may not know them.
func EncodeAttr(a *Attr) []byte {
	b := []byte{encodedVersion}
	if a == nil {
		return b
	}
	kept := *a
	kept.User = nil
	if x := XAttrs(a); x != "" {
		kept.User = []UserAttr{{Name: MetaXAttr, Value: x}}
	}
	if kept.Known == 0 && kept.User == nil {
		return b
	}
	return snapfile.AppendAttr(b, kept.Normal())
}

// DecodeAttr returns what EncodeAttr has encoded, never nil, and whether it could.
func DecodeAttr(b []byte) (*Attr, bool) {
	if len(b) == 0 || b[0] != encodedVersion {
		return nil, false
	}
	if len(b) == 1 {
		return &Attr{}, true
	}
	a, rest, ok := snapfile.CutAttr(b[1:])
	return a, ok && len(rest) == 0
}

// encodedVersion is 2 since extended attributes are told.
const encodedVersion = 2

// MetaXAttr is the name of the user metadata that holds all extended attributes, as
// s3fs and ossfs 1 keep them.
const MetaXAttr = "xattr"

// XAttrs returns the extended attributes of an object as its metadata has them.
func XAttrs(a *Attr) string {
	if a == nil {
		return ""
	}
	for _, u := range a.User {
		if u.Name == MetaXAttr {
			return u.Value
		}
	}
	return ""
}

// LinkFile reports whether e is a link whose target is the content of its object, as
// ossfs 1 and pailfs write them, by what its attributes say.
func (e *Entry) LinkFile() bool {
	return e.Kind != Directory && linkFile(e.Attr, e.Object.Size)
}

func linkFile(attr *Attr, size int64) bool {
	return attr != nil && attr.Known&AttrMode != 0 && attr.Mode&typeMask == linkType && mayBeLink(size)
}

// MayBeLink reports whether the size of e allows that it is such a link.
func (e *Entry) MayBeLink() bool { return mayBeLink(e.Object.Size) }

func mayBeLink(size int64) bool { return size > 0 && size <= mostLink }

// CursorAfter returns a cursor that continues the listing of a directory after the
// object, or the directory, with that key in it.
func CursorAfter(key string) string {
	name, directory := strings.CutSuffix(key, "/")
	item := name[strings.LastIndexByte(name, '/')+1:]
	if directory {
		return item + "/:"
	}
	return item + ":" + strconv.Itoa(len(item))
}
