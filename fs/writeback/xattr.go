package writeback

import (
	"bytes"
	"context"
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
	"github.com/pailfs/pailfs/oss"
)

const (
	// maxMeta is how much user metadata an object may have, in bytes, maxXAttr how long a
	// value may be, as setxattr(2) says.
	maxMeta  = 8 << 10
	maxXAttr = 64 << 10
	// metaPrefix begins the name of a header that is user metadata.
	metaPrefix = "x-oss-meta-"
	// attrRoom is what mode, owner and time may take up of that, which may be given later.
	attrRoom = 5*len(metaPrefix) + len(metaMode+metaUID+metaGID+metaMtime+metaNanos) + len("33188") + 2*len("4294967295") + len("-9223372036") + len("-9223372036.999999999")
	// userXAttr begins the names of those that programs give.
	userXAttr = "user."
)

// fileXAttrs are the extended attributes of a file as its metadata has them: what it was
// given, and what the bucket has. They are never changed, but replaced.
type fileXAttrs struct{ Given, Pub string }

// given returns what the metadata is to say; not ok leaves it as it is.
func (x *fileXAttrs) given() (value string, ok bool) {
	if x == nil {
		return "", false
	}
	return x.Given, true
}

// published returns x when the bucket has what was given.
func (x *fileXAttrs) published() *fileXAttrs {
	if !x.changed() {
		return x
	}
	return &fileXAttrs{Given: x.Given, Pub: x.Given}
}

// changed says that the bucket is to be told.
func (x *fileXAttrs) changed() bool { return x != nil && x.Given != x.Pub }

// same reports whether both give the metadata the same.
func (x *fileXAttrs) same(y *fileXAttrs) bool {
	a, one := x.given()
	b, other := y.given()
	return a == b && one == other
}

// meta lays what was given over metadata.
func (x *fileXAttrs) meta(m map[string]string) map[string]string {
	value, ok := x.given()
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

// xattrRecord gives extended attributes to a file. If Known, its object has them already.
type xattrRecord struct {
	File  fileID
	Value string
	Known bool
	At    int64
}

func (*xattrRecord) kind() recordKind { return kindXAttr }
func (r *xattrRecord) walk(c *coder) {
	c.uint(&r.File)
	c.string(&r.Value)
	c.bool(&r.Known)
	c.int(&r.At)
}

func (r *xattrRecord) apply(st *state) {
	f := st.Files[r.File]
	if f == nil {
		return
	}
	x := &fileXAttrs{Given: r.Value}
	switch {
	case r.Known:
		x.Pub = r.Value
	case f.XAttrs != nil:
		x.Pub = f.XAttrs.Pub
	}
	if f.XAttrs = x; !r.Known {
		st.describeAgain(f, r.At)
	}
}

// snapXAttrs are those of one file as compaction writes them.
type snapXAttrs struct {
	File   fileID
	XAttrs fileXAttrs
}

func (*snapXAttrs) kind() recordKind { return kindSnapXAttrs }
func (r *snapXAttrs) walk(c *coder) {
	c.uint(&r.File)
	c.string(&r.XAttrs.Given)
	c.string(&r.XAttrs.Pub)
}

func (r *snapXAttrs) apply(st *state) {
	if f := st.Files[r.File]; f != nil {
		f.XAttrs = &r.XAttrs
	}
}

// with returns the records that make a file of an object with the extended attributes that
// its metadata has. They are one change.
func (r *openedRecord) with(xattrs string) []record {
	if xattrs == "" {
		return []record{r}
	}
	return []record{r, &xattrRecord{File: r.File, Value: xattrs, Known: true}}
}

// oneOf returns the record that is all of them.
func oneOf(records []record) record {
	if len(records) == 1 {
		return records[0]
	}
	return &groupRecord{Records: records}
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

// setXAttr changes an extended attribute of f. f.committing is held.
func (s *Space) setXAttr(ctx context.Context, f *File, change *SetXAttr) error {
	switch {
	case len(change.Value) > maxXAttr:
		return syscall.E2BIG
	case !utf8.ValidString(change.Name):
		return syscall.EILSEQ // JSON has no such string
	}
	st := f.state()
	if st.ID == 0 {
		return syscall.ESTALE
	}
	if st.Symlink {
		return syscall.EPERM
	}
	asked := f.meta == nil
	meta, err := s.metaOf(ctx, f, &st)
	if err != nil {
		return err
	}
	before, known := st.XAttrs.given()
	if !known || asked && meta != nil && !st.XAttrs.changed() {
		// What is remembered of the object may be older than what it has.
		before = meta[manifest.MetaXAttr]
	}
	value, err := change.apply(before)
	if err != nil {
		return err
	}
	size := attrRoom
	for name, value := range (&fileXAttrs{Given: value}).meta(maps.Clone(meta)) {
		switch name {
		case metaMode, metaUID, metaGID, metaMtime, metaNanos:
		default:
			size += len(metaPrefix) + len(name) + len(value)
		}
	}
	if size > maxMeta && len(value) > len(before) {
		return syscall.ENOSPC
	}
	if value == before {
		return nil
	}
	s.mu.Lock()
	if s.mu.Files[f.id] == nil {
		s.mu.Unlock()
		return syscall.ESTALE
	}
	var records []record
	if had, _ := st.XAttrs.given(); before != had {
		// The journal of an older version did not say what the object has, or somebody else
		// has changed it.
		records = append(records, &xattrRecord{File: f.id, Value: before, Known: true})
	}
	pos := s.record(oneOf(append(records, &xattrRecord{File: f.id, Value: value, At: now()})))
	s.mu.Unlock()
	return s.journal.write(pos)
}

// metaOf returns the metadata that the object of f has, as far as it goes along with what
// is made of it. f.committing is held.
func (s *Space) metaOf(ctx context.Context, f *File, st *fileState) (map[string]string, error) {
	from := st.described()
	if from.ETag == "" || f.meta != nil {
		return f.meta, nil
	}
	info, err := s.bucket.Head(ctx, from.Key)
	switch same := sameBytes(info.Object, from); {
	case errors.Is(err, oss.ErrNotFound), err == nil && !same && from.Key != st.Key:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask for the metadata of %q: %w", from.Key, err)
	case !same:
		// A publication of ours has just come there, or meets what somebody else has put.
		return info.Meta, nil
	}
	if f.meta = info.Meta; f.meta == nil {
		f.meta = make(map[string]string)
	}
	return f.meta, nil
}

// XAttrs returns the extended attributes that f was given, or its object had, as metadata
// has them; not ok if there were none.
func (f *File) XAttrs() (text string, ok bool) {
	st := f.known()
	return st.XAttrs.given()
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

// apply returns what metadata says after a change.
func (c *SetXAttr) apply(text string) (string, error) {
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

// XAttrValue returns the value of an extended attribute of which metadata says text.
func XAttrValue(text, name string) (value []byte, ok bool) {
	if text == "" {
		return nil, false
	}
	all, err := parseXAttrs(text)
	if err != nil {
		return nil, false
	}
	return all.value(name)
}

// XAttrNames returns the names of the extended attributes of which metadata says text,
// those that others keep there for themselves excepted.
func XAttrNames(text string) []string {
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
