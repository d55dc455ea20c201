package writeback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
	"github.com/pailfs/pailfs/oss"
)

// File is a file or symlink that was changed through the mount. It stays the same
// while it is renamed, unlinked or published; only where its content is changes.
type File struct {
	space *Space
	id    order.FileID

	// committing is held while the content is compared with what was committed last,
	// and while it becomes a staged file, which may take a download.
	committing turn

	// adopting is held while the cache takes the staged file, which it reads for that:
	// opens to read wait, stat and reads do not.
	adopting sync.Mutex

	// content guards where the content is and who has it open.
	content struct {
		sync.RWMutex
		// read and write are the staged file, as far as it is open.
		read, write *os.File
		// readers and writers count open handles; passing those of the writers that only
		// change the size.
		readers, writers, passing int
	}
	// touched says that the staged file was changed in a way that size and time may
	// not tell.
	touched atomic.Bool
	// lent says that the kernel may write to the staged file unseen; unsure that it
	// may have done so since the last commit without the time showing it. sum is the
	// CRC-32C of the last content that was committed inline; f.committing guards it.
	lent, unsure atomic.Bool
	sum          uint32
	// cuts are those of the staged file, seen is what it was when it was last compared with what
	// was committed; f.committing guards seen.
	cuts cuts
	seen extentSeen
	// mapped says that the kernel was given the staged file for writing, and may have
	// mappings of it still.
	mapped atomic.Bool
	// changed is when it was changed, beside what the staged file tells.
	changed changeTime
	// named says that the staged file's name is on the disk; f.committing guards it.
	named bool
	// meta is what the object has that the file was made from, once it was asked;
	// f.committing guards it.
	meta map[string]string
	// opens counts the handles for writing that there ever were.
	opens atomic.Int64
	// opening counts the opens that are under way; giveWay, if set, ends an adoption,
	// for which they would have to wait.
	opening atomic.Int64
	giveWay atomic.Pointer[context.CancelFunc]

	// present says which bytes of the staged file are its own, nil if all are. It is
	// changed under f.content. baseGone says that those of others cannot be had any more.
	present  atomic.Pointer[presence.Set]
	baseGone atomic.Bool
	// pinned is what is kept of the object that has the others.
	pinned struct {
		sync.Mutex
		object oss.Object
		done   func()
	}

	// The rest is guarded by Space.mu.

	// failure is why the last publication failed; told says that somebody knows.
	failure error
	told    bool
	// meant is the last generation that somebody committed by fsync.
	meant order.Generation
	// rewriting is what is known of one that is written anew.
	rewriting rewriting
	// fresh says that the content began with nothing and was not published since. It
	// saves a comparison.
	fresh bool
	// forgotten says that the base tree has taken over, and last what the state was, nil
	// until then: most files that wait to be published have no use for the room.
	forgotten bool
	last      *state.File
}

// file returns the living file of an id. s.mu is held.
func (s *Space) file(id order.FileID) *File {
	f := s.mu.files[id]
	if f == nil {
		f = &File{space: s, id: id, committing: make(turn, 1)}
		if st := s.mu.Files[id]; st != nil && st.Partial != nil {
			f.present.Store(st.Partial.Presence())
		}
		s.mu.files[id] = f
	}
	return f
}

// state returns a copy of the state of f. One that is gone has a zero ID.
func (f *File) state() state.File {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	if st := f.space.mu.Files[f.id]; st != nil {
		return *st
	}
	return state.File{}
}

// known returns the state of f, or the last one it had.
func (f *File) known() state.File {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	if st := f.space.mu.Files[f.id]; st != nil {
		return *st
	}
	if f.last != nil {
		return *f.last
	}
	return state.File{}
}

// forget lets go of f. Space.mu is held; the record that removes its state follows.
func (f *File) forget() {
	f.forgotten = true
	if f.last == nil {
		f.last = new(state.File)
	}
	if st := f.space.mu.Files[f.id]; st != nil {
		*f.last = *st
	}
	delete(f.space.mu.files, f.id)
	f.space.mu.undurable.forget(f.id)
}

// ID is a number that no other file of the staging directory has or will have.
func (f *File) ID() uint64 { return f.id }

// Origin returns the object that the file was made from, if it was.
func (f *File) Origin() (oss.Object, bool) {
	st := f.known()
	return st.Origin, st.Origin.ETag != ""
}

// Path returns where the file is, and whether it is there: not if it was unlinked.
func (f *File) Path() (dir, base string, linked bool) {
	st := f.known()
	return st.Dir, st.Name, st.Linked
}

// Lost reports whether f has lost its name, and with it its content: nobody had it open.
func (f *File) Lost() bool {
	f.space.mu.Lock()
	defer f.space.mu.Unlock()
	return f.forgotten && !f.last.Linked
}

// Content returns what the content is: the staged file, or an object.
func (f *File) Content() (obj oss.Object, staged bool) {
	st := f.known()
	return st.Object, st.Staged
}

// Attr is what stat tells.
type Attr struct {
	Size         int64
	Blocks       int64 // of 512 bytes
	Mtime, Ctime time.Time
	Symlink      bool
	// Mode, UID and GID count if Set.
	Mode, UID, GID uint32
	Set            bool
	// Linked says that the file has a name.
	Linked bool
}

