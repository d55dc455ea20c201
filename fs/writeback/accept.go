package writeback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

var (
	// ErrNotLost means that a path names nothing that the disk has lost.
	ErrNotLost = errors.New("the disk has lost nothing of it")
	// ErrStillOpen means that a lost file cannot be looked at because programs have it open.
	ErrStillOpen = errors.New("programs have it open: close it everywhere first")
	// ErrLooksOtherwise means that a lost file is not what somebody has looked at.
	ErrLooksOtherwise = errors.New("it is not what was shown: look at it again")
)

// Remains are what there is of a file that the disk lost something of.
type Remains struct {
	Path string `json:"path"`
	// Bytes is how long it is, Modified when it was written last.
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified,omitzero"`
	// Sum is the CRC-64 of what the disk has.
	Sum string `json:"crc64,omitempty"`
	// Differs counts the bytes that programs read otherwise than the disk has them, from
	// FirstDiffers on: the kernel holds them in memory, and drops them at any time.
	Differs      int64 `json:"differs,omitempty"`
	FirstDiffers int64 `json:"first_differs,omitempty"`
	// Remembered says that the file system could not be told to read past the kernel's memory.
	Remembered bool `json:"remembered,omitempty"`
	// Unlinked counts the files that have lost the name since: there is nothing to publish,
	// and to accept that is to let them go.
	Unlinked int `json:"unlinked,omitempty"`
}

// Remains reads all of a file that the disk lost something of, as the disk has it, and
// changes nothing.
//
// Errors: [ErrNotLost], [ErrStillOpen], those of the disk and of ctx.
func (s *Space) Remains(ctx context.Context, path string) (Remains, error) {
	f, unlinked := s.lostAt(path)
	if f == nil {
		return s.unlinkedRemains(path, unlinked)
	}
	if err := f.committing.wait(ctx); err != nil {
		return Remains{}, err
	}
	defer f.committing.Unlock()
	if err := f.rests(); err != nil {
		return Remains{}, fmt.Errorf("look at %q: %w", path, err)
	}
	r, err := f.remains(ctx)
	r.Path = path
	return r, err
}

// Accept takes what the disk has of a lost file, which is to be what [Space.Remains] told with
// that sum, for its content: it is read from the disk, written anew to another file, brought to
// the disk, read from there again and compared, and takes the place of what was lost. Then it
// is published as any change is. What has no name any more is let go.
//
// Errors: those of Remains, and [ErrLooksOtherwise].
func (s *Space) Accept(ctx context.Context, path, sum string) (Remains, error) {
	f, unlinked := s.lostAt(path)
	if f == nil {
		r, err := s.unlinkedRemains(path, unlinked)
		switch {
		case err != nil:
			return r, err
		case sum != "":
			// It had its name when it was shown.
			return r, fmt.Errorf("accept %q: %w", path, ErrLooksOtherwise)
		}
		return r, s.letGoLost(ctx, unlinked)
	}
	if err := s.room(ctx); err != nil {
		return Remains{}, err
	}
	if err := f.committing.wait(ctx); err != nil {
		return Remains{}, err
	}
	defer f.committing.Unlock()
	if err := f.rests(); err != nil {
		return Remains{}, fmt.Errorf("accept %q: %w", path, err)
	}
	r, err := f.remains(ctx)
	r.Path = path
	switch {
	case err != nil:
		return r, err
	case r.Sum != sum:
		return r, fmt.Errorf("accept %q: %w", path, ErrLooksOtherwise)
	}
	if err := f.renewStaged(ctx, r); err != nil {
		return r, fmt.Errorf("accept %q: %w", path, err)
	}
	s.log.Warn("what the disk has of a lost file was accepted as its content", "path", path, "bytes", r.Bytes, "crc64", r.Sum, "differs", r.Differs)
	return r, nil
}

// lostAt returns the lost file that path names, or, if there is none, those that had the name.
func (s *Space) lostAt(path string) (named *File, unlinked []*File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.mu.Tally.Suspects {
		st := s.mu.Files[id]
		switch {
		case order.Join(st.Dir, st.Name) != path:
		case st.Linked:
			return s.file(id), nil
		default:
			unlinked = append(unlinked, s.file(id))
		}
	}
	slices.SortFunc(unlinked, func(a, b *File) int { return int(a.id) - int(b.id) })
	return nil, unlinked
}

// rests returns nil if f is a lost file that nobody has open or can change. f.committing is held.
func (f *File) rests() error {
	f.content.RLock()
	defer f.content.RUnlock()
	if st := f.state(); !st.IsSuspect() || !st.Staged {
		return ErrNotLost
	}
	if f.busy() {
		return ErrStillOpen
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("open staged file: %w", err)
	}
	defer file.Close()
	if tight, err := sealed(file); err != nil {
		return err
	} else if !tight {
		return ErrStillOpen
	}
	return nil
}

