package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

const (
	// leastChunk is the size of the chunks in which a partial file is fetched, in bytes.
	// It grows with the file, see ChunkOf.
	leastChunk = 1 << 20
	// wholeBelow is the size of the smallest object that is opened for writing without
	// being fetched.
	wholeBelow = 8 << 20
)

// A partial file is a staged file that lacks bytes, which are those of an object: what
// is read of them comes from the cache, what is written is kept, and what a write leaves
// of a chunk is fetched before. All reads and writes of it go through here.

// Partial reports whether the staged file lacks bytes, or did when it was opened: the
// kernel must not be given it.
func (f *File) Partial() bool { return f.present.Load() != nil }

// lacks reports whether the staged file lacks bytes.
func (f *File) lacks() bool { return f.present.Load().Lacks() }

// stagePartly makes the content, an object, a staged file without any of its bytes. It
// returns false where the object is better fetched: a small one, one that the cache
// has, and one that a request of ours may be replacing. f.committing is held.
func (f *File) stagePartly(ctx context.Context, st *state.File) (done bool, err error) {
	s := f.space
	obj := st.Object
	if !st.Linked || st.Symlink || obj.Size < s.cfg.limits.whole || s.cache.Whole(obj) {
		return false, nil
	}
	// What is written is not accepted before it is known that the rest is there and may be
	// read: of an archived object a HEAD tells the one and not the other.
	_, err = s.bucket.ReadRange(ctx, oss.RangeRequest{Object: obj, Offset: obj.Size - 1, Buffer: make([]byte, 1)})
	switch {
	case errors.Is(err, oss.ErrNotFound), errors.Is(err, oss.ErrChanged):
		return false, nil // to fetch it meets that
	case err != nil:
		return false, fmt.Errorf("open %q for writing: %w", order.Join(st.Dir, st.Name), err)
	}
	path := s.path(f.id)
	file, err := openStagedFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err == nil {
		err = errors.Join(file.Truncate(obj.Size), file.Close())
	}
	if err == nil {
		err = chtime(path, st.Mtime())
	}
	var stamp, changed int64
	if err == nil {
		stamp, _, err = stampOf(path)
	}
	if err == nil {
		changed, err = ctimeOf(path)
	}
	if err != nil {
		os.Remove(path)
		return false, fmt.Errorf("make staged file of %q: %w", order.Join(st.Dir, st.Name), err)
	}
	p := state.Partial{Base: obj, Limit: obj.Size, Chunk: presence.ChunkOf(s.cfg.limits.chunk, obj.Size)}
	f.content.Lock()
	defer f.content.Unlock()
	s.mu.Lock()
	now := s.mu.Files[f.id]
	k := (*state.Key)(nil)
	if now != nil {
		k = s.mu.Keys[now.Key]
	}
	if now == nil || !now.Linked || now.Object != obj || k == nil || now.Key == obj.Key && (k.Flight != 0 || len(k.Maybe) > 0) {
		s.mu.Unlock()
		os.Remove(path)
		return false, nil
	}
	pos := s.record(&state.Group{Records: []state.Record{
		&state.Taken{File: f.id, Size: obj.Size, Stamp: stamp}, &state.Lacks{File: f.id, Partial: p},
	}})
	f.present.Store(p.Presence())
	f.changed.took(0, changed)
	// The kernel has nothing of this staged file.
	f.lent.Store(false)
	f.unsure.Store(false)
	s.mu.Unlock()
	return true, s.journal.Write(pos)
}

// partialNow returns the record of which bytes the staged file has, nil if the state
// says that. s.mu is held.
func (f *File) partialNow(st *state.File) state.Record {
	n := f.present.Load()
	switch {
	case st.Partial == nil:
		return nil
	case !n.Lacks():
		return &state.Lacks{File: f.id}
	}
	limit, local := n.Record()
	if limit == st.Partial.Limit && local == st.Partial.Local {
		return nil
	}
	p := *st.Partial
	p.Limit, p.Local = limit, local
	return &state.Lacks{File: f.id, Partial: p}
}

