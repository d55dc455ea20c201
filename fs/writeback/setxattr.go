package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

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
	x := &attrs.XAttrs{Given: r.Value}
	switch {
	case r.Known:
		x.Pub = r.Value
	case f.XAttrs != nil:
		x.Pub = f.XAttrs.Pub
	}
	st.tally.touch(r.File)
	if f.XAttrs = x; !r.Known {
		st.describeAgain(f, r.At)
	}
}

// snapXAttrs are those of one file as compaction writes them.
type snapXAttrs struct {
	File   fileID
	XAttrs attrs.XAttrs
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
		st.tally.touch(r.File)
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

// SetXAttr is a change of one extended attribute.
type SetXAttr = attrs.SetXAttr

// XAttrValue returns the value of an extended attribute of which metadata says text.
func XAttrValue(text, name string) (value []byte, ok bool) { return attrs.Value(text, name) }

// XAttrNames returns the names of the extended attributes of which metadata says text,
// those that others keep there for themselves excepted.
func XAttrNames(text string) []string { return attrs.Names(text) }

// setXAttr changes an extended attribute of f. f.committing is held.
func (s *Space) setXAttr(ctx context.Context, f *File, change *SetXAttr) error {
	if err := change.Check(); err != nil {
		return err
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
	before, known := st.XAttrs.Text()
	if !known || asked && meta != nil && !st.XAttrs.Changed() {
		// What is remembered of the object may be older than what it has.
		before = meta[manifest.MetaXAttr]
	}
	value, err := change.Apply(before)
	if err != nil {
		return err
	}
	size := attrs.Size((&attrs.XAttrs{Given: value}).Meta(maps.Clone(meta)))
	if size > attrs.MaxSize && len(value) > len(before) {
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
	if had, _ := st.XAttrs.Text(); before != had {
		// The journal of an older version did not say what the object has, or somebody else
		// has changed it.
		records = append(records, &xattrRecord{File: f.id, Value: before, Known: true})
	}
	pos := s.record(oneOf(append(records, &xattrRecord{File: f.id, Value: value, At: now()})))
	s.mu.Unlock()
	return s.journal.Write(pos)
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
	return st.XAttrs.Text()
}