// remains reads what the disk has of f, and compares it with what programs read.
func (f *File) remains(ctx context.Context) (Remains, error) {
	path := f.space.path(f.id)
	stamp, size, err := stampOf(path)
	if err != nil {
		return Remains{}, err
	}
	r := Remains{Bytes: size, Modified: time.Unix(0, stamp).UTC()}
	seen, err := os.Open(path)
	if err != nil {
		return r, err
	}
	defer seen.Close()
	look := newComparison(seen)
	if r.Remembered, err = readPastMemory(ctx, path, size, look.compare); err != nil {
		return r, fmt.Errorf("read what the disk has of %q: nothing was changed: %w", f.space.shownPath(f.id), err)
	}
	r.Sum, r.Differs, r.FirstDiffers = sumText(uint64(look.sum)), look.differs, look.first
	return r, nil
}

// shownPath is the path of a file, for people.
func (s *Space) shownPath(id order.FileID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.Files[id]; st != nil {
		return order.Join(st.Dir, st.Name)
	}
	return ""
}

// renewStaged puts a copy of what the disk has of f, which is to be r, in the place of its staged
// file, and commits it. f.committing is held.
func (f *File) renewStaged(ctx context.Context, r Remains) error {
	s := f.space
	path := s.path(f.id)
	fresh := path + acceptEnding
	defer os.Remove(fresh)
	if err := s.copyVerified(ctx, path, fresh, r); err != nil {
		return err
	}
	if r.Differs == 0 {
		if err := chtime(fresh, r.Modified.UnixNano()); err != nil {
			return err
		}
	}
	if err := f.replaceStaged(fresh); err != nil {
		return err
	}
	file, err := openStagedFile(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("open staged file: %w", err)
	}
	defer file.Close()
	_, record, err := f.compare(file, false)
	if err != nil {
		return err
	}
	if err := s.recordCommit(f, record, true); err != nil {
		return err
	}
	if err := s.makeDurable(f, file); err != nil {
		return err
	}
	s.mean(f)
	return s.journal.Sync(s.journal.End())
}

// replaceStaged gives the place of the staged file of f to the file fresh, which has its bytes,
// and is what the disk has lost nothing of. f.committing is held.
func (f *File) replaceStaged(fresh string) error {
	s := f.space
	f.content.Lock()
	defer f.content.Unlock()
	s.mu.Lock()
	st := s.mu.Files[f.id]
	lost := st != nil && st.IsSuspect() && st.Staged && st.Linked
	s.mu.Unlock()
	switch {
	case !lost:
		return ErrNotLost
	case f.busy():
		return ErrStillOpen
	}
	// Nothing is promised of it before the journal says so: a kill from here on leaves the same
	// bytes, and a lost file.
	if err := os.Rename(fresh, s.path(f.id)); err != nil {
		return err
	}
	f.named, f.seen = false, extentSeen{}
	f.lent.Store(false)
	f.touched.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record(&state.Emptied{File: f.id})
	f.failure, f.told = nil, false
	return nil
}

// unlinkedRemains tells of lost files that have no name any more.
func (s *Space) unlinkedRemains(path string, files []*File) (Remains, error) {
	if len(files) == 0 {
		return Remains{}, fmt.Errorf("%q: %w", path, ErrNotLost)
	}
	r := Remains{Path: path, Unlinked: len(files)}
	for _, f := range files {
		stamp, size, err := stampOf(s.path(f.id))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return r, err
		}
		if err == nil {
			r.Bytes += size
			r.Modified = latest(r.Modified, time.Unix(0, stamp).UTC())
		}
	}
	return r, nil
}

// letGoLost forgets lost files that have no name.
func (s *Space) letGoLost(ctx context.Context, files []*File) error {
	for _, f := range files {
		if err := f.letGoLost(ctx); err != nil {
			return err
		}
	}
	wake(s.commitNow)
	return s.journal.Sync(s.journal.End())
}

func (f *File) letGoLost(ctx context.Context) error {
	s := f.space
	if err := f.committing.wait(ctx); err != nil {
		return err
	}
	defer f.committing.Unlock()
	f.content.Lock()
	defer f.content.Unlock()
	if f.busy() {
		return ErrStillOpen
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.mu.Files[f.id]; st == nil || st.Linked || s.mu.KeptOf[f.id] != 0 {
		return syscall.ESTALE
	}
	s.release(f)
	return nil
}
