package writeback

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/journal"
	"github.com/pailfs/pailfs/oss"
)

const (
	// compactFrom is the size from which a journal is compacted, if most of it is
	// history.
	compactFrom = 4 << 20
	// compactFactor is how much larger than the state it may be.
	compactFactor = 4
	// maxCarried is how much content of small files a compaction carries over, in bytes,
	// since it is in memory twice meanwhile. The rest goes to the disk.
	maxCarried = 8 << 20
	// lowCompactFrom is the size from which it is compacted on a full disk.
	lowCompactFrom = 16 << 10
)

// compactIfLarge writes the state as a new journal if the old one is mostly
// history. It also does so on mounts that are never idle: calls wait for it as they
// do for a flush.
func (s *Space) compactIfLarge() {
	low, size := s.journal.Low(), s.journal.Size()
	if !low && size < s.cfg.limits.journal {
		return
	}
	s.mu.Lock()
	live := s.mu.live()
	s.mu.Unlock()
	if low {
		// What the old one gives back is worth more than the work.
		if err := s.journal.Reserve(s.reserve()); err == nil || size < compactFactor*live/2 || size < lowCompactFrom {
			return
		}
	} else if size < compactFactor*live {
		return
	}
	if err := s.compact(); err != nil {
		s.log.Warn("compacting the journal failed: it grows on", "err", err)
	}
}

// content is what a small file had when it was committed; without data, it is on the
// disk.
type content struct {
	gen  generation
	data []byte
}

// compact replaces the journal by one that says the same, and takes what the old one
// gives back for the next time before others do.
func (s *Space) compact() error {
	if err := s.replaceJournal(); err != nil {
		return err
	}
	if err := s.journal.Reserve(s.reserve()); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return nil
}

func (s *Space) replaceJournal() error {
	inline, err := s.readInline(s.journal.Low())
	if err != nil {
		return err
	}
	return s.journal.Replace(&s.mu, func() ([]byte, error) {
		return s.mu.snapshot(inline, s.readContent)
	})
}

// readInline returns the content of files that is in their records only. What was
// changed since, and what would be too much, goes to the disk instead; all of it if
// the disk is low.
func (s *Space) readInline(low bool) (map[fileID]content, error) {
	inline := make(map[fileID]content)
	carried := int64(0)
	for {
		s.mu.Lock()
		var missing []fileState
		for _, f := range s.mu.Files {
			if f.Staged && f.Inline == f.Gen && f.Gen > 0 && inline[f.ID].gen != f.Gen {
				missing = append(missing, *f)
			}
		}
		s.mu.Unlock()
		if len(missing) == 0 || !low && len(missing) <= 16 {
			return inline, nil
		}
		synced := false
		for _, f := range missing {
			c := content{gen: f.Gen}
			var err error
			if low || carried+f.Size > s.cfg.limits.carried {
				synced, err = true, s.syncStaged(f.ID)
			} else if c.data, err = s.readContent(&f); err == nil {
				carried += f.Size
			}
			if err != nil {
				return nil, err
			}
			inline[f.ID] = c
		}
		if synced {
			if err := s.disk.SyncDir(filepath.Join(s.cfg.Dir, stagedDir)); err != nil {
				return nil, err
			}
		}
	}
}

// syncStaged brings a staged file to the disk, but for its name.
func (s *Space) syncStaged(id fileID) error {
	file, err := os.Open(s.path(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was unlinked or published meanwhile
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return s.disk.Sync(file)
}

// readContent returns the content of the generation that f says.
func (s *Space) readContent(f *fileState) ([]byte, error) {
	file, err := os.Open(s.path(f.ID))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil // it was unlinked or published meanwhile
		}
		return nil, err
	}
	defer file.Close()
	b := make([]byte, f.Size)
	n, err := file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	stamp, size, err := stampOf(s.path(f.ID))
	if err == nil && n == len(b) && stamp == f.Stamp && size == f.Size {
		return b, nil
	}
	if err := s.disk.Sync(file); err != nil {
		return nil, err
	}
	return nil, s.disk.SyncDir(filepath.Join(s.cfg.Dir, stagedDir))
}

