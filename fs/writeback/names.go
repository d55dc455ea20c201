package writeback

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// CreateOptions are the attributes of a new name. They are kept with Config.Attrs.
type CreateOptions struct{ Mode, UID, GID uint32 }

// maxName is the longest name in bytes.
const maxName = 255

// newPlace returns the place of a name, and what the space or the base tree has
// there now. Without anything there, the entry is empty and the key is made of the
// name; a name that no key can have is EILSEQ, a long one ENAMETOOLONG.
func (s *Space) newPlace(ctx context.Context, dir, base string) (state.Place, Entry, error) {
	if len(base) > maxName {
		return state.Place{}, Entry{}, syscall.ENAMETOOLONG
	}
	e, _, err := s.Lookup(ctx, dir, base)
	p := state.Place{Dir: dir, Name: base}
	switch {
	case err == nil && e.File != nil:
		p.Key = e.File.state().Key
		return p, e, nil
	case err == nil:
		p.Key, p.Base = e.Object.Key, e.Object
		return p, e, nil
	case !errors.Is(err, fs.ErrNotExist):
		return state.Place{}, Entry{}, fmt.Errorf("look up %q: %w", order.Join(dir, base), err)
	}
	p.Key, err = manifest.KeyOf(s.cfg.Prefix, dir, base)
	if err != nil {
		return state.Place{}, Entry{}, err
	}
	p.Base = state.Absent(p.Key)
	return p, Entry{}, nil
}

// Create makes a new file and opens it for writing. It is [fs.ErrExist] if there is
// the name.
func (s *Space) Create(ctx context.Context, dir, base string, o CreateOptions) (*Handle, error) {
	f, err := s.create(ctx, dir, base, o, false)
	if err != nil {
		return nil, err
	}
	return &Handle{file: f, write: true, staged: f.content.read}, nil
}

// create makes a new file that is open for writing once.
func (s *Space) create(ctx context.Context, dir, base string, o CreateOptions, symlink bool) (*File, error) {
	if err := s.room(ctx); err != nil {
		return nil, err
	}
	p, e, err := s.newPlace(ctx, dir, base)
	if err != nil {
		return nil, err
	}
	if e.Name != "" {
		return nil, fs.ErrExist
	}
	s.mu.Lock()
	id := s.mu.NextFile
	s.mu.NextFile++
	s.mu.Unlock()
	path := s.path(id)
	file, err := openStagedFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, fmt.Errorf("make staged file: %w", err)
	}
	a := attrs.Attrs{}
	if s.cfg.Attrs {
		a = attrs.Attrs{Mode: o.Mode & 0o7777, UID: o.UID, GID: o.GID, Set: true}
	}
	s.mu.Lock()
	if n, ok := s.mu.Lookup(dir, base); ok && n.Kind != state.NameGone || s.mu.closed {
		s.mu.Unlock()
		file.Close() //nolint:errcheck // it is empty
		os.Remove(path)
		return nil, fs.ErrExist
	}
	pos := s.record(&state.Created{File: id, At: p, Symlink: symlink, Attr: a})
	f := s.file(id)
	f.content.read, f.content.writers = file, 1
	f.opens.Add(1)
	s.watch(f, true)
	s.mu.Unlock()
	s.beginWriting()
	if err := s.journal.Write(pos); err != nil {
		s.uncreate(f)
		return nil, err
	}
	return f, nil
}

// uncreate takes back the making of a file of which nobody will be told.
func (s *Space) uncreate(f *File) {
	s.mu.Lock()
	if st := s.mu.Files[f.id]; st != nil && st.Linked {
		s.record(&state.Unlinked{At: state.Place{Dir: st.Dir, Name: st.Name, Key: st.Key}, Time: now()})
	}
	s.mu.Unlock()
	(&Handle{file: f, write: true}).Release()
	if f.state().ID == 0 {
		os.Remove(s.path(f.id))
	}
}

// Symlink makes a symbolic link. Where close waits for the object store, the caller has
// to, with [File.AwaitThrough].
func (s *Space) Symlink(ctx context.Context, dir, base, target string, o CreateOptions) (*File, error) {
	switch {
	case target == "" || strings.IndexByte(target, 0) >= 0:
		return nil, syscall.EINVAL
	case len(target) > maxTarget:
		return nil, syscall.ENAMETOOLONG
	}
	o.Mode = 0o777
	f, err := s.create(ctx, dir, base, o, true)
	if err != nil {
		return nil, err
	}
	h := &Handle{file: f, write: true, staged: f.content.read}
	defer h.Release()
	if _, err := h.WriteAt(ctx, []byte(target), 0); err != nil {
		return nil, err
	}
	return f, f.commit(false)
}

