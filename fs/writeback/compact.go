package writeback

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pailfs/pailfs/fs/writeback/internal/order"
	"github.com/pailfs/pailfs/fs/writeback/internal/state"
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
	live := s.mu.Live()
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
		return s.mu.Snapshot(inline, s.readContent)
	})
}

// readInline returns the content of files that is in their records only. What was
// changed since, and what would be too much, goes to the disk instead; all of it if
// the disk is low.
func (s *Space) readInline(low bool) (map[order.FileID]state.Content, error) {
	inline := make(map[order.FileID]state.Content)
	carried := int64(0)
	for {
		s.mu.Lock()
		var missing []state.File
		for _, f := range s.mu.Files {
			if f.Staged && f.Inline == f.Gen && f.Gen > 0 && inline[f.ID].Gen != f.Gen {
				missing = append(missing, *f)
			}
		}
		s.mu.Unlock()
		if len(missing) == 0 || !low && len(missing) <= 16 {
			return inline, nil
		}
		synced := false
		for _, f := range missing {
			c := state.Content{Gen: f.Gen}
			var err error
			if low || carried+f.Size > s.cfg.limits.carried {
				synced, err = true, s.syncStaged(f.ID)
			} else if c.Data, err = s.readContent(&f); err == nil {
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
func (s *Space) syncStaged(id order.FileID) error {
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
func (s *Space) readContent(f *state.File) ([]byte, error) {
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

// chtime sets the time of the last write of a file, in nanoseconds since 1970.
func chtime(path string, stamp int64) error {
	return os.Chtimes(path, time.Time{}, time.Unix(0, stamp))
}
