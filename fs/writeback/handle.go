package writeback

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/fs/writeback/internal/attrs"
	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/oss"
)

// OpenOptions say how a file is opened.
type OpenOptions struct {
	// Write opens for writing, and makes the content a staged file first.
	Write bool
	// Truncate begins with nothing; it needs Write.
	Truncate bool
	// Passing says that it is open for one change of the size: if somebody else is
	// writing, that is committed with what they write, and otherwise at once.
	Passing bool
}

// Handle is one open file. It must be released.
type Handle struct {
	file     *File
	write    bool
	passing  bool
	staged   *os.File
	released atomic.Bool
}

// Open opens the file called base in dir. A clean object can be opened for writing
// only: reading it is the cache's business.
//
// Errors: [fs.ErrNotExist], EISDIR, EINVAL, those of the object store where an
// object has to be fetched, ENOSPC.
func (s *Space) Open(ctx context.Context, dir, base string, o OpenOptions) (h *Handle, err error) {
	if !o.Write {
		e, _, err := s.Lookup(ctx, dir, base)
		switch {
		case err != nil:
			return nil, err
		case e.Kind == manifest.Directory:
			return nil, syscall.EISDIR
		case e.File == nil:
			return nil, syscall.EINVAL
		}
		return s.OpenFile(ctx, e.File, o)
	}
	err = s.withFile(ctx, dir, base, func(f *File) error {
		h, err = s.OpenFile(ctx, f, o)
		return err
	})
	return h, err
}

// withFile calls do with the file called base in dir, which an object of the base
// tree becomes; again if the file was published and forgotten in between.
func (s *Space) withFile(ctx context.Context, dir, base string, do func(f *File) error) error {
	for {
		e, _, err := s.Lookup(ctx, dir, base)
		if err != nil {
			return err
		}
		if e.Kind == manifest.Directory {
			return syscall.EISDIR
		}
		f := e.File
		if f == nil {
			if f, err = s.claim(ctx, dir, e.Entry); err != nil {
				return err
			}
		}
		err = do(f)
		if !errors.Is(err, syscall.ESTALE) || f.state().ID != 0 || ctx.Err() != nil {
			return err
		}
	}
}

// claim makes a file of an entry of the base tree.
func (s *Space) claim(ctx context.Context, dir string, e manifest.Entry) (*File, error) {
	var a attrs.Attrs
	xattrs := ""
	symlink := e.LinkFile()
	if e.Kind == manifest.Symlink && !symlink {
		// What an OSS symlink object holds is a key, which cannot be edited as a file.
		return nil, syscall.ENOTSUP
	}
	switch {
	case !s.cfg.Attrs:
	case e.Attr != nil:
		a, xattrs = attrs.Of(e.Attr), manifest.XAttrs(e.Attr)
	default:
		info, err := s.bucket.Head(ctx, e.Object.Key)
		switch {
		case err == nil && info.Same(e.Object):
			a, xattrs = attrs.Parse(info.Meta), info.Meta[manifest.MetaXAttr]
			symlink = attrs.IsLink(info.Meta)
		case err == nil || errors.Is(err, oss.ErrNotFound):
			s.renew(dir, e.Name)
			return nil, syscall.ESTALE
		default:
			return nil, fmt.Errorf("open %q: %w", order.Join(dir, e.Name), err)
		}
	}
	s.mu.Lock()
	if known, ok, err := s.entry(dir, e.Name); ok {
		s.mu.Unlock()
		if err == nil && known.File == nil {
			err = syscall.EISDIR
		}
		return known.File, err
	}
	told := s.told(e.Object)
	switch {
	case told != nil:
		a.Mtime = told.Mtime
	case a.Mtime == 0 && !e.Object.ModTime.IsZero():
		// What is made of the object, a copy perhaps, has another time.
		a.Mtime = e.Object.ModTime.UnixNano()
	}
	id := s.mu.NextFile
	opened := &state.Opened{
		File: id, Symlink: symlink, Attr: a,
		At: state.Place{Dir: dir, Name: e.Name, Key: e.Object.Key, Base: e.Object},
	}
	pos := s.record(state.OneOf(opened.With(xattrs)))
	f := s.file(id)
	if told != nil {
		f.changed.carry(told.Ctime)
	}
	s.mu.Unlock()
	s.settleLater(dir, e.Name, pos)
	return f, s.journal.Write(pos)
}

