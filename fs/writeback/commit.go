package writeback

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/presence"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
)

const (
	// inlineLimit is the largest content that travels inside its record.
	inlineLimit = 128 << 10
	// clockTick is the coarsest clock that a file system tells times of writes by.
	clockTick = 20 * time.Millisecond
	// gatherTime is how long a group commit waits for others.
	gatherTime = 100 * time.Millisecond
)

// commit records the content that the staged file has, if it is not the one that was
// committed last. With durable it is on the disk when commit returns.
func (f *File) commit(durable bool) error {
	f.committing.Lock()
	defer f.committing.Unlock()
	s := f.space
	changed, r, err := f.compareStaged()
	if err != nil {
		return err
	}
	if changed {
		if err := s.recordCommit(f, r, durable); err != nil {
			return err
		}
	}
	if !durable {
		return nil
	}
	file, err := f.openForCommit()
	if err != nil || file == nil {
		return err
	}
	defer file.Close()
	if err := s.makeDurable(f, file); err != nil {
		return err
	}
	s.mean(f)
	return s.journal.Sync(s.journal.End())
}

// recordCommit writes down what compare has found. durable says that it is brought to the
// disk at once. f.committing is held.
func (s *Space) recordCommit(f *File, r *state.Closed, durable bool) error {
	var commit state.Record = r
	st := f.state()
	early := !r.HasInline && st.Gen > 0 && st.Durable >= st.Gen &&
		(r.Keep && !f.Partial() || durable && f.named && !st.IsSuspect())
	var failed error
	var before presence.Mark
	if early {
		// What was durable must not become doubtful by a change that nobody has seen and
		// that is perhaps none, or that is being brought to the disk when the power goes: the
		// journal, which is synced for others too, speaks of it when the disk has it.
		file, err := openStagedFile(s.path(f.id), os.O_RDONLY)
		if err != nil {
			f.unsure.Store(true)
			if !r.Keep {
				f.touched.Store(true)
			}
			return fmt.Errorf("open staged file of %q: %w", order.Join(st.Dir, st.Name), err)
		}
		before = f.present.Load().Mark()
		failed = s.disk.Sync(file)
		file.Close() //nolint:errcheck // it was only read
	}
	synced := early && failed == nil
	s.mu.Lock()
	now := s.mu.Files[f.id]
	if now == nil {
		s.mu.Unlock()
		return nil
	}
	group := []state.Record{r}
	if p := f.partialNow(now); p != nil {
		group = []state.Record{p, r}
	}
	// The disk may not have a chunk that was fetched or written since, be it while the others
	// were written down.
	synced = synced && f.present.Load().Mark() == before
	if synced {
		group = append(group, &state.Durable{File: f.id, Gen: r.Gen})
	}
	if len(group) > 1 {
		commit = &state.Group{Records: group}
	}
	pos := s.record(commit)
	if r.HasInline || synced {
		s.mu.undurable.recorded(f.id, pos, true)
	} else {
		s.mu.undurable.dirty(f.id)
	}
	s.mu.Unlock()
	if r.Gen == st.BaseGen+1 {
		s.pacing.closes.Add(1) // not each time that one file is written
	}
	s.giveBack(r.Inline) // the journal has a copy
	wake(s.commitNow)
	wake(s.publishNow)
	err := s.journal.Write(pos)
	if err != nil {
		f.touched.Store(true)
	}
	if failed != nil {
		// Also where the journal fails: the kernel tells of it once.
		return s.spoil(f, failed)
	}
	return err
}

// openForCommit opens the staged file, or returns nil if there is none to commit.
func (f *File) openForCommit() (*os.File, error) {
	st := f.state()
	if st.ID == 0 || !st.Staged {
		return nil, nil
	}
	file, err := openStagedFile(f.space.path(f.id), os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open staged file of %q: %w", order.Join(st.Dir, st.Name), err)
	}
	return file, nil
}

// borrow returns a buffer for content that travels inside its record.
func (s *Space) borrow(size int64) []byte {
	if b, ok := s.inline.Get().(*[]byte); ok && int64(cap(*b)) >= size {
		return (*b)[:size]
	}
	return make([]byte, size)
}