// complete lays the base's bytes of missing over those that were read from the staged
// file at off.
func (f *File) complete(ctx context.Context, missing []presence.Extent, p []byte, off int64) error {
	for _, e := range missing {
		if err := f.fetch(ctx, p[e.Off-off:e.End()-off], e.Off); err != nil {
			return err
		}
	}
	return nil
}

// change carries out do, which changes size bytes at off of the staged file. What the
// base has of chunks that it changes in part is fetched first.
func (f *File) change(ctx context.Context, off, size int64, do func() error) error {
	for {
		n := f.present.Load()
		if n == nil {
			done, err := f.changeWhole(do)
			if done {
				return err
			}
			continue
		}
		torn := n.Torn(off, size)
		fetched := make([][]byte, len(torn))
		for i, e := range torn {
			fetched[i] = make([]byte, e.Size)
			if err := f.fetch(ctx, fetched[i], e.Off); err != nil && !errors.Is(err, errNotPartial) {
				return err
			} else if err != nil {
				fetched[i] = nil
			}
		}
		done, err := f.changePartial(n, torn, fetched, off, size, do)
		if done {
			return err
		}
	}
}

// changeWhole is change of a file that lacks nothing; done is false if it does.
func (f *File) changeWhole(do func() error) (done bool, err error) {
	f.content.RLock()
	defer f.content.RUnlock()
	if f.present.Load() != nil {
		return false, nil
	}
	f.touched.Store(true)
	return true, do()
}

// changePartial is change once what it leaves of chunks is fetched; done is false if that
// is not what is needed any more.
func (f *File) changePartial(n *presence.Set, torn []presence.Extent, fetched [][]byte, off, size int64, do func() error) (done bool, err error) {
	f.content.Lock()
	defer f.content.Unlock()
	if f.present.Load() != n {
		return false, nil
	}
	var need []int
	for _, e := range n.Torn(off, size) {
		i := 0
		for i < len(torn) && torn[i].Off != e.Off {
			i++
		}
		if i == len(torn) || int64(len(fetched[i])) < e.Size {
			return false, nil
		}
		fetched[i] = fetched[i][:e.Size] // the rest was cut off meanwhile
		need = append(need, i)
	}
	for _, i := range need {
		if err := f.put(fetched[i], torn[i].Off); err != nil {
			return true, err
		}
	}
	f.touched.Store(true)
	n.Disturb(off)
	if err := do(); err != nil {
		return true, err
	}
	n.Changed(off, size)
	return true, nil
}

// put writes to the staged file. f.content is locked.
func (f *File) put(p []byte, off int64) error {
	if f.content.write == nil {
		file, err := openStagedFile(f.space.path(f.id), os.O_RDWR)
		if err != nil {
			return fmt.Errorf("open staged file: %w", err)
		}
		defer file.Close()
		_, err = file.WriteAt(p, off)
		return err
	}
	_, err := f.content.write.WriteAt(p, off)
	return err
}

// cutTo sets the size of the staged file. What is cut off must not come back from the base
// when the file is extended: of a committed file the journal says so before anything
// else can be written, and the disk has it, for the loss of power may keep what is written
// later. So it is, too, where the last commit lacks nothing, and the loss of power goes back to
// one that does. f.content is locked.
func (f *File) cutTo(size int64) error {
	s := f.space
	f.touched.Store(true)
	path := s.path(f.id)
	if err := f.cuts.during(func() error { return os.Truncate(path, size) }); err != nil {
		return fmt.Errorf("truncate staged file: %w", err)
	}
	lowered := false
	if n := f.present.Load(); n != nil {
		n.Disturb(size)
		lowered = n.Cut(size)
	}
	// A commit that comes after this look knows the limit.
	st := f.state()
	committed := lowered && st.Partial != nil && st.Gen != st.BaseGen
	if back := st.Vouched; !committed && (back == nil || size >= back.Limit) {
		return nil
	}
	file, err := openStagedFile(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("open staged file: %w", err)
	}
	defer file.Close()
	if err := s.disk.Sync(file); err != nil {
		return s.spoil(f, err)
	}
	s.mu.Lock()
	pos := s.record(&state.Cut{File: f.id, Limit: size})
	s.mu.Unlock()
	return s.journal.Sync(pos)
}

