package writeback

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// SetDirAttr changes attributes of a directory, which its marker object keeps. Mode, owner
// and group are given together. Without Config.Attrs it is ENOTSUP.
func (s *Space) SetDirAttr(ctx context.Context, dir, base string, a SetAttr) error {
	if err := s.mayChange(a); err != nil {
		return err
	}
	e, _, err := s.Lookup(ctx, dir, base)
	switch {
	case err != nil:
		return err
	case e.Kind != manifest.Directory:
		return syscall.ENOTDIR
	}
	r := &state.SetDirAttr{At: state.Place{Dir: dir, Name: base, Key: e.Object.Key, Base: state.Absent(e.Object.Key)}, Time: now()}
	s.mu.Lock()
	n, known := s.mu.Lookup(dir, base)
	if known && n.Kind != state.NameDirectory {
		s.mu.Unlock()
		return fs.ErrNotExist
	}
	if d, given := s.mu.Dirs[n.Key]; known && given {
		r.Attr = d.Attr
	} else if e.Attr != nil {
		r.Attr = attrs.Of(e.Attr)
	}
	r.Attr = a.ofDir(r.Attr)
	pos := s.record(r)
	s.mu.Unlock()
	wake(s.publishNow)
	wake(s.commitNow)
	return s.journal.Write(pos)
}

// ofDir returns a after a change of those of a directory.
func (change *SetAttr) ofDir(a attrs.Attrs) attrs.Attrs {
	if change.Mode != nil && change.UID != nil && change.GID != nil {
		a.Mode, a.UID, a.GID, a.Set = *change.Mode&0o7777, *change.UID, *change.GID, true
	}
	if change.Mtime != nil {
		a.Mtime = change.Mtime.UnixNano()
	}
	return a
}

// shows reports whether the base tree shows the attributes that a directory was given.
func (s *Space) shows(n state.Name, e *manifest.Entry) bool {
	s.mu.Lock()
	a := s.mu.Dirs[n.Key].Attr
	s.mu.Unlock()
	if a == (attrs.Attrs{}) {
		return true
	}
	if e.Attr == nil {
		return false
	}
	// The metadata has seconds.
	there := attrs.Of(e.Attr)
	there.Mtime, a.Mtime = there.Mtime/int64(time.Second), a.Mtime/int64(time.Second)
	return there == a
}

// publishMarker makes the empty object that keeps a directory, and its attributes. One that is
// there already is as good if it has those, and else keeps all else that it has.
func (s *Space) publishMarker(ctx context.Context, op order.Operation) error {
	s.mu.Lock()
	d, given := s.mu.Dirs[op.Key]
	k := s.mu.Keys[op.Key]
	unseen := k == nil || !k.Present() && len(k.Maybe) == 0
	s.mu.Unlock()
	var there oss.Info
	if given && !unseen {
		var err error
		if there, err = s.bucket.Head(ctx, op.Key); err != nil && !errors.Is(err, oss.ErrNotFound) {
			return fmt.Errorf("look at the marker %q: %w", op.Key, err)
		}
	}
	if err := s.begin(op, 0, state.Intent{Kind: order.Marker}, func() error {
		if s.mu.Dirs[op.Key] != d {
			return errSuperseded
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.putMarker(ctx, op.Key, d.Attr, given, there); err != nil {
		return err
	}
	return s.done(op, oss.Object{Key: op.Key, ETag: state.AnyVersion}, 0)
}

// putMarker makes the marker at key, where there is what there says.
func (s *Space) putMarker(ctx context.Context, key string, a attrs.Attrs, given bool, there oss.Info) error {
	o := oss.PutOptions{ForbidOverwrite: true, RoughTime: true}
	if given {
		o.Meta = a.DirMeta(there.Meta)
	}
	switch {
	case there.ETag == "":
		_, err := s.bucket.Put(ctx, key, bytes.NewReader(nil), o)
		if errors.Is(err, oss.ErrExists) {
			if !given {
				return nil
			}
			return fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
		}
		return err
	case maps.Equal(o.Meta, there.Meta):
		return nil
	}
	_, err := s.bucket.Copy(ctx, key, there.Object, oss.PutOptions{ContentType: cmp.Or(there.ContentType, "application/octet-stream"), Meta: o.Meta})
	if errors.Is(err, oss.ErrChanged) {
		return fmt.Errorf("%w: %w", oss.ErrUnavailable, err)
	}
	return err
}
