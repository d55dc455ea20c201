package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"syscall"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

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
	var records []state.Record
	if had, _ := st.XAttrs.Text(); before != had {
		// The journal of an older version did not say what the object has, or somebody else
		// has changed it.
		records = append(records, &state.SetXAttr{File: f.id, Value: before, Known: true})
	}
	pos := s.record(state.OneOf(append(records, &state.SetXAttr{File: f.id, Value: value, At: now()})))
	s.mu.Unlock()
	return s.journal.Write(pos)
}

// metaOf returns the metadata that the object of f has, as far as it goes along with what
// is made of it. f.committing is held.
func (s *Space) metaOf(ctx context.Context, f *File, st *state.File) (map[string]string, error) {
	from := st.Described()
	if from.ETag == "" || f.meta != nil {
		return f.meta, nil
	}
	info, err := s.bucket.Head(ctx, from.Key)
	switch same := state.SameBytes(info.Object, from); {
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