// fill fetches all that the staged file lacks. Its time stays: nothing was changed.
func (f *File) fill(ctx context.Context) error {
	s := f.space
	for {
		n := f.present.Load()
		e, lacks := n.First()
		if !lacks {
			return nil
		}
		b := make([]byte, e.Size)
		if err := f.fetch(ctx, b, e.Off); errors.Is(err, errNotPartial) {
			continue
		} else if err != nil {
			return err
		}
		err := s.withRoom(ctx, e.Size, func() error { return f.fillOne(n, b, e) })
		if err != nil {
			return fmt.Errorf("fetch the rest of a staged file: %w", err)
		}
	}
}

// fillOne makes a chunk local, unless it is.
func (f *File) fillOne(n *presence.Set, b []byte, e presence.Extent) error {
	f.content.Lock()
	defer f.content.Unlock()
	if f.present.Load() != n {
		return nil
	}
	missing := n.Absent(e.Off, e.Size)
	if len(missing) == 0 {
		return nil
	}
	path := f.space.path(f.id)
	stamp, _, err := stampOf(path)
	if err != nil {
		return err
	}
	before, err := ctimeOf(path)
	if err != nil {
		return err
	}
	if err := f.put(b[:min(e.Size, missing[0].Size)], e.Off); err != nil {
		return err
	}
	if err := chtime(path, stamp); err != nil {
		return err
	}
	after, err := ctimeOf(path)
	if err != nil {
		return err
	}
	f.changed.took(before, after)
	n.Changed(e.Off, e.Size)
	f.space.mu.Lock()
	f.space.count(f.id)
	f.space.mu.Unlock()
	return nil
}

// opened makes a partial file that lacks nothing any more an ordinary one, when it is
// opened anew, and keeps what the cache has of one that does. f.content is locked.
func (f *File) opened() {
	n := f.present.Load()
	switch {
	case n == nil:
	case n.Lacks():
		if st := f.state(); st.Partial != nil {
			f.pin(st.Partial.Base)
		}
	case !f.busy():
		if st := f.state(); st.Partial != nil && st.Gen != st.BaseGen && st.Partial.Limit > 0 {
			return // a change of size has to tell the journal
		}
		f.present.Store(nil)
		f.unpin()
	}
}

// letGo ends the staging of a partial file that was published: what it has of its own is
// in the object as well. f.committing is held and f.content locked.
func (f *File) letGo() error {
	s := f.space
	changed, err := ctimeOf(s.path(f.id))
	if err != nil {
		return err
	}
	s.mu.Lock()
	st := s.mu.Files[f.id]
	if st == nil {
		s.mu.Unlock()
		return nil
	}
	f.changed.took(changed, 0)
	pos := s.record(&state.Adopted{File: f.id})
	s.survives(f.id, pos)
	s.mu.Unlock()
	f.present.Store(nil)
	f.unpin()
	if f.content.read != nil {
		f.content.read.Close() //nolint:errcheck // it was only read
		f.content.read = nil
	}
	if err := s.journal.Write(pos); err != nil {
		return err
	}
	s.removeStaged(f.id)
	return nil
}

// mixed reads a partial file as it is now.
type mixed struct {
	ctx  context.Context
	file *File
	err  error
}

// ReadAt implements [io.ReaderAt].
func (m *mixed) ReadAt(p []byte, off int64) (int, error) {
	n, staged, err := m.file.ReadAt(m.ctx, p, off)
	if !staged && err == nil {
		err = errSuperseded
	}
	if err != nil && !errors.Is(err, io.EOF) {
		m.err = err
	}
	return n, err
}

// errBaseGone means that the object that a partial file rests on was replaced or removed
// by somebody else.
var errBaseGone = errors.New("the object that the rest of it was to come from was replaced or removed by somebody else: " +
	"unmount with --force, and `pailfs staged export` copies out what was written")