// OpenFile opens a file that is known already, wherever it is by now. ESTALE means
// that the base tree has taken over its name: look it up again.
func (s *Space) OpenFile(ctx context.Context, f *File, o OpenOptions) (*Handle, error) {
	h := &Handle{file: f, write: o.Write, passing: o.Write && o.Passing}
	if !o.Write {
		defer f.overtake()()
		f.adopting.Lock()
		defer f.adopting.Unlock()
		f.content.Lock()
		defer f.content.Unlock()
		st := f.state()
		if st.ID == 0 {
			return nil, syscall.ESTALE
		}
		if st.Staged {
			if err := f.openStaged(); err != nil {
				return nil, err
			}
			f.opened()
			h.staged = f.content.read
		}
		f.content.readers++
		return h, nil
	}
	if err := s.room(ctx); err != nil {
		return nil, err
	}
	defer f.overtake()()
	if err := f.committing.wait(ctx); err != nil {
		return nil, err
	}
	defer f.committing.Unlock()
	if err := f.stage(ctx, o.Truncate, false); err != nil {
		return nil, err
	}
	f.content.Lock()
	defer f.content.Unlock()
	if f.state().ID == 0 {
		return nil, syscall.ESTALE
	}
	if err := f.openStaged(); err != nil {
		return nil, err
	}
	if f.content.writers == 0 {
		s.begins(f)
	}
	if o.Truncate {
		if err := f.cutTo(0); err != nil {
			return nil, err
		}
		if err := s.anew(f); err != nil {
			return nil, err
		}
	}
	f.opened()
	h.staged = f.content.read
	f.content.writers++
	if h.passing {
		f.content.passing++
	}
	f.opens.Add(1)
	s.mu.Lock()
	s.watch(f, o.Truncate)
	s.mu.Unlock()
	s.beginWriting()
	return h, nil
}

// overtake lets an adoption give way to an open, which would wait for all of the file
// to be read, until done is called.
func (f *File) overtake() (done func()) {
	f.opening.Add(1)
	if end := f.giveWay.Load(); end != nil {
		(*end)()
	}
	return func() { f.opening.Add(-1) }
}

// stage makes the content a staged file; an empty one will do if empty, and one that lacks
// most of its bytes if not whole. f.committing is held, so that nothing else changes where the content is but adoption, which
// holds it as well.
func (f *File) stage(ctx context.Context, empty, whole bool) error {
	s := f.space
	st := f.state()
	switch {
	case st.ID == 0:
		return syscall.ESTALE
	case st.Staged:
		return nil
	}
	path := s.path(f.id)
	f.named, f.seen = false, extentSeen{}
	size := int64(-1)
	if empty {
		file, err := openStagedFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			return fmt.Errorf("make staged file: %w", err)
		}
	} else {
		if !whole {
			if done, err := f.stagePartly(ctx, &st); done || err != nil {
				return err
			}
		}
		obj := st.Object
		if err := s.cache.Take(ctx, obj, path); err != nil {
			os.Remove(path)
			if errors.Is(err, oss.ErrChanged) || errors.Is(err, oss.ErrNotFound) {
				if now := f.state(); now.ID == 0 || now.Object != obj {
					// It was renamed, and meanwhile copied to its new key.
					return f.stage(ctx, false, whole)
				}
				s.renew(st.Dir, st.Name)
				return fmt.Errorf("fetch %q for writing: %w: %w", order.Join(st.Dir, st.Name), syscall.ESTALE, err)
			}
			return fmt.Errorf("fetch %q for writing: %w", order.Join(st.Dir, st.Name), err)
		}
		size = obj.Size
		if err := os.Chtimes(path, time.Time{}, time.Unix(0, st.Mtime())); err != nil {
			return fmt.Errorf("set the time of a staged file: %w", err)
		}
	}
	stamp, got, err := stampOf(path)
	if err == nil && size >= 0 && got != size {
		err = fmt.Errorf("fetched %d bytes of %d", got, size)
	}
	changed := int64(0)
	if err == nil && !empty {
		changed, err = ctimeOf(path)
	}
	if err != nil {
		os.Remove(path)
		return fmt.Errorf("fetch %q for writing: %w", order.Join(st.Dir, st.Name), err)
	}
	f.content.Lock()
	defer f.content.Unlock()
	s.mu.Lock()
	if s.mu.Files[f.id] == nil {
		s.mu.Unlock()
		os.Remove(path)
		return syscall.ESTALE
	}
	pos := s.record(&state.Taken{File: f.id, Size: size, Stamp: stamp})
	f.changed.took(0, changed)
	s.mu.Unlock()
	return s.journal.Write(pos)
}