// snapshot returns a journal that makes st. The content that inline lacks is so
// little, and so new, that it may be read under the lock.
func (st *state) snapshot(inline map[fileID]content, read func(f *fileState) ([]byte, error)) ([]byte, error) {
	// It is made for all of it: to grow step by step costs several times as much memory.
	room := snapshotRoom(st)
	for _, c := range inline {
		room += len(c.data)
	}
	b := frame(append(make([]byte, 0, room), journal.Header()...), &identityRecord{st.Identity})
	b = frame(b, &bootRecord{st.Boot})
	for _, id := range slices.Sorted(maps.Keys(st.Files)) {
		f := st.Files[id]
		r := &snapFile{File: *f}
		if f.Staged && f.Inline == f.Gen && f.Gen > 0 {
			c, ok := inline[id]
			if !ok || c.gen != f.Gen {
				data, err := read(f)
				if err != nil {
					return nil, err
				}
				c = content{f.Gen, data}
			}
			if r.HasInline, r.Inline = c.data != nil, c.data; !r.HasInline {
				// It is on the disk.
				r.File.Inline, f.Inline = 0, 0
				st.tally.set(id, f)
			}
		}
		b = frame(b, r)
		if f.Vouched != nil {
			b = frame(b, &partialRecord{File: id, Partial: *f.Vouched})
		}
		if f.Partial != nil {
			b = frame(b, &partialRecord{File: id, Partial: *f.Partial})
		} else if f.Vouched != nil {
			b = frame(b, &partialRecord{File: id})
		}
		if f.XAttrs != nil {
			b = frame(b, &snapXAttrs{File: id, XAttrs: *f.XAttrs})
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(st.Names)) {
		for _, base := range slices.Sorted(maps.Keys(st.Names[dir])) {
			b = frame(b, &snapName{dir, base, st.Names[dir][base]})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(st.Ops)) {
		b = frame(b, &snapOp{*st.Ops[id]})
	}
	for _, key := range slices.Sorted(maps.Keys(st.Keys)) {
		b = frame(b, &snapKey{key, *st.Keys[key]})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Kept)) {
		b = frame(b, &keptRecord{Op: id})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Uploads)) {
		b = frame(b, &uploadBegunRecord{st.Uploads[id]})
	}
	for _, key := range slices.Sorted(maps.Keys(st.Dirs)) {
		b = frame(b, &snapDirAttr{key, st.Dirs[key]})
	}
	for _, id := range slices.Sorted(maps.Keys(st.Losses)) {
		b = frame(b, &snapLoss{id, *st.Losses[id]})
	}
	for _, c := range st.Conflicts {
		b = frame(b, &snapConflict{c})
	}
	// Last, because applying counts orders.
	return frame(b, &snapCounters{st.NextFile, st.NextOp, st.NextOrder}), nil
}

// snapshotRoom returns about how many bytes the records are that make st, and rather more
// than less, but for content.
func snapshotRoom(st *state) int {
	// What a record of each kind has beside its strings.
	const file, object, name, op, key, rest = 72, 32, 32, 64, 32, 4096
	room := rest
	for _, f := range st.Files {
		room += file + len(f.Dir) + len(f.Name) + len(f.Key)
		for _, o := range []*oss.Object{&f.Object, &f.Origin, &f.Published} {
			if o.Key != "" {
				room += object + len(o.Key) + len(o.ETag)
			}
		}
		for _, p := range []*partial{f.Partial, f.Vouched} {
			if p != nil {
				room += file + len(p.Local)
			}
		}
		if f.XAttrs != nil {
			room += file + len(f.XAttrs.Given) + len(f.XAttrs.Pub)
		}
	}
	for dir, names := range st.Names {
		for base, n := range names {
			room += name + len(dir) + len(base) + len(n.Key)
		}
	}
	for _, o := range st.Ops {
		room += op + len(o.Key) + len(o.Dir) + len(o.Name)
	}
	for k := range st.Keys {
		room += key + len(k)
	}
	return room
}

// chtime sets the time of the last write of a file, in nanoseconds since 1970.
func chtime(path string, stamp int64) error {
	return os.Chtimes(path, time.Time{}, time.Unix(0, stamp))
}