// giveBack lets others have a buffer that nobody looks at any more.
func (s *Space) giveBack(b []byte) {
	if cap(b) > 0 {
		s.inline.Put(&b)
	}
}

// compareStaged is compare of the staged file, if there is one. Where it is open
// already, as it is at a close, that one is looked at: of a small file the way to it
// would be the most of the work. The journal may need more room for what the file has:
// nobody waits for that under the lock of the content. f.committing is held.
func (f *File) compareStaged() (changed bool, r *state.Closed, err error) {
	open := f.HasWriters()
	s := f.space
	roomy := s.journal.HasRoom(s.reserve() + s.cfg.limits.inline)
	f.content.RLock()
	if file := f.content.read; file != nil && roomy && f.state().Staged {
		defer f.content.RUnlock()
		return f.compare(file, open)
	}
	f.content.RUnlock()
	file, err := f.openForCommit()
	if err != nil || file == nil {
		return false, nil, err
	}
	defer file.Close()
	return f.compare(file, open)
}

// compare says whether the staged file has changed since the last commit, and
// returns the record that commits it. open says that somebody may be writing.
// f.committing is held.
func (f *File) compare(file *os.File, open bool) (changed bool, r *state.Closed, err error) {
	touched := f.touched.Swap(false)
	unsure := f.unsure.Swap(false)
	defer func() {
		if err != nil && touched {
			f.touched.Store(true)
		}
		if err != nil && unsure {
			f.unsure.Store(true)
		}
	}()
	st := f.state()
	var stat syscall.Stat_t
	began, mark := time.Now(), f.cuts.mark()
	if err := syscall.Fstat(int(file.Fd()), &stat); err != nil {
		return false, nil, fmt.Errorf("stat staged file: %w", err)
	}
	if err := f.shrunk(stat.Size, mark); err != nil {
		return false, nil, fmt.Errorf("commit %q: %w", order.Join(st.Dir, st.Name), err)
	}
	r = &state.Closed{File: f.id, Gen: st.Gen + 1, Size: stat.Size, Stamp: stat.Mtim.Nano(), At: now()}
	first := st.Gen == st.BaseGen && st.Object.ETag == ""
	sure := touched || first || st.Size != r.Size || st.Stamp != r.Stamp
	if !sure && !unsure {
		return false, nil, nil
	}
	if open && f.lent.Load() && began.Sub(time.Unix(stat.Mtim.Unix())) < clockTick {
		// A write at the same tick of the clock would not show, after this look either.
		f.unsure.Store(true)
	}
	r.Keep = !sure
	if r.Size <= f.space.cfg.limits.inline && !f.lacks() && f.space.journal.Reserve(f.space.reserve()+r.Size) == nil {
		b := f.space.borrow(r.Size)
		n, err := file.ReadAt(b, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, nil, fmt.Errorf("read staged file: %w", err)
		} else if r.HasInline, r.Inline = n == len(b), b; !r.HasInline {
			// It shrinks right now: whoever does it will commit.
			r.Inline, touched = nil, true
			f.touched.Store(true)
		}
		sum := crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli))
		if !sure && sum == f.sum && r.HasInline {
			f.space.giveBack(b)
			return false, nil, nil
		}
		f.sum = sum
	}
	return true, r, nil
}

// makeDurable brings the last generation of f to the disk, but for the journal.
// f.committing is held.
func (s *Space) makeDurable(f *File, file *os.File) error {
	st := f.state()
	switch {
	case st.ID == 0 || !st.Staged:
		return nil
	case st.IsSuspect():
		s.mu.Lock()
		s.mu.undurable.forget(f.id)
		s.mu.Unlock()
		return lostOnDisk(&st, "sync")
	case st.Durable >= st.Gen:
		return nil
	}
	if !f.named {
		// Nothing is known to be lost if this fails: it is tried again.
		if err := s.disk.SyncDir(filepath.Join(s.cfg.Dir, stagedDir)); err != nil {
			return fmt.Errorf("sync %q: %w", order.Join(st.Dir, st.Name), err)
		}
		f.named = true
	}
	if err := s.disk.Sync(file); err != nil {
		return s.spoil(f, err)
	}
	s.mu.Lock()
	if s.mu.Files[f.id] == nil {
		s.mu.Unlock()
		return nil
	}
	s.mu.undurable.recorded(f.id, s.record(&state.Durable{File: f.id, Gen: st.Gen}), true)
	s.mu.Unlock()
	return nil
}