// errNotPartial means that a file does not lack what was to be fetched any more, or is an
// object again: it is to be looked at anew.
var errNotPartial = errors.New("the file is not partial any more")

// fetch reads what the base has at off.
func (f *File) fetch(ctx context.Context, p []byte, off int64) error {
	s := f.space
	for {
		st := f.state()
		if st.Partial == nil {
			return errNotPartial
		}
		base := st.Partial.Base
		if off+int64(len(p)) > base.Size {
			return errNotPartial // it was cut and published meanwhile
		}
		f.repin(base)
		n, err := s.cache.ReadAt(ctx, base, p, off)
		if err == nil && n < len(p) {
			err = io.ErrUnexpectedEOF
		}
		if n == len(p) && (err == nil || errors.Is(err, io.EOF)) {
			f.baseGone.Store(false)
			return nil
		}
		if !errors.Is(err, oss.ErrChanged) && !errors.Is(err, oss.ErrNotFound) {
			return fmt.Errorf("read %q, at %d of its object: %w", order.Join(st.Dir, st.Name), off, err)
		}
		if err := s.follow(ctx, f, base, err); err != nil {
			return err
		}
	}
}

// follow finds out what became of the base of f, which is not there any more: nil if it
// was published anew by us, and there is another one.
func (s *Space) follow(ctx context.Context, f *File, base oss.Object, cause error) error {
	moved := func() (st state.File, moved bool) {
		st = f.state()
		return st, st.Partial == nil || st.Partial.Base != base
	}
	if _, moved := moved(); moved {
		return nil
	}
	info, err := s.bucket.Head(ctx, base.Key)
	if err != nil && !errors.Is(err, oss.ErrNotFound) {
		return fmt.Errorf("look what became of %q: %w", base.Key, err)
	}
	if !state.SameBytes(info.Object, base) {
		if info, err = s.undisputed(ctx, info, f.tried(base)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.mu.Files[f.id]
	if st == nil || st.Partial == nil || st.Partial.Base != base {
		return nil
	}
	for _, i := range st.Partial.Tried {
		if info.ETag != "" && i.Matches(info) {
			s.record(&state.Rebased{File: f.id, Base: info.Object})
			return nil
		}
	}
	path := order.Join(st.Dir, st.Name)
	if state.SameBytes(info.Object, base) {
		return fmt.Errorf("read %q: %w: %w", path, oss.ErrUnavailable, hide(cause))
	}
	if !f.baseGone.Swap(true) {
		s.log.Error("somebody else replaced or removed an object of which only a part was fetched: what was written here is kept, but cannot be published",
			"path", path, "key", base.Key, "etag", base.ETag)
	}
	return fmt.Errorf("%q, %q of %v: %w: %w", path, base.Key, base.ModTime.UTC().Format(time.RFC3339), errBaseGone, syscall.ESTALE)
}

// tried returns what requests of ours may have made of base, if that is the base of f still.
func (f *File) tried(base oss.Object) []state.Intent {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	if st := f.space.mu.Files[f.id]; st != nil && st.Partial != nil && st.Partial.Base == base {
		return slices.Clone(st.Partial.Tried)
	}
	return nil
}

// hide returns an error of the same text and no kind.
func hide(err error) error { return errors.New(err.Error()) }

// pin keeps what the cache has of the base, and what it knows of how it is read, while
// somebody has the file open.
func (f *File) pin(base oss.Object) {
	f.pinned.Lock()
	defer f.pinned.Unlock()
	if f.pinned.done == nil {
		f.pinned.object, f.pinned.done = base, f.space.cache.Pin(base)
	}
}

// repin does that with another base.
func (f *File) repin(base oss.Object) {
	f.pinned.Lock()
	defer f.pinned.Unlock()
	if f.pinned.done == nil || f.pinned.object == base {
		return
	}
	f.pinned.done()
	f.pinned.object, f.pinned.done = base, f.space.cache.Pin(base)
}

func (f *File) unpin() {
	f.pinned.Lock()
	defer f.pinned.Unlock()
	if f.pinned.done != nil {
		f.pinned.done()
		f.pinned.done = nil
	}
}