// Stat returns the attributes now; for a staged file those of its last write.
func (f *File) Stat() (Attr, error) {
	f.content.RLock()
	defer f.content.RUnlock()
	st := f.known()
	a := Attr{
		Size: max(st.Size, 0), Symlink: st.Symlink, Linked: st.Linked,
		Mode: st.Attr.Mode, UID: st.Attr.UID, GID: st.Attr.GID, Set: st.Attr.Set,
	}
	a.Mtime = time.Unix(0, st.Mtime())
	if !st.Staged {
		a.Ctime = f.changed.or(0, a.Mtime)
		a.Size = st.Object.Size
		a.Blocks = (a.Size + 511) / 512
		return a, nil
	}
	var stat syscall.Stat_t
	var err error
	if f.content.read != nil {
		err = syscall.Fstat(int(f.content.read.Fd()), &stat)
	} else {
		err = syscall.Stat(f.space.path(f.id), &stat)
	}
	if err != nil {
		return Attr{}, fmt.Errorf("stat staged file of %q: %w", order.Join(st.Dir, st.Name), err)
	}
	a.Size, a.Blocks = stat.Size, stat.Blocks
	if f.Partial() {
		a.Blocks = (a.Size + 511) / 512 // what is not here is no hole
	}
	a.Mtime = time.Unix(stat.Mtim.Unix())
	a.Ctime = f.changed.or(stat.Ctim.Nano(), a.Mtime)
	return a, nil
}

// ReadAt reads from the staged file, as [io.ReaderAt] does. If staged is false the
// content is the object that Content returns now, which the cache reads. Of a file of
// which only parts are staged the rest is fetched; ESTALE says that it is gone.
func (f *File) ReadAt(ctx context.Context, p []byte, off int64) (n int, staged bool, err error) {
	for {
		n, missing, staged, err := f.readStaged(p, off)
		if len(missing) == 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, staged, err
		}
		switch failed := f.complete(ctx, missing, p[:n], off); {
		case failed == nil:
			return n, staged, err
		case !errors.Is(failed, errNotPartial):
			return 0, true, failed
		}
	}
}

// readStaged reads what the staged file has, and returns what of that is not its own.
func (f *File) readStaged(p []byte, off int64) (n int, missing []presence.Extent, staged bool, err error) {
	f.content.RLock()
	defer f.content.RUnlock()
	if !f.state().Staged {
		return 0, nil, false, nil
	}
	if f.content.read != nil {
		n, err = f.content.read.ReadAt(p, off)
		return n, f.present.Load().Absent(off, int64(n)), true, err
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDONLY)
	if err != nil {
		return 0, nil, true, fmt.Errorf("read staged file: %w", err)
	}
	defer file.Close()
	n, err = file.ReadAt(p, off)
	return n, f.present.Load().Absent(off, int64(n)), true, err
}

// target returns the content of a symlink.
func (f *File) target(ctx context.Context) (string, error) {
	st := f.state()
	size := max(st.Size, 0)
	if !st.Staged {
		size = st.Object.Size
	}
	if size > maxTarget {
		return "", syscall.ENAMETOOLONG
	}
	b := make([]byte, size)
	n, staged, err := f.ReadAt(ctx, b, 0)
	switch {
	case staged && (err == nil || errors.Is(err, io.EOF)):
		return string(b[:n]), nil
	case staged:
		return "", err
	case st.Staged:
		return f.target(ctx) // it was published in between
	case st.Object.ETag == "":
		return "", syscall.ESTALE
	}
	_, err = f.space.bucket.ReadRange(ctx, oss.RangeRequest{Object: st.Object, Buffer: b[:st.Object.Size]})
	if now := f.state(); err != nil && now.ID != 0 && (now.Staged || now.Object != st.Object) {
		// It was renamed, and meanwhile copied to its new key.
		return f.target(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("read symlink: %w", err)
	}
	return string(b), nil
}

// maxTarget is the longest target of a symlink, in bytes.
const maxTarget = 4095

// openStaged opens the staged file for reading if it is not. f.content is locked.
func (f *File) openStaged() error {
	if f.content.read != nil {
		return nil
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("open staged file: %w", err)
	}
	f.content.read = file
	return nil
}

// closeUnused closes the staged file if nobody has f open.
func (f *File) closeUnused() {
	f.content.Lock()
	defer f.content.Unlock()
	if !f.busy() && f.content.read != nil {
		f.content.read.Close() //nolint:errcheck // it was only read
		f.content.read = nil
	}
}

// busy reports whether somebody has f open. f.content is locked.
func (f *File) busy() bool { return f.content.readers+f.content.writers > 0 }

// beingWritten reports whether somebody writes to f and will commit that.
func (f *File) beingWritten() bool {
	f.content.RLock()
	defer f.content.RUnlock()
	return f.content.writers > f.content.passing
}

// HasWriters reports whether somebody has f open for writing.
func (f *File) HasWriters() bool {
	f.content.RLock()
	defer f.content.RUnlock()
	return f.content.writers > 0
}