// spoil notes that the disk did not take the last generation of f. The kernel tells of
// a page that it could not write once, and then forgets it.
func (s *Space) spoil(f *File, err error) error {
	s.mu.Lock()
	st := s.mu.Files[f.id]
	if st == nil {
		s.mu.Unlock()
		return nil
	}
	path := order.Join(st.Dir, st.Name)
	err = fmt.Errorf("sync %q: %w", path, err)
	pos := s.record(&state.Suspect{File: f.id, Gen: st.Gen})
	s.mu.spoiled = true
	s.mu.undurable.forget(f.id)
	f.failure, f.told = err, false
	s.mu.Unlock()
	s.log.Error("the disk did not take a change: it is kept but not published until it is written again", "path", path, "err", err)
	// The next daemon would find a file that syncs well.
	return errors.Join(err, s.journal.Write(pos))
}

// committer brings what was committed to the disk, in groups.
func (s *Space) committer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.commitNow:
		}
		if !s.hurried() {
			sleep(ctx, gatherTime)
		}
		if err := s.commitAll(); err != nil {
			s.log.Error("the staging disk fails: changes are not safe from a loss of power", "err", err)
			s.tell()
			sleep(ctx, time.Second)
			wake(s.commitNow)
		}
		s.compactIfLarge()
		s.removeDoomed()
		wake(s.publishNow)
		wake(s.settleNow)
	}
}

// hurried says that somebody waits for publication.
func (s *Space) hurried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.draining > 0
}

// commitAll brings everything that was committed before the call to the disk.
func (s *Space) commitAll() error {
	s.mu.Lock()
	var files []*File
	for id, pos := range s.mu.undurable.files {
		switch {
		case s.mu.Files[id] == nil:
			s.mu.undurable.forget(id)
		case pos == 0:
			files = append(files, s.file(id))
		}
	}
	s.mu.Unlock()
	slices.SortFunc(files, func(a, b *File) int { return int(a.id) - int(b.id) })
	var failed error
	for _, f := range files {
		failed = errors.Join(failed, s.commitFile(f))
	}
	failed = errors.Join(failed, s.journal.Sync(s.journal.End()))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.undurable.settle(s.journal.Synced())
	return failed
}

func (s *Space) commitFile(f *File) error {
	f.committing.Lock()
	defer f.committing.Unlock()
	file, err := f.openForCommit()
	if err != nil || file == nil {
		return err
	}
	defer file.Close()
	err = s.makeDurable(f, file)
	if st := f.state(); st.IsSuspect() {
		return nil // it was told, and status tells
	}
	return err
}

// lostOnDisk is the error of a file of which the disk does not have all that was
// written. The kernel tells of pages that it could not write once and then takes them
// to be clean, so that no later sync can vouch for them.
func lostOnDisk(f *state.File, doing string) error {
	return fmt.Errorf("%s %q: the disk lost what was written before; write it anew from an empty file: %w", doing, order.Join(f.Dir, f.Name), syscall.EIO)
}

// anew notes that nothing is left of the content: what is written from now on does
// not rest on what the disk may have lost.
func (s *Space) anew(f *File) error {
	s.mu.Lock()
	s.rewrites(f)
	if errors.Is(f.failure, errDamaged) {
		f.failure, f.told = nil, false
	}
	if st := s.mu.Files[f.id]; st == nil || !st.IsSuspect() {
		s.mu.Unlock()
		return nil
	}
	pos := s.record(&state.Emptied{File: f.id})
	f.failure, f.told = nil, false
	s.mu.Unlock()
	return s.journal.Write(pos)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