// stampOf returns what tells a change of a staged file.
func stampOf(path string) (stamp, size int64, err error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Mtim.Nano(), st.Size, nil
}

// File returns the file that is open.
func (h *Handle) File() *File { return h.file }

// OSFile returns the staged file, open for reading, or nil if the content is an
// object, or some of it is. The kernel may be given it as a backing file, for writing as
// well: it opens it anew. It must be neither closed nor used after Release.
func (h *Handle) OSFile() *os.File {
	if h.file.Partial() {
		return nil
	}
	if h.write {
		h.file.lent.Store(true)
	}
	return h.staged
}

// ReadAt reads as [File.ReadAt] does.
func (h *Handle) ReadAt(ctx context.Context, p []byte, off int64) (n int, staged bool, err error) {
	return h.file.ReadAt(ctx, p, off)
}

// WriteAt writes p at off. It waits a while where there is no room, and fails with
// ENOSPC then.
func (h *Handle) WriteAt(ctx context.Context, p []byte, off int64) (int, error) {
	if err := h.writable(ctx); err != nil {
		return 0, err
	}
	f := h.file
	n := 0
	err := f.space.withRoom(ctx, int64(len(p)), func() error {
		return f.change(ctx, off, int64(len(p)), func() error {
			m, err := f.content.write.WriteAt(p[n:], off+int64(n))
			n += m
			return err
		})
	})
	if err != nil && f.Partial() {
		return 0, err // what was not written whole counts as the base's still
	}
	return n, err
}

// Append writes p at the end.
func (h *Handle) Append(ctx context.Context, p []byte) (int, error) {
	if err := h.writable(ctx); err != nil {
		return 0, err
	}
	f := h.file
	n := 0
	err := f.space.withRoom(ctx, int64(len(p)), func() error {
		f.content.Lock()
		defer f.content.Unlock()
		f.touched.Store(true)
		info, err := f.content.write.Stat()
		if err != nil {
			return err
		}
		m, err := f.content.write.WriteAt(p[n:], info.Size())
		n += m
		return err
	})
	return n, err
}

// writable opens the staged file for writing.
func (h *Handle) writable(ctx context.Context) error {
	if !h.write {
		return syscall.EBADF
	}
	if err := h.file.space.room(ctx); err != nil {
		return err
	}
	f := h.file
	f.content.Lock()
	defer f.content.Unlock()
	if f.content.write != nil {
		return nil
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDWR)
	if err != nil {
		return fmt.Errorf("open staged file: %w", err)
	}
	f.content.write = file
	return nil
}

// Truncate sets the size.
func (h *Handle) Truncate(ctx context.Context, size int64) error {
	if err := h.writable(ctx); err != nil {
		return err
	}
	f := h.file
	f.content.Lock()
	defer f.content.Unlock()
	if err := f.cutTo(size); err != nil || size > 0 {
		return err
	}
	return f.space.anew(f)
}

// Allocate does what fallocate(2) does. What moves bytes makes a partial file whole first.
func (h *Handle) Allocate(ctx context.Context, mode uint32, off, size int64) error {
	if err := h.writable(ctx); err != nil {
		return err
	}
	f := h.file
	if off < 0 || size <= 0 {
		return syscall.EINVAL
	}
	changed := size
	switch {
	case mode&^unix.FALLOC_FL_KEEP_SIZE == 0:
		changed = 0 // it makes room, and nothing else
	case mode&(unix.FALLOC_FL_COLLAPSE_RANGE|unix.FALLOC_FL_INSERT_RANGE) != 0:
		if err := f.fill(ctx); err != nil {
			return err
		}
	}
	return f.space.withRoom(ctx, size, func() error {
		return f.change(ctx, off, changed, func() error {
			return f.cuts.during(func() error { return unix.Fallocate(int(f.content.write.Fd()), mode, off, size) })
		})
	})
}

