package writeback

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/oss"
)

// Times are when a file was written and when it was changed last, in nanoseconds since
// 1970; 0 is not known.
type Times struct{ Mtime, Ctime int64 }

// changeTime is when a file was changed last, where its staged file does not tell: of a
// rename, of a change of mode or owner, and of all that was before it was published.
type changeTime struct {
	mu struct {
		sync.Mutex
		// at is the last such change, 0 if none is known.
		at int64
		// ours is a time of change that the staged file has by our own doing: it was fetched.
		ours int64
		// moving says that the cache takes the staged file, which changes its time.
		moving bool
	}
}

// mark notes a change that the staged file does not tell. It is a later one than those
// before.
func (c *changeTime) mark(t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.at = max(t, c.mu.at+1)
}

// carry notes what is known of the time before.
func (c *changeTime) carry(t int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.at = max(t, c.mu.at)
}

// of returns when the file was changed last; staged is the time of its staged file, 0 if
// there is none.
func (c *changeTime) of(staged int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ofLocked(staged)
}

// or is of, or mtime where nothing is known.
func (c *changeTime) or(staged int64, mtime time.Time) time.Time {
	if at := c.of(staged); at != 0 {
		return time.Unix(0, at)
	}
	return mtime
}

func (c *changeTime) ofLocked(staged int64) int64 {
	if c.mu.moving || staged == c.mu.ours {
		return c.mu.at
	}
	return max(c.mu.at, staged)
}

// took notes that the staged file has its time from us. before is what it had, 0 if there
// was none.
func (c *changeTime) took(before, after int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != 0 {
		c.mu.at = c.ofLocked(before)
	}
	c.mu.ours, c.mu.moving = after, false
}

// move notes that the staged file, which had a time, is to be moved away.
func (c *changeTime) move(staged int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.at = c.ofLocked(staged)
	c.mu.moving = true
}

// moved ends move. staged is the time of what is left there, 0 if nothing is.
func (c *changeTime) moved(staged int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.ours, c.mu.moving = staged, false
}

// ctimeOf returns the time of the last change of a staged file.
func ctimeOf(path string) (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return st.Ctim.Nano(), nil
}

// MarkChanged notes that something of f was changed that its content does not tell: its
// name, its mode, its owner or an attribute. t is in nanoseconds since 1970.
func (f *File) MarkChanged(t int64) { f.changed.mark(t) }

// CarryChanged notes when it was changed last before it was a file of the space.
func (f *File) CarryChanged(t int64) { f.changed.carry(t) }

// MayBeMapped says that the kernel is given the staged file, which is open for writing.
func (f *File) MayBeMapped() { f.mapped.Store(true) }

// Forgotten reports whether the base tree has taken f over.
func (f *File) Forgotten() bool {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	return f.forgotten
}

// Times returns what [File.Stat] tells.
func (f *File) Times() (Times, error) {
	a, err := f.Stat()
	return Times{Mtime: a.Mtime.UnixNano(), Ctime: a.Ctime.UnixNano()}, err
}

// Loose reports whether stores through a mapping may change the staged file without that
// anybody is told: what was said of its times does not stay true.
func (f *File) Loose() bool {
	if !f.mapped.Load() {
		return false
	}
	f.content.RLock()
	defer f.content.RUnlock()
	if f.content.writers > 0 {
		return true
	}
	if !f.known().Staged {
		return false
	}
	if file := f.content.read; file != nil {
		return !f.tightened(file)
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDONLY)
	if err != nil {
		return true // it is being taken away
	}
	defer file.Close()
	return !f.tightened(file)
}

// tightened reports whether no writable mapping of a staged file without writers is left,
// which stays so until it is opened again. f.content is held.
func (f *File) tightened(file *os.File) bool {
	tight, err := sealed(file)
	if err != nil || !tight {
		return false
	}
	f.mapped.Store(false)
	return true
}

// TouchNow sets the time of the last write of a file that is open for writing, as truncate
// does that leaves the size as it is, and an open with O_TRUNC.
func (f *File) TouchNow() error {
	f.content.RLock()
	defer f.content.RUnlock()
	if !f.known().Staged {
		return nil
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_NOW}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, f.space.path(f.id), times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the time of a staged file: %w", err)
	}
	return nil
}

// toldMost is how many files without a state are remembered, at 48 bytes each: those of
// the last half of them at least.
const toldMost = 1 << 16

// toldTimes remembers what programs were told of files that the base tree has again. The
// object knows its time in seconds, and none of the last change.
type toldTimes struct{ young, old map[uint64]toldOf }

// toldOf is what was told of an object, with the time that the store gave it, in seconds.
type toldOf struct {
	Times
	modified int64
}

// put remembers t of an object. What was not asked for longest goes.
func (m *toldTimes) put(o oss.Object, t Times) {
	if m.young == nil || len(m.young) >= toldMost/2 {
		m.old, m.young = m.young, make(map[uint64]toldOf)
	}
	m.young[objectHash(o)] = toldOf{t, o.ModTime.Unix()}
}

// get returns what was remembered of an object.
func (m *toldTimes) get(o oss.Object) (Times, bool) {
	if len(m.young)+len(m.old) == 0 {
		return Times{}, false
	}
	h := objectHash(o)
	t, ok := m.young[h]
	if !ok {
		t, ok = m.old[h]
	}
	then := o
	then.ModTime = time.Unix(t.modified, 0)
	if !ok || !o.Same(then) {
		return Times{}, false // or somebody else has put the same bytes there since
	}
	return t.Times, true
}

// objectHash stands for a version. Its time does not count: a listing and an upload may
// tell it a little differently.
func objectHash(o oss.Object) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, part := range []string{o.Key, "\x00", o.ETag, "\x00", fmt.Sprint(o.Size)} {
		_, _ = h.WriteString(part) // it never fails
	}
	return h.Sum64()
}

// Tell makes the space remember what programs were told of an object that is no file of
// it, for when it becomes one.
func (s *Space) Tell(o oss.Object, t Times) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.told.put(o, t)
}

// remember makes the space remember what programs were told of f, the content of which is an
// object. s.mu is held.
func (s *Space) remember(f *File, o oss.Object) {
	mtime := s.mu.Files[f.id].Mtime()
	s.mu.told.put(o, Times{Mtime: mtime, Ctime: f.changed.or(0, time.Unix(0, mtime)).UnixNano()})
}

// told returns what is remembered of an entry of the base tree, nil if nothing is. s.mu
// is held.
func (s *Space) told(o oss.Object) *Times {
	if t, ok := s.mu.told.get(o); ok {
		return &t
	}
	return nil
}
