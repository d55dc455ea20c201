package attrs

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/pailfs/pailfs/manifest"
)

const (
	// MaxSize is how much user metadata an object may have, in bytes; see [Size].
	MaxSize = 8 << 10
	// maxXAttr is how long a value may be, as setxattr(2) says.
	maxXAttr = 64 << 10
	// metaPrefix begins the name of a header that is user metadata.
	metaPrefix = "x-oss-meta-"
	// attrRoom is what mode, owner and time may take up of that, which may be given later.
	attrRoom = 5*len(metaPrefix) + len(metaMode+metaUID+metaGID+metaMtime+metaNanos) + len("33188") + 2*len("4294967295") + len("-9223372036") + len("-9223372036.999999999")
	// userXAttr begins the names of those that programs give.
	userXAttr = "user."
)

// XAttrs are the extended attributes of a file as its metadata has them: what it was
// given, and what the bucket has. They are never changed, but replaced.
type XAttrs struct{ Given, Pub string }

// Text returns what the metadata is to say; not ok leaves it as it is.
func (x *XAttrs) Text() (text string, ok bool) {
	if x == nil {
		return "", false
	}
	return x.Given, true
}

// Published returns x when the bucket has what was given.
func (x *XAttrs) Published() *XAttrs {
	if !x.Changed() {
		return x
	}
	return &XAttrs{Given: x.Given, Pub: x.Given}
}

// Changed says that the bucket is to be told.
func (x *XAttrs) Changed() bool { return x != nil && x.Given != x.Pub }

// Same reports whether both give the metadata the same.
func (x *XAttrs) Same(y *XAttrs) bool {
	a, one := x.Text()
	b, other := y.Text()
	return a == b && one == other
}

// Meta lays what was given over metadata.
func (x *XAttrs) Meta(m map[string]string) map[string]string {
	value, ok := x.Text()
	if !ok || m[manifest.MetaXAttr] == value {
		return m
	}
	if m == nil {
		m = make(map[string]string)
	}
	if value == "" {
		delete(m, manifest.MetaXAttr)
	} else {
		m[manifest.MetaXAttr] = value
	}
	return m
}

// Size returns how many bytes user metadata takes up at most, whatever mode, owner and time
// it is given.
func Size(meta map[string]string) int {
	size := attrRoom
	for name, value := range meta {
		switch name {
		case metaMode, metaUID, metaGID, metaMtime, metaNanos:
		default:
			size += len(metaPrefix) + len(name) + len(value)
		}
	}
	return size
}

// SetXAttr is a change of one extended attribute.
type SetXAttr struct {
	Name  string
	Value []byte
	// Remove removes it; ENODATA if there is none.
	Remove bool
	// Create says that it is EEXIST if there is one, Replace that it is ENODATA if there
	// is none.
	Create, Replace bool
}

// xattrs are the extended attributes of an object by name, as JSON has their values: what
// is not understood goes along.
type xattrs map[string]json.RawMessage

// parseXAttrs reads what s3fs, ossfs 1 or encode wrote: the JSON is escaped as in a URL.
func parseXAttrs(text string) (xattrs, error) {
	if text == "" {
		return xattrs{}, nil
	}
	plain, err := url.PathUnescape(text)
	if err != nil {
		// Somebody wrote it as it is.
		plain = text
	}
	all := xattrs{}
	if err := json.Unmarshal([]byte(plain), &all); err != nil || all == nil {
		return nil, fmt.Errorf("extended attributes %.100q are none: %w", text, errors.Join(err, syscall.EIO))
	}
	return all, nil
}

// encode returns all as metadata has them; "" if there are none. Everything is escaped
// that any reader could take for something else.
func (all xattrs) encode() (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(all); err != nil {
		return "", fmt.Errorf("encode extended attributes: %w", err)
	}
	return strings.ReplaceAll(url.QueryEscape(strings.TrimSuffix(b.String(), "\n")), "+", "%20"), nil
}

// value returns the value of one, not ok if there is none.
func (all xattrs) value(name string) (value []byte, ok bool) {
	raw, ok := all[name]
	var text string
	if !ok || json.Unmarshal(raw, &text) != nil {
		return nil, false
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding} {
		if value, err := encoding.DecodeString(text); err == nil {
			return value, true
		}
	}
	return nil, false
}

// Check returns E2BIG for a value that is too long, and EILSEQ for a name that metadata
// cannot keep.
func (c *SetXAttr) Check() error {
	switch {
	case len(c.Value) > maxXAttr:
		return syscall.E2BIG
	case !utf8.ValidString(c.Name):
		return syscall.EILSEQ // JSON has no such string
	}
	return nil
}

// Apply returns what metadata says after a change of text. Errors: ENODATA and EEXIST, as
// [SetXAttr] says, and EIO where text cannot be understood.
func (c *SetXAttr) Apply(text string) (string, error) {
	all, err := parseXAttrs(text)
	if err != nil {
		return "", err // nothing of somebody else's is thrown away
	}
	value, there := all.value(c.Name)
	switch {
	case !there && (c.Remove || c.Replace):
		return "", syscall.ENODATA
	case there && c.Create:
		return "", syscall.EEXIST
	case c.Remove:
		delete(all, c.Name)
	case there && bytes.Equal(value, c.Value):
		return text, nil
	default:
		all[c.Name] = json.RawMessage(`"` + base64.StdEncoding.EncodeToString(c.Value) + `"`)
	}
	return all.encode()
}

// Value returns the value of an extended attribute of which metadata says text.
func Value(text, name string) (value []byte, ok bool) {
	if text == "" {
		return nil, false
	}
	all, err := parseXAttrs(text)
	if err != nil {
		return nil, false
	}
	return all.value(name)
}

// Names returns the names of the extended attributes of which metadata says text,
// those that others keep there for themselves excepted.
func Names(text string) []string {
	if text == "" {
		return nil
	}
	all, err := parseXAttrs(text)
	if err != nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(all))
	return slices.DeleteFunc(names, func(name string) bool {
		_, ok := all.value(name)
		return !ok || len(name) == len(userXAttr) || !strings.HasPrefix(name, userXAttr) || strings.Contains(name, "\x00")
	})
}