// Flush is close(2): what was written survives the daemon from here on, and the
// loss of power soon. It returns the error of an earlier publication once, and EIO as
// long as the disk has lost a part of the content.
func (h *Handle) Flush(ctx context.Context) error {
	if !h.write {
		return nil
	}
	f := h.file
	if err := f.commit(false); err != nil {
		return err
	}
	f.space.ripen(f, true)
	if err := f.waitThrough(ctx); err != nil {
		return err
	}
	if st := f.state(); st.Staged && st.IsSuspect() {
		return lostOnDisk(&st, "close")
	}
	return f.report()
}

// Sync is fsync(2): what was written survives the loss of power when it returns.
func (h *Handle) Sync(ctx context.Context) error {
	f := h.file
	if err := f.commit(true); err != nil {
		return err
	}
	if err := f.waitThrough(ctx); err != nil {
		return err
	}
	return f.report()
}

// report returns why publication failed, if nobody was told yet.
func (f *File) report() error {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	if f.told {
		return nil
	}
	f.told = true
	return f.failure
}

// Release ends the handle. What was written through a mapping since the last Flush
// is committed.
func (h *Handle) Release() {
	if h.released.Swap(true) {
		return
	}
	f := h.file
	s := f.space
	f.content.Lock()
	if h.write {
		s.writers.Add(-1)
		f.content.writers--
	} else {
		f.content.readers--
	}
	if h.passing {
		f.content.passing--
	}
	commits := h.write && (!h.passing || f.content.writers <= f.content.passing)
	if f.content.writers == 0 && f.content.write != nil {
		f.content.write.Close() //nolint:errcheck // what it wrote is in the page cache; fsync tells
		f.content.write = nil
	}
	last := !f.busy()
	if last && f.content.read != nil {
		f.content.read.Close() //nolint:errcheck // it was only read
		f.content.read = nil
	}
	if last {
		f.unpin()
	}
	f.content.Unlock()
	if commits {
		if err := f.commit(false); err != nil {
			s.log.Error("a change after the last close could not be recorded", "file", f.id, "err", err)
		}
	}
	if h.write {
		s.unwatch(f)
	}
	if commits {
		s.ripen(f, true)
	}
	if last {
		s.released(f)
		st := f.state()
		s.settleLater(st.Dir, st.Name, 0)
	}
	wake(s.publishNow)
}

// released forgets f if it has no name any more, and its staged file if there is
// nothing in it. It returns when to try again, because somebody may still change it.
func (s *Space) released(f *File) time.Duration {
	f.committing.Lock()
	defer f.committing.Unlock()
	f.content.Lock()
	defer f.content.Unlock()
	st := f.state()
	unused := st.Linked && st.Staged && st.Gen == st.BaseGen && st.Object.ETag != ""
	if unused && !f.busy() {
		if changed, again := s.settled(f); changed || again > 0 {
			return again
		}
	}
	s.mu.Lock()
	left := s.mu.Files[f.id]
	var pos int64
	switch {
	case left == nil || f.busy():
		s.mu.Unlock()
		return 0
	case !left.Linked && s.mu.KeptOf[f.id] == 0 && (left.Suspect == 0 || left.Suspect != left.Gen):
		pos = s.release(f)
		s.mu.Unlock()
		wake(s.commitNow)
		if err := s.journal.Write(pos); err != nil {
			s.log.Error("forgetting an unlinked file failed", "file", f.id, "err", err)
		}
		return 0
	case left.Linked && unused:
		// It was opened for writing, and nothing was written.
		pos = s.record(&state.Reverted{File: f.id, Time: now()})
		f.present.Store(nil)
	default:
		s.mu.Unlock()
		return 0
	}
	s.mu.Unlock()
	if err := s.journal.Write(pos); err != nil {
		s.log.Error("giving up an unused copy failed", "file", f.id, "err", err)
		return 0
	}
	// A journal without this record comes to the same.
	os.Remove(s.path(f.id))
	return 0
}

// release forgets f, which has no name, and its staged file. s.mu is held and f.content locked.
func (s *Space) release(f *File) (pos int64) {
	f.forget()
	f.last.Staged = false
	pos = s.record(&state.Released{File: f.id})
	s.mu.doomed = append(s.mu.doomed, doomed{f.id, pos})
	return pos
}
