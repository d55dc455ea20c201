package writeback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

// Permissions returns mode and group as they were set, zeros if nobody has set them. It
// looks at nothing but the state.
func (f *File) Permissions() (mode, gid uint32) {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	if st := f.space.mu.Files[f.id]; st != nil && st.Attr.Set {
		return st.Attr.Mode, st.Attr.GID
	}
	return 0, 0
}

// SetAttr says what to change; nil leaves a field as it is.
type SetAttr struct {
	// Size truncates or extends, as truncate(2) does. While somebody has the file open
	// for writing, it is committed with what they write.
	Size           *int64
	Mtime          *time.Time
	Mode, UID, GID *uint32
	// XAttr is changed without the others but the size.
	XAttr *SetXAttr
}

// SetAttr changes the attributes of a name and returns its file. Without
// Config.Attrs all but the size is ENOTSUP, as it is for directories: see SetDirAttr.
func (s *Space) SetAttr(ctx context.Context, dir, base string, a SetAttr) (*File, error) {
	if err := s.mayChange(a); err != nil {
		return nil, err
	}
	var file *File
	err := s.withFile(ctx, dir, base, func(f *File) error {
		file = f
		return s.SetAttrFile(ctx, f, a)
	})
	if errors.Is(err, syscall.EISDIR) && a.Size == nil {
		err = syscall.ENOTSUP
	}
	return file, err
}

func (s *Space) mayChange(a SetAttr) error {
	if !s.cfg.Attrs && (a.Mtime != nil || a.Mode != nil || a.UID != nil || a.GID != nil || a.XAttr != nil) {
		return syscall.ENOTSUP
	}
	if a.Size != nil && *a.Size < 0 {
		return syscall.EINVAL
	}
	return nil
}

// SetAttrFile does the same to a file that is known.
func (s *Space) SetAttrFile(ctx context.Context, f *File, a SetAttr) error {
	if err := s.mayChange(a); err != nil {
		return err
	}
	if a.Size != nil {
		if err := s.truncate(ctx, f, *a.Size); err != nil {
			return err
		}
	}
	if a.Mtime == nil && a.Mode == nil && a.UID == nil && a.GID == nil && a.XAttr == nil {
		return nil
	}
	f.committing.Lock()
	defer f.committing.Unlock()
	if a.XAttr != nil {
		return s.setXAttr(ctx, f, a.XAttr)
	}
	st := f.state()
	if st.ID == 0 {
		return syscall.ESTALE
	}
	r := &state.SetAttr{File: f.id, Attr: st.Attr, At: now()}
	for _, c := range []struct {
		to   *uint32
		from *uint32
		mask uint32
	}{{&r.Attr.Mode, a.Mode, 0o7777}, {&r.Attr.UID, a.UID, ^uint32(0)}, {&r.Attr.GID, a.GID, ^uint32(0)}} {
		if c.from != nil {
			*c.to, r.Attr.Set = *c.from&c.mask, true
		}
	}
	if a.Mtime != nil {
		if err := s.setTime(f, &st, r, *a.Mtime); err != nil {
			return err
		}
	}
	s.mu.Lock()
	if s.mu.Files[f.id] == nil {
		s.mu.Unlock()
		return syscall.ESTALE
	}
	pos := s.record(r)
	s.mu.Unlock()
	return s.journal.Write(pos)
}

// Touch sets the time of the last write of a file that the object store does not
// have. Nothing keeps it longer, without Config.Attrs: the object has its own time. So
// of a file that was published meanwhile it changes nothing.
func (s *Space) Touch(f *File, t time.Time) error {
	f.committing.Lock()
	defer f.committing.Unlock()
	st := f.state()
	if st.ID == 0 || !st.Staged || st.Gen > 0 && st.PubGen == st.Gen {
		return nil
	}
	r := &state.SetAttr{File: f.id, Attr: st.Attr, At: now()}
	if err := s.setTime(f, &st, r, t); err != nil {
		return err
	}
	s.mu.Lock()
	pos := s.record(r)
	s.mu.Unlock()
	return s.journal.Write(pos)
}

// setTime sets the time of the last write. That of a staged file is the file's own,
// so that a later write changes it by itself. f.committing is held.
func (s *Space) setTime(f *File, st *state.File, r *state.SetAttr, t time.Time) error {
	if !st.Staged {
		r.Attr.Mtime = t.UnixNano()
		return nil
	}
	path := s.path(f.id)
	stamp, size, err := stampOf(path)
	if err != nil {
		return err
	}
	tight, err := f.tight()
	if err != nil {
		return err
	}
	if !tight || stamp != st.Stamp || size != st.Size {
		// A write that comes at this moment would not show.
		f.touched.Store(true)
	}
	if err := os.Chtimes(path, time.Time{}, t); err != nil {
		return fmt.Errorf("set the time of a staged file: %w", err)
	}
	if stamp, _, err = stampOf(path); err != nil {
		return err
	}
	r.Stamp = stamp
	if s.cfg.Attrs {
		r.Attr.Mtime = stamp // when the cache takes the file, its time then is kept as one that is known
	}
	return nil
}

// tight reports whether nobody can change the staged file. f.committing is held.
func (f *File) tight() (bool, error) {
	if f.HasWriters() {
		return false, nil
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDONLY)
	if err != nil {
		return false, fmt.Errorf("open staged file: %w", err)
	}
	defer file.Close()
	return sealed(file)
}

// truncate sets the size of f. If nobody is writing, that is one change that counts
// at once; otherwise it is a part of what they write, and is committed with it.
func (s *Space) truncate(ctx context.Context, f *File, size int64) error {
	h, err := s.OpenFile(ctx, f, OpenOptions{Write: true, Truncate: size == 0, Passing: true})
	if err != nil {
		return err
	}
	defer h.Release()
	if size > 0 {
		if err := h.Truncate(ctx, size); err != nil {
			return err
		}
	}
	if f.beingWritten() {
		return nil
	}
	return f.commit(false)
}