// Unlink removes a name that is not a directory.
func (s *Space) Unlink(ctx context.Context, dir, base string) error {
	for {
		if err := s.unlink(ctx, dir, base); !errors.Is(err, errForgotten) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Space) unlink(ctx context.Context, dir, base string) error {
	p, e, err := s.newPlace(ctx, dir, base)
	switch {
	case err != nil:
		return err
	case e.Name == "":
		return fs.ErrNotExist
	case e.Kind == manifest.Directory:
		return syscall.EISDIR
	}
	if err := s.keepDir(ctx, dir); err != nil {
		return err
	}
	s.mu.Lock()
	if n, ok := s.mu.Lookup(dir, base); ok {
		switch n.Kind {
		case state.NameGone:
			s.mu.Unlock()
			return fs.ErrNotExist
		case state.NameDirectory:
			s.mu.Unlock()
			return syscall.EISDIR
		}
		p.Key = n.Key
	} else if e.File != nil {
		s.mu.Unlock()
		return errForgotten
	}
	pos := s.record(&state.Unlinked{At: p, Time: now()})
	f := s.unlinked(e.File)
	s.mu.Unlock()
	if err := s.journal.Write(pos); err != nil {
		return err
	}
	if f != nil {
		s.dropUnlinked(f)
	}
	wake(s.publishNow)
	wake(s.commitNow)
	return nil
}

// unlinked returns f if it lost its name. s.mu is held.
func (s *Space) unlinked(f *File) *File {
	if f == nil {
		return nil
	}
	if st := s.mu.Files[f.id]; st != nil && !st.Linked {
		return f
	}
	return nil
}

// dropUnlinked forgets a file without a name, unless it is open: then its last
// Release does.
func (s *Space) dropUnlinked(f *File) {
	f.content.RLock()
	busy := f.busy()
	f.content.RUnlock()
	if !busy {
		s.released(f)
	}
}

// keepDir makes sure that dir does not vanish with its last object: it becomes one
// of ours, with a marker.
func (s *Space) keepDir(ctx context.Context, dir string) error {
	if dir == "" {
		return nil
	}
	up, base := order.Parent(dir), dir[strings.LastIndexByte(dir, '/')+1:]
	s.mu.Lock()
	_, known := s.mu.Lookup(up, base)
	s.mu.Unlock()
	if known {
		return nil
	}
	e, _, err := s.Lookup(ctx, up, base)
	if err != nil || e.Kind != manifest.Directory {
		if err == nil {
			err = syscall.ENOTDIR
		}
		return err
	}
	s.mu.Lock()
	pos := int64(0)
	if _, known := s.mu.Lookup(up, base); !known {
		at := state.Place{Dir: up, Name: base, Key: e.Object.Key, Base: state.Absent(e.Object.Key)}
		made := &state.Group{Records: []state.Record{&state.MadeDir{At: at, Time: now(), Exists: true}}}
		if s.cfg.Attrs && e.Attr != nil && e.Attr.Known != 0 {
			made.Records = append(made.Records, &state.SetDirAttr{At: at, Attr: attrs.Of(e.Attr), Time: now()})
		}
		pos = s.record(made)
	}
	s.mu.Unlock()
	return s.journal.Write(pos)
}

// Mkdir makes a directory with the attributes given, as [Space.SetDirAttr] takes them.
func (s *Space) Mkdir(ctx context.Context, dir, base string, given SetAttr) error {
	if err := s.mayChange(given); err != nil {
		return err
	}
	if err := s.admit(ctx); err != nil {
		return err
	}
	p, e, err := s.newPlace(ctx, dir, base)
	if err != nil {
		return err
	}
	if e.Name != "" {
		return fs.ErrExist
	}
	p.Key = strings.TrimSuffix(p.Key, "/") + "/"
	p.Base = state.Absent(p.Key)
	if len(p.Key) > maxKey {
		return syscall.ENAMETOOLONG
	}
	s.mu.Lock()
	if n, ok := s.mu.Lookup(dir, base); ok && n.Kind != state.NameGone {
		s.mu.Unlock()
		return fs.ErrExist
	}
	var made state.Record = &state.MadeDir{At: p, Time: now()}
	if a := given.ofDir(attrs.Attrs{}); a != (attrs.Attrs{}) {
		made = &state.Group{Records: []state.Record{made, &state.SetDirAttr{At: p, Attr: a, Time: now()}}}
	}
	pos := s.record(made)
	s.mu.made.add(order.Join(dir, base))
	s.mu.Unlock()
	if err := s.journal.Write(pos); err != nil {
		s.unmake(p)
		return err
	}
	wake(s.publishNow)
	wake(s.commitNow)
	return nil
}

// unmake takes back the making of a directory of which nobody will be told, unless
// somebody has made something in it.
func (s *Space) unmake(p state.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.mu.Lookup(p.Dir, p.Name); ok && n.Kind == state.NameDirectory && s.mu.Hollow(order.Join(p.Dir, p.Name)) {
		s.removeDir(p)
	}
}

// removeDir removes a directory. s.mu is held.
func (s *Space) removeDir(p state.Place) (pos int64) {
	p.Base = oss.Object{Key: p.Key, ETag: state.AnyVersion}
	pos = s.record(&state.RemovedDir{At: p, Time: now()})
	delete(s.mu.made, order.Join(p.Dir, p.Name))
	return pos
}

// maxKey is the longest key in bytes, by OSS's naming rules.
const maxKey = 1023

// Rmdir removes an empty directory.
func (s *Space) Rmdir(ctx context.Context, dir, base string) error {
	p, e, err := s.newPlace(ctx, dir, base)
	switch {
	case err != nil:
		return err
	case e.Name == "":
		return fs.ErrNotExist
	case e.Kind != manifest.Directory:
		return syscall.ENOTDIR
	}
	path := order.Join(dir, base)
	inside, _, err := s.ReadDir(ctx, path, "", 1)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(inside) > 0 {
		return syscall.ENOTEMPTY
	}
	if err := s.keepDir(ctx, dir); err != nil {
		return err
	}
	s.mu.Lock()
	if !s.mu.Hollow(path) {
		s.mu.Unlock()
		return syscall.ENOTEMPTY
	}
	if n, ok := s.mu.Lookup(dir, base); ok && n.Kind != state.NameDirectory {
		s.mu.Unlock()
		return fs.ErrNotExist
	}
	pos := s.removeDir(p)
	s.mu.Unlock()
	wake(s.publishNow)
	wake(s.commitNow)
	return s.journal.Write(pos)
}

// Rename moves a name, over what is there if flags do not say RENAME_NOREPLACE. It
// returns the file that was moved, or nil for a directory: a clean object becomes a
// file.
func (s *Space) Rename(ctx context.Context, dir, base, newDir, newBase string, flags uint32) (*File, error) {
	if flags&^unix.RENAME_NOREPLACE != 0 {
		return nil, syscall.EINVAL
	}
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	for {
		f, err := s.rename(ctx, dir, base, newDir, newBase, flags)
		if !errors.Is(err, errForgotten) || ctx.Err() != nil {
			return f, err
		}
	}
}

// errForgotten means that a file was left to the base tree in the middle of a call,
// which has to begin anew.
var errForgotten = errors.New("the file was forgotten")

func (s *Space) rename(ctx context.Context, dir, base, newDir, newBase string, flags uint32) (*File, error) {
	_, from, err := s.newPlace(ctx, dir, base)
	if err != nil {
		return nil, err
	}
	if from.Name == "" {
		return nil, fs.ErrNotExist
	}
	to, there, err := s.newPlace(ctx, newDir, newBase)
	if err != nil {
		return nil, err
	}
	switch {
	case there.Name == "":
	case flags&unix.RENAME_NOREPLACE != 0:
		return nil, fs.ErrExist
	case dir == newDir && base == newBase:
		return from.File, nil
	case from.Kind == manifest.Directory && there.Kind != manifest.Directory:
		return nil, syscall.ENOTDIR
	case from.Kind != manifest.Directory && there.Kind == manifest.Directory:
		return nil, syscall.EISDIR
	}
	if from.Kind == manifest.Directory {
		return nil, s.renameDir(ctx, dir, base, from, to, there)
	}
	f := from.File
	if f == nil {
		if f, err = s.claim(ctx, dir, from.Entry); err != nil {
			return nil, err
		}
	}
	if err := s.keepDir(ctx, dir); err != nil {
		return nil, err
	}
	s.mu.Lock()
	st := s.mu.Files[f.id]
	n, ok := s.mu.Lookup(dir, base)
	if st == nil && f.forgotten {
		s.mu.Unlock()
		return nil, errForgotten
	}
	if st == nil || !st.Linked || !ok || n.File != f.id {
		s.mu.Unlock()
		return nil, fs.ErrNotExist
	}
	if n, ok := s.mu.Lookup(newDir, newBase); ok {
		switch n.Kind {
		case state.NameDirectory:
			s.mu.Unlock()
			return nil, syscall.EISDIR
		case state.NameFile:
			to.Key = n.Key
		}
	} else if there.File != nil {
		// What was there is the base tree's again, and to.Base does not say it.
		s.mu.Unlock()
		return nil, errForgotten
	}
	pos := s.record(s.renaming(&state.Renamed{File: f.id, To: to, Time: now()}, st))
	s.mu.undurable.recorded(f.id, pos, false)
	replaced := s.unlinked(there.File)
	s.mu.Unlock()
	if err := s.journal.Write(pos); err != nil {
		return nil, err
	}
	if replaced != nil && replaced != f {
		s.dropUnlinked(replaced)
	}
	wake(s.publishNow)
	wake(s.commitNow)
	return f, nil
}
